"""A compiled implementation that was made from other sources than those beside it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from gkafka import records
from gkafka.records._sources import check_sources, sum_of_sources


def built(folder: Path, **names: str) -> ModuleType:
    """A module that stands in a folder with sources, and says that it was made from these."""
    (folder / "a.pyx").write_bytes(b"include 'b.pxi'\n")
    (folder / "b.pxi").write_bytes(b"x = 1\n")
    module = ModuleType("compiled")
    module.__file__ = str(folder / "compiled.so")
    module.__dict__.update({"SOURCES": sum_of_sources(str(folder)), **names})
    return module


def test_a_module_made_from_the_sources_beside_it_is_fine(tmp_path: Path) -> None:
    module = built(tmp_path)
    check_sources(module)
    (tmp_path / "b.pxi").write_bytes(b"x = 1\r\n")  # as another checkout has it
    (tmp_path / "c.py").write_bytes(b"")
    check_sources(module)


@pytest.mark.parametrize(("name", "text"), [("b.pxi", b"x = 2\n"), ("c.pxi", b""), ("a.pyx", b"")])
def test_a_module_made_from_other_sources_is_refused_with_the_command_that_makes_it(tmp_path: Path, name: str, text: bytes) -> None:
    module = built(tmp_path)
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ImportError, match=r"compiled\.so was built from other sources .*: python setup\.py build_ext --inplace --force"):
        check_sources(module)


def test_a_module_of_before_there_was_a_sum_is_refused(tmp_path: Path) -> None:
    module = built(tmp_path)
    del module.SOURCES
    with pytest.raises(ImportError, match="other sources"):
        check_sources(module)


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    check_sources(built(tmp_path, SOURCES=""))
    for path in tmp_path.iterdir():
        path.unlink()
    module = ModuleType("compiled")
    module.__file__ = str(tmp_path / "compiled.so")
    check_sources(module)


def test_where_the_compiled_part_is_of_other_sources_the_other_one_serves_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a `git pull` in a checkout that was built: nothing of gkafka could be imported."""
    module = built(tmp_path, SOURCES="of before")
    monkeypatch.setitem(sys.modules, "gkafka.records._speed", module)
    with pytest.warns(RuntimeWarning, match=r"without its compiled part, slower: .*setup\.py build_ext --inplace --force"):
        name, chosen = records._choose(None)
    assert (name, chosen.__name__) == ("python", "gkafka.records._pure")
    with pytest.raises(ImportError, match=r"GKAFKA_IMPL='cython' does not load: .*other sources"):
        records._choose("cython")
