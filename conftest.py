"""For every session, whatever part of the tests it runs."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """The test functions, 300,000 objects, are no garbage: a test that collects it looks at its own, in 1 ms instead of 100."""
    gc.collect()
    gc.freeze()
