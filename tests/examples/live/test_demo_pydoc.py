"""Where there is no apt, the demo's site is pydoc's: hundreds of pages, written anew. (In `make test` some.)"""

from __future__ import annotations

from pathlib import Path

import pytest
import website

from tests.effort import quick_and_thorough

FEWER = """
import sys
sys.stdlib_module_names = {{"json", *sorted(sys.stdlib_module_names)[::{step}]}}
"""
"""A sitecustomize: to a Python that is started with it, not all of the standard library is."""


@pytest.mark.parametrize("step", quick_and_thorough(12, 1))
def test_without_apt_the_pages_of_pydoc_are_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(FEWER.format(step=step))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(website.shutil, "which", lambda name: None)
    told: list[str] = []
    folder = website.find_site(None, cache=tmp_path, say=told.append)
    assert any("no apt-get" in line for line in told)
    assert (folder / "index.html").is_file()
    assert (folder / "json.html").is_file()
