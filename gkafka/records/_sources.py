"""From which sources the compiled implementation was made. setup.py compiles their sum in, `gkafka.records` compares it."""

from __future__ import annotations

import os
from types import ModuleType
from zlib import crc32

__all__ = ["OtherSources", "check_sources", "sum_of_sources"]

ENDINGS = (".pyx", ".pxi", ".h")


class OtherSources(ImportError):
    """A compiled module was made from other sources than those beside it."""


def sum_of_sources(folder: str = os.path.dirname(__file__)) -> str:
    """A checksum of all sources in a folder, whatever their line ends; "" where there are none."""
    found = ""
    for name in sorted(name for name in os.listdir(folder) if name.endswith(ENDINGS)):
        with open(os.path.join(folder, name), "rb") as file:
            text = file.read().replace(b"\r\n", b"\n")
        found = f"{crc32(text, crc32((found + name).encode())):08x}"
    return found


def check_sources(module: ModuleType) -> None:
    """Raise OtherSources if a compiled module was made from other sources than those beside it. Nothing is known without
    sources, or of a module that something else than setup.py has built."""
    path = module.__file__ or ""
    there = sum_of_sources(os.path.dirname(path))
    if there and getattr(module, "SOURCES", None) not in ("", there):
        raise OtherSources(f"{path} was built from other sources than those beside it: python setup.py build_ext --inplace --force")
