"""Callers that read their answers themselves, and what else goes on in the client meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.clock import now
from tests.public.aids import LIMIT_S, Runner


@pytest.fixture
def client(connect: Any, make_cluster: Any, run: Runner) -> Any:
    if run.name != "threading":
        pytest.skip("with greenlets the reader reads")
    return connect(make_cluster(topics={"t": 2}))


def test_without_acks_nobody_waits_for_bytes(client: Any) -> None:
    """On a connection that another producer, whose answers come, uses as well."""
    acked, unacked = client.get_producer(), client.get_producer(acks=0)
    begun = now()
    for _ in range(500):
        acked.produce("t", b"a", partition=0).result(LIMIT_S)
        unacked.produce("t", b"b", partition=1).result(LIMIT_S)
    assert now() - begun < 20, "not a wait of a tenth of a second each time"
