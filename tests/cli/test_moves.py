"""What a command of kafka-tools has not done it neither commits nor counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.cli.pipes import Output
from gkafka.consumer import Consumer
from gkafka.testing import Error, MockCluster
from tests.cli.running import tool


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1}, auto_create=False) as made:
        yield made


def write(cluster: MockCluster, count: int) -> None:
    with KafkaClient(cluster.bootstrap) as client, client.get_producer() as producer:
        for i in range(count):
            producer.produce("t", b"%02d" % i, partition=0)


def test_what_was_taken_and_not_printed_is_not_committed(
    cluster: MockCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader of a pipe leaves: of the ten records that it has not got, none is committed."""
    write(cluster, 50)
    monkeypatch.setattr("gkafka.cli.consume.AT_ONCE", 10)
    printed: list[bytes] = []

    def leave(self: Output, data: bytes) -> None:
        if len(printed) == 2:
            raise BrokenPipeError
        printed.append(data)

    monkeypatch.setattr(Output, "write", leave)
    tool("consume", "t", "-b", cluster.bootstrap, "-g", "g")
    assert b"".join(printed).split() == [b"%02d" % i for i in range(20)]
    assert cluster.committed("g")["t", 0].offset == 20


def test_a_reset_without_yes_moves_nothing(cluster: MockCluster) -> None:
    write(cluster, 5)
    assert tool("consume", "t", "-b", cluster.bootstrap, "-g", "g").code == 0
    assert tool("offsets", "reset", "g", "-b", cluster.bootstrap, "--to-earliest").code == 0
    assert cluster.committed("g")["t", 0].offset == 5


@pytest.fixture
def interrupted_in_the_second_batch(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 records in batches of ten. The signal's handler may run as the consumer's call returns, before anything is noted of the batch."""
    write(cluster, 50)
    monkeypatch.setattr("gkafka.cli.consume.AT_ONCE", 10)
    consume, batches = Consumer.consume_batch, []

    def interrupted(self: Consumer, *args: Any) -> list[Any]:
        got = consume(self, *args)
        batches.extend([got] if got else [])
        if len(batches) == 2:
            raise KeyboardInterrupt
        return got

    monkeypatch.setattr(Consumer, "consume_batch", interrupted)


@pytest.mark.usefixtures("interrupted_in_the_second_batch")
def test_what_a_signal_takes_away_before_it_is_printed_is_not_committed(cluster: MockCluster) -> None:
    printed = tool("consume", "t", "-b", cluster.bootstrap, "-g", "g").out
    assert printed.split() == [b"%02d" % i for i in range(10)]
    assert cluster.committed("g")["t", 0].offset == 10


@pytest.mark.usefixtures("interrupted_in_the_second_batch")
@pytest.mark.parametrize(("refused", "goes_on"), [(False, "behind"), (True, "before")])
def test_who_interrupts_is_told_from_where_the_group_goes_on(cluster: MockCluster, refused: bool, goes_on: str) -> None:
    if refused:
        cluster.on("OffsetCommit", Error(25), times=None)
    told = tool("consume", "t", "-b", cluster.bootstrap, "-g", "g")
    assert told.code == 130
    assert told.err.splitlines()[-1] == f"kafka-tools: interrupted; 10 records printed; group 'g' goes on {goes_on} them"
