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
    producer: Any = connect(cluster).get_producer(linger_ms=0, batch_bytes=200, max_in_flight=1 if at == "poll" else 5)
    producer.produce("t", b"first", partition=0).result(LIMIT_S)
    driver, values = producer._driver, [b"%02d" % n + b"x" * 150 for n in range(6)]
    left = [values[1:4]]
    whole = driver._appender.take

    def late(topic: str, partition: int) -> Any:
        if left:
            more = left.pop()
            caller = threading.Thread(target=lambda: [producer.produce("t", value, partition=0) for value in more])
            caller.start()
            caller.join(LIMIT_S)
            assert not caller.is_alive()
        return whole(topic, partition)

    if at == "poll":
        monkeypatch.setattr(Sender, "send_alone", lambda *_: None)
    monkeypatch.setattr(driver.sender, "_roll", lambda topic, partition: late_roll(driver, late, topic, partition))
    for value in (values[0], *values[4:]):
        producer.produce("t", value, partition=0)
        producer.flush(LIMIT_S)
    assert stored_values(cluster) == [b"first", *values]


def late_roll(driver: Any, take: Any, topic: str, partition: int) -> Any:
    whole, driver._appender = driver._appender, Taking(driver._appender, take)
    try:
        return type(driver)._roll(driver, topic, partition)
    finally:
        driver._appender = whole


class Taking:
    """An appender whose take() is another one."""

    def __init__(self, appender: Any, take: Any) -> None:
        self._appender, self.take = appender, take

    @property
    def news(self) -> Any:
        return self._appender.news
