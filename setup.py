"""The optional compiled module. Everything else about the package is in pyproject.toml.

GKAFKA_BUILD=pure    builds without it
GKAFKA_BUILD=cython  fails when it cannot be built
unset                builds it if Cython and a C compiler are there; otherwise gkafka runs on its Python implementation
"""

from __future__ import annotations

import glob
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODE = os.environ.get("GKAFKA_BUILD", "")
SOURCE = "gkafka/records/_speed.pyx"
PARTS = sorted([*glob.glob("gkafka/records/*.pxi"), *glob.glob("gkafka/records/*.h")])


def extensions() -> list[Extension]:
    """The compiled module, or nothing where it is not wanted or Cython is missing."""
    if MODE not in ("", "pure", "cython"):
        raise SystemExit(f"GKAFKA_BUILD={MODE!r}: must be 'pure', 'cython' or unset")
    if MODE == "pure":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if MODE == "cython":
            raise SystemExit("GKAFKA_BUILD=cython needs Cython: pip install 'Cython>=3'") from None
        return []
    made: list[Extension] = cythonize([Extension("gkafka.records._speed", [SOURCE], depends=PARTS)], language_level=3)
    for extension in made:
        extension.optional = MODE != "cython"  # cythonize() does not carry this over
    return made


class BuildExt(build_ext):
    """Sets the compiler's flags and says which implementation was built."""

    def build_extensions(self) -> None:
        if self.compiler.compiler_type != "msvc":
            for extension in self.extensions:
                extension.extra_compile_args.append("-O3")
        super().build_extensions()

    def run(self) -> None:
        super().run()
        built = [e for e in self.extensions if os.path.exists(self.get_ext_fullpath(e.name))]
        print(f"gkafka: built with the {'compiled' if built else 'Python'} implementation of gkafka.records", file=sys.stderr)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
