"""Both implementations of gkafka.records, as the parameter `impl` of every test here that asks for it."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

MODULES = {"cython": "gkafka.records._speed", "python": "gkafka.records._pure"}
BUILD = "python setup.py build_ext --inplace"


def load(name: str) -> ModuleType:
    """An implementation. Without the compiled one the tests fail, unless GKAFKA_BUILD=pure says that it is not wanted."""
    try:
        return importlib.import_module(MODULES[name])
    except ImportError as exc:
        if name == "cython" and os.environ.get("GKAFKA_BUILD") == "pure":
            pytest.skip("GKAFKA_BUILD=pure: the compiled implementation is not built")
        pytest.fail(f"the {name} implementation does not load: {exc}\nbuild it: {BUILD}", pytrace=False)


@pytest.fixture(scope="session", params=list(MODULES))
def impl(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation in turn."""
    return load(request.param)


@pytest.fixture(scope="session")
def speed() -> ModuleType:
    """The compiled implementation, to be held against the other."""
    return load("cython")
