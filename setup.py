"""The optional compiled modules. Everything else about the package is in pyproject.toml.

GKAFKA_BUILD=pure    builds without it
GKAFKA_BUILD=cython  fails when it cannot be built
unset                builds it if Cython and a C compiler are there; otherwise gkafka runs on its Python implementation
"""

from __future__ import annotations

import glob
import os
import runpy
import sys
import threading
import time

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

MODE = os.environ.get("GKAFKA_BUILD", "")
RECORDS = "gkafka/records/_speed.pyx"
SYSCALLS = "gkafka/handlers/_syscalls.pyx"
LOCKS = "gkafka/handlers/_locks.pyx"
PAGES = sorted(glob.glob("docs/*.md"))
SIGN_EVERY_S = 5.0
PARTS = sorted([*glob.glob("gkafka/records/*.pxi"), *glob.glob("gkafka/records/*.h")])


def extensions() -> list[Extension]:
    """The compiled modules, or nothing where they are not wanted or Cython is missing."""
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
    sources = runpy.run_path("gkafka/records/_sources.py")["sum_of_sources"]("gkafka/records")
    records = Extension("gkafka.records._speed", [RECORDS], depends=PARTS, define_macros=[("GKAFKA_SOURCES", f'"{sources}"')])
    wanted = [records, Extension("gkafka.handlers._locks", [LOCKS])]
    if sys.platform.startswith("linux"):  # where recv() itself keeps time
        wanted.append(Extension("gkafka.handlers._syscalls", [SYSCALLS]))
    made: list[Extension] = cythonize(wanted, language_level=3)
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
        missing = [e.name for e in self.extensions if not os.path.exists(self.get_ext_fullpath(e.name))]
        built = bool(self.extensions) and not missing
        note = f" ({', '.join(missing)} could not be built)" if missing else ""
        print(f"gkafka: built with the {'compiled' if built else 'Python'} implementation{note}", file=sys.stderr)


class BuildPy(build_py):
    """Has the pages of docs/ travel as gkafka/docs, where `kafka-tools docs` finds them; used from a clone, it finds them where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.mkpath(os.path.join(self.build_lib, "gkafka", "docs"))
            for page, target in zip(PAGES, self._targets(), strict=True):
                self.copy_file(page, target, preserve_mode=False)

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *PAGES]  # of an sdist

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *([] if self.editable_mode else self._targets())]

    def _targets(self) -> list[str]:
        return [os.path.join(self.build_lib, "gkafka", page) for page in PAGES]


def stay_visible() -> None:
    """Print a line again and again: pip's wheel turns when something is printed, and a compiler that works for a minute prints nothing.

    It is written without a lock, which the end of the program would find taken.
    """
    began = time.monotonic()
    while True:
        time.sleep(SIGN_EVERY_S)
        os.write(2, f"gkafka: building, {time.monotonic() - began:.0f} s so far\n".encode())


threading.Thread(target=stay_visible, daemon=True).start()
setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt, "build_py": BuildPy})
