"""Workers look around every few seconds: what a consumer waits for comes by being told, not at the next look."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import HandlerThreadError, KafkaException, SerializationError
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Clock, Runner, error_of, fill, limit_calls
from tests.public.groupaids import Join, cluster, filled, join

__all__ = ["cluster", "join"]

Connect = Callable[..., KafkaClient]
"""Half of the workers' look, and much more than a refresh of the metadata takes."""


@pytest.mark.parametrize("stall_ms", [200, 1000])
def test_a_partition_that_stands_still_is_told_of_when_it_has(connect: Connect, cluster: MockCluster, run: Runner, stall_ms: int) -> None:
    client = connect(cluster)
    fill(client, [b"x"])
    with client.get_consumer("t", stall_warning_ms=stall_ms) as consumer, Clock() as clock:
        run.until(lambda: consumer.stats()["stall_warnings"])
    assert clock.seconds < 30


@pytest.mark.parametrize("what", [re.compile("t.*"), "t"], ids=["topic of a pattern", "partition"])
def test_without_a_group_what_is_new_is_read_in_the_call_that_waits(connect: Connect, make_cluster: Any, run: Runner, what: Any) -> None:
    cluster = make_cluster(topics={"t": 1})
    client = connect(cluster, metadata_max_age_ms=300)
    with client.get_consumer(what) as consumer:
        waiting = run.aside(lambda: consumer.consume(timeout_ms=LIMIT_S * 1000))
        run.sleep(0.5)
        topic, partition = ("t", 1) if what == "t" else ("t2", 0)
        if what == "t":
            cluster.add_partitions("t", 2)
        else:
            cluster.create_topic("t2", 1)
        fill(connect(cluster), [b"new"], topic=topic, partition=partition)
        with Clock() as clock:
            message = waiting.result()
    assert (message.topic, message.partition_id, message.value) == (topic, partition, b"new")
    assert clock.seconds < 30


@pytest.mark.parametrize("code", [-1, 30])
def test_a_partition_whose_start_was_refused_once_begins_soon(
    connect: Connect, cluster: MockCluster, join: Join, run: Runner, code: int
) -> None:
    filled(connect, cluster)
    cluster.on("OffsetFetch", Error(code), times=1)
    member, told = join(), []
    with Clock() as clock:
        while True:
            try:
                if member.consume(1000) is not None:
                    break
            except KafkaException as exc:
                told.append(exc)
    assert len(told) <= 1, "once"
    assert clock.seconds < 30


def test_a_dead_letter_topic_that_is_not_there_takes_no_longer_than_api_timeout_ms(connect: Connect, make_cluster: Any) -> None:
    cluster = make_cluster(topics={"t": 1}, auto_create=False)
    fill(connect(cluster), [b"x"])
    client = connect(cluster)
    with client.get_consumer("t", value_deserializer=int, on_deserialize_error="dlq", dead_letter="nowhere") as consumer:
        limit_calls(client, 500)
        with Clock() as clock:
            error = error_of(consumer.consume, LIMIT_S * 1000)
        assert isinstance(error, SerializationError)
        assert "topic 'nowhere' does not exist" in str(error)
    assert clock.seconds < 30


@pytest.mark.parametrize("what", ["consumer", "client"])
def test_who_ends_a_consumer_whose_hub_turns_no_more_waits_no_longer_than_asked(cluster: MockCluster, what: str) -> None:
    made: list[Any] = []

    def make() -> None:
        client = KafkaClient(cluster.bootstrap, handler="gevent")
        made.extend([client, client.get_consumer("t"), client.get_consumer("t")])

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    client, consumer, _ = made
    with Clock() as clock, contextlib.suppress(HandlerThreadError):
        (client if what == "client" else consumer).close(1)
    assert clock.seconds < 30


def test_a_worker_that_is_about_to_wait_sees_what_another_found(cluster: MockCluster, connect: Connect, run: Runner) -> None:
    """One has looked and found nothing; records come; the other begins to look, and takes the signal away. It had to wait for its next look."""
    client = connect(cluster)
    consumer: Any = client.get_consumer("t", auto_offset_reset="earliest")
    fill(client, [b"1", b"2"])
    run.until(consumer._engine.buffered)
    consumer._engine.taker._wait_filled(LIMIT_S, consumer._engine.taker._waked)
    assert consumer._engine._filled.is_set()
    assert len(consumer.consume_batch(timeout_ms=LIMIT_S * 1000)) == 2
