"""Log handlers are the application's code: they may be slow, and may use the producer whose line they get."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from gkafka import KafkaClient
from gkafka.exceptions import KafkaTimeoutError
from gkafka.testing import Error, MockCluster
from tests.public.aids import LIMIT_S, Runner, error_of

Connect = Callable[..., KafkaClient]
TOO_LARGE, REFUSED = 10, 87


class Beside(logging.Handler):
    """Has another worker do something, and waits for it, while a line of one logger is written."""

    def __init__(self, run: Runner, logger: str, do: Callable[[], object]) -> None:
        super().__init__()
        self._run, self._logger, self._do = run, logger, do
        self.done = 0
        self.failed: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != self._logger or self.done or self.failed:
            return
        try:
            self._run.aside(self._do).result(LIMIT_S / 2)
            self.done += 1
        except BaseException as exc:
            self.failed.append(exc)


@contextlib.contextmanager
def beside(run: Runner, logger: str, do: Callable[[], object], *, level: int = logging.INFO) -> Iterator[None]:
    ours, handler = logging.getLogger("gkafka"), Beside(run, logger, do)
    before = ours.level
    ours.setLevel(level)
    ours.addHandler(handler)
    try:
        yield
        run.until(lambda: handler.done or handler.failed)
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)
    assert (handler.done, handler.failed) == (1, [])


def used(producer: Any) -> Callable[[], None]:
    """What callers do with a producer, its lock included: whoever waits for a record takes it."""

    def use() -> None:
        producer.stats()
        delivery = producer.produce("other", b"beside")
        with contextlib.suppress(KafkaTimeoutError):
            delivery.result(0.001)

    return use


def test_while_a_batch_is_divided(connect: Connect, make_cluster: Any, run: Runner) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1, "other": 1})
    producer = connect(cluster).get_producer(linger_ms=60_000)
    producer.produce("other", b"0").result(LIMIT_S)
    cluster.on("Produce", Error(TOO_LARGE), times=1)
    with beside(run, "gkafka.core.splitting", used(producer)):
        deliveries = [producer.produce("t", b"%d" % n) for n in range(4)]
        assert [delivery.result(LIMIT_S).offset for delivery in deliveries] == [0, 1, 2, 3]


def test_while_a_gap_ends_an_epoch(connect: Connect, make_cluster: Any, run: Runner) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1, "other": 1})
    producer = connect(cluster).get_producer()
    producer.produce("other", b"0").result(LIMIT_S)
    cluster.on("Produce", Error(REFUSED), times=1)
    with beside(run, "gkafka.core.numbering", used(producer)):
        assert producer.produce("t", b"0").exception(LIMIT_S) is not None
        producer.produce("t", b"1").result(LIMIT_S)
    error_of(producer.close)


def test_while_idempotence_is_given_up(connect: Connect, make_cluster: Any, run: Runner) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1, "other": 1}, versions="0.10.2")
    producer = connect(cluster).get_producer()
    producer.know_topic("other")
    with beside(run, "gkafka.core.numbering", used(producer)):
        producer.produce("t", b"0").result(LIMIT_S)


def test_while_a_transaction_has_to_be_aborted(connect: Connect, make_cluster: Any, run: Runner) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    producer = connect(cluster).get_producer(transactional_id="x", linger_ms=60_000)
    producer.begin_transaction()
    delivery = producer.produce("t", b"0")
    cluster.on("Produce", Error(REFUSED), times=1)
    with beside(run, "gkafka.core.transaction", lambda: error_of(delivery.result, 0.001), level=logging.WARNING):
        error_of(producer.commit_transaction, LIMIT_S)
    producer.abort_transaction(LIMIT_S)


def test_while_metadata_are_taken_in(connect: Connect, make_cluster: Any, run: Runner) -> None:
    cluster: MockCluster = make_cluster(topics={"t": 1})
    client = connect(cluster)
    producer = client.get_producer()
    with beside(run, "gkafka.core.metadata", client.cluster.wake):
        producer.produce("made", b"0").result(LIMIT_S)


def test_a_line_is_written_by_one_worker_alone() -> None:
    from gkafka.logs import LaterLines, get_logger

    lines, logger = LaterLines(), get_logger("gkafka.test")
    told: list[str] = []

    class Again(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            lines.write()

    handler = Again()
    logger.addHandler(handler)
    try:
        for n in range(3):
            lines.add(logger, logging.ERROR, "line %d", n)
        lines.write()
    finally:
        logger.removeHandler(handler)
    assert told == ["line 0", "line 1", "line 2"]
