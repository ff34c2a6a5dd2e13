"""Few places catch every exception, and each spelling of that is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catches import in_cython, in_python, places

MOST = 42
"""Raise it only for a place that no mechanism that is there can take over: Undoing, guarded(), Mark, a `finally`, an order of statements."""

IN_PYTHON = {
    "try:\n    f()\nexcept BaseException:\n    raise\n": ["except"],
    "try:\n    f()\nexcept:\n    raise\n": ["except"],
    "try:\n    f()\nexcept (OSError, BaseException) as e:\n    raise\n": ["except"],
    "try:\n    f()\nexcept builtins.BaseException:\n    raise\n": ["except"],
    "try:\n    f()\nexcept* BaseException:\n    raise\n": ["except"],
    "with contextlib.suppress(BaseException):\n    f()\n": ["suppress"],
    "with suppress(OSError, BaseException):\n    f()\n": ["suppress"],
    "class C:\n    def __exit__(self, kind, error, trace):\n        if kind:\n            f()\n": ["exit"],
    "class C:\n    def __exit__(self, *about):\n        self.f(*about)\n": ["exit"],
    "class C:\n    async def __aexit__(self, kind, error, trace):\n        f(error)\n": ["exit"],
    "class C:\n    def __exit__(self, *about):\n        self.close()\n": [],
    "try:\n    f()\nexcept Exception:\n    raise\n": [],
    "try:\n    f()\nfinally:\n    g()\n": [],
    "with suppress(OSError):\n    f()\n": [],
    "def f(error: BaseException) -> None: ...\n": [],
}
IN_CYTHON = {
    "    try:\n        f()\n    except BaseException:\n        raise\n": ["except"],
    "    try:\n        f()\n    except:\n        raise\n": ["except"],
    "    try:\n        f()\n    except (OSError, BaseException) as e:\n        raise\n": ["except"],
    "    with suppress(BaseException):\n        f()\n": ["suppress"],
    "    def __exit__(self, kind, error, trace):\n        if kind:\n            f()\n": ["exit"],
    "    def __exit__(self, object kind, object error, object trace):\n        self.close(error)\n": ["exit"],
    "    def __exit__(self, *about):\n        self.close()\n": [],
    "    def __exit__(self, kind, error, trace):\n        self.close()\n\n    def f(self, kind):\n        g(kind)\n": [],
    "cdef int f(BaseException error) except -1:\n    g()\n": [],
    "cdef void f() noexcept:\n    g()\n": [],
    "    except OSError:\n        g(BaseException)\n": [],
}


def test_few_places_catch_every_exception() -> None:
    found = places()
    assert len(found) <= MOST, "\n".join(f"{place.file}:{place.line}: {place.kind}" for place in found)


@pytest.mark.parametrize("text", IN_PYTHON)
def test_each_spelling_is_seen_in_python(text: str) -> None:
    assert [kind for _, kind in in_python(text)] == IN_PYTHON[text]


@pytest.mark.parametrize("text", IN_CYTHON)
def test_each_spelling_is_seen_in_cython(text: str) -> None:
    assert [kind for _, kind in in_cython(text)] == IN_CYTHON[text]


def test_the_files_of_a_package_are_read(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("try:\n    f()\nexcept BaseException:\n    raise\n")
    for name in ("b.pyx", "c.pxi"):
        (tmp_path / name).write_text("def f():\n    try:\n        g()\n    except:\n        raise\n")
    (tmp_path / "d.txt").write_text("except:\n")
    assert [tuple(place) for place in places(tmp_path)] == [("b.pyx", 4, "except"), ("c.pxi", 4, "except"), ("room/a.py", 3, "except")]
