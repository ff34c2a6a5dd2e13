"""Batches that callers fill while the producer's worker is at work are sent in their order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gkafka.core.sender import Sender
from tests.public.aids import LIMIT_S, stored_values


@pytest.mark.parametrize("at", ["send_alone", "poll"])
def test_batches_that_come_behind_the_workers_notes_stand_before_the_open_one(
    connect: Any, make_cluster: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The worker has taken its notes, and takes the open batch, which is a younger one by now."""
    cluster = make_cluster(topics={"t": 1})
    producer: Any = connect(cluster).get_producer(linger_ms=0, batch_bytes=200)
    producer.produce("t", b"first", partition=0).result(LIMIT_S)
    values = [b"%02d" % n + b"x" * 150 for n in range(6)]  # one is a batch
    left, sender = [values[1:4]], producer._driver.sender
    roll = sender._roll

    def late(topic: str, partition: int) -> Any:
        if left:
            more = left.pop()
            caller = threading.Thread(target=lambda: [producer.produce("t", value, partition=0) for value in more])
            caller.start()
            caller.join(LIMIT_S)
            assert not caller.is_alive()
        return roll(topic, partition)

    if at == "poll":
        monkeypatch.setattr(Sender, "send_alone", lambda *_: None)
    monkeypatch.setattr(sender, "_roll", late)
    for value in (values[0], *values[4:]):
        producer.produce("t", value, partition=0)
        producer.flush(LIMIT_S)
    assert not left
    assert stored_values(cluster) == [b"first", *values]
