"""One suite, both handlers. gevent runs here unpatched, in the same process; patched cases are scripts in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gkafka.handlers import Handler, resolve_handler
from tests.kit.clock import soon


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made = resolve_handler("threading") if request.param == "threading" else resolve_handler("gevent")
    yield made
    assert made.stop(soon(60)), f"workers that did not end: {made.workers()}"
