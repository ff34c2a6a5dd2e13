"""For all tests, of every folder."""

from __future__ import annotations

import gc
import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_this_module(request: pytest.FixtureRequest) -> None:
    """What a session holds (300,000 objects: its tests, what Hypothesis remembers) is none: collecting garbage takes 1 ms instead of 100.

    Beside real Kafka other clients run (kafka-python, PySpark), which leave sockets open: what of theirs is still there is no failure of the
    next module.
    """
    with warnings.catch_warnings():
        if "live" in request.path.parts:
            warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()
