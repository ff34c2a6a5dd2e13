"""close() and stop() in a signal handler, whatever that has interrupted: what was accepted is sent, and the handler's own exception ends the program."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ProducerStoppedException
from gkafka.testing import Error, MockCluster
from tests.kit.clock import during
from tests.public.aids import LIMIT_S, Runner, stored_values
from tests.public.programs import play, with_values

HANDLERS = pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])
ROUNDS = 4
MESSAGE_TOO_LARGE = 10
MAKE = {
    "native": ("client.get_producer(linger_ms=5)", "producer.produce('t', value)", "producer.flush()", "producer.close()"),
    "client": ("client.get_producer(linger_ms=5)", "producer.produce('t', value)", "producer.flush()", "client.close()"),
    "pykafka": ("client.topics['t'].get_producer(linger_ms=5)", "producer.produce(value)", "producer.flush()", "producer.stop()"),
    "kafka": (
        "KafkaProducer(bootstrap_servers=BOOTSTRAP, handler=HANDLER)",
        "producer.send('t', value)",
        "producer.flush()",
        "producer.close()",
    ),
    "legacy": (
        "SimpleProducer(LegacyClient(BOOTSTRAP, handler=HANDLER), async_send=True, batch_send_every_t=1)",
        "producer.send_messages('t', value)",
        "0",
        "producer.stop()",
    ),
}
"""What a program writes: how it makes a producer, produces, flushes and ends it."""
PROGRAM = """
from gkafka import KafkaClient
from gkafka.kafka import KafkaProducer
from gkafka.kafka.legacy import KafkaClient as LegacyClient, SimpleProducer

client = KafkaClient(BOOTSTRAP, handler=HANDLER)
producer = %s
count, sleep = 0, gevent.sleep if HANDLER == "gevent" else time.sleep

def end(*_):
    %s
    sys.exit(0)

signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, AFTER_S)
try:
    while True:
        value = b"%%d" %% count
        %s
        count += 1
        if WHERE == "flush" and count %% 10 == 0:
            %s
        elif WHERE == "own code":
            sleep(0.005)
finally:
    print(count, flush=True)
"""


def end_in_handler(cluster: MockCluster, skin: str, where: str, handler: str, patched: bool, after_s: float) -> None:
    make, produce, flush, end = MAKE[skin]
    program = PROGRAM % (make, end, produce, flush)
    values = {"BOOTSTRAP": cluster.bootstrap, "HANDLER": handler, "WHERE": where, "AFTER_S": after_s}
    done = play(with_values(program, **values), patched=patched)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    count = int(done.stdout)
    found = stored_values(cluster)
    if skin not in ("native", "client"):  # no idempotence: what was under way may be there twice
        found = list(dict.fromkeys(found))
    assert found[:count] == [b"%d" % n for n in range(count)]
    assert len(found) <= count + 1, "that of the call which was interrupted"


@HANDLERS
@pytest.mark.parametrize("where", ["produce", "flush", "own code"])
def test_a_program_that_closes_and_exits_in_its_handler_loses_nothing(make_cluster: Any, where: str, handler: str, patched: bool) -> None:
    for n in range(ROUNDS):
        end_in_handler(make_cluster(topics={"t": 1}), "native", where, handler, patched, 0.05 + n * 0.017)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("skin", [skin for skin in MAKE if skin != "native"])
def test_so_does_one_of_any_skin(make_cluster: Any, skin: str, handler: str) -> None:
    end_in_handler(make_cluster(topics={"t": 1}), skin, "produce", handler, False, 0.1)


TRANSACTION = """
from gkafka import KafkaClient
client = KafkaClient(BOOTSTRAP, handler=HANDLER)
producer = client.get_producer(transactional_id="x")

def end(*_):
    producer.close()
    sys.exit(0)

signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, AFTER_S)
count = 0
try:
    while True:
        with producer.transaction():
            for n in range(10):
                producer.produce("t", b"%d" % (10 * count + n))
        count += 1
finally:
    print(count, flush=True)
"""


@HANDLERS
def test_a_transaction_that_was_interrupted_is_ended_before_the_program(make_cluster: Any, handler: str, patched: bool) -> None:
    for n in range(ROUNDS):
        cluster = make_cluster(topics={"t": 1})
        done = play(with_values(TRANSACTION, BOOTSTRAP=cluster.bootstrap, HANDLER=handler, AFTER_S=0.1 + n * 0.013), patched=patched)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        with KafkaClient(cluster.bootstrap, handler="threading") as client:
            consumer: Any = client.get_consumer(isolation_level="read_committed")
            consumer.assign({("t", 0): 0})
            found: list[bytes] = []
            count = int(done.stdout)
            for _ in during(LIMIT_S, pause=0):
                found += [message.value for message in consumer.consume_batch(1000, 100)]
                if len(found) >= 10 * count and consumer.lag()["t", 0] == 0:
                    break
            consumer.stop()
        assert found in ([b"%d" % n for n in range(10 * count)], [b"%d" % n for n in range(10 * count + 10)])


@pytest.fixture
def on_alarm() -> Iterator[Callable[[Callable[[], object]], list[object]]]:
    """on_alarm(call): SIGALRM's handler makes the call; a list that gets what it returned or raised."""
    before = signal.getsignal(signal.SIGALRM)

    def install(call: Callable[[], object]) -> list[object]:
        outcomes: list[object] = []

        def handle(*_: object) -> None:
            try:
                outcomes.append(call())
            except Exception as error:
                outcomes.append(error)

        signal.signal(signal.SIGALRM, handle)
        return outcomes

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def ends(producer: Any, run: Runner) -> bool:
    """Does it end, with nothing left, in its time?"""
    for _ in during(LIMIT_S, pause=0):
        if producer.closed and not producer.stats()["unsettled_records"]:
            return True
        run.sleep(0.01)
    return False


def test_a_close_in_the_middle_of_a_produce_returns_at_once_and_is_carried_out(
    connect: Any, make_cluster: Any, run: Runner, on_alarm: Any
) -> None:
    cluster = make_cluster(topics={"t": 1})

    def partitioner(partitions: list[int], key: object) -> int:
        if producer.stats()["unsettled_records"] == 10:
            signal.raise_signal(signal.SIGALRM)
        return partitions[0]

    producer: Any = connect(cluster).get_producer(linger_ms=60_000, partitioner=partitioner)
    outcomes = on_alarm(producer.close)
    for n in range(11):
        with contextlib.suppress(ProducerStoppedException):
            producer.produce("t", b"%d" % n)
    assert outcomes == [None]
    assert ends(producer, run)
    assert stored_values(cluster) in ([b"%d" % n for n in range(count)] for count in (10, 11))


def test_so_does_one_that_finds_a_lock_held_by_whom_it_interrupted(connect: Any, make_cluster: Any, run: Runner, on_alarm: Any) -> None:
    cluster = make_cluster(topics={"t": 1})
    producer: Any = connect(cluster).get_producer(linger_ms=60_000)
    for n in range(10):
        producer.produce("t", b"%d" % n)
    outcomes = on_alarm(producer.close)
    with producer.making:
        signal.raise_signal(signal.SIGALRM)
    assert outcomes == [None]
    assert ends(producer, run)
    assert stored_values(cluster) == [b"%d" % n for n in range(10)]


def test_what_a_close_in_a_handler_cannot_deliver_is_logged(
    connect: Any, make_cluster: Any, run: Runner, on_alarm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(topics={"t": 1})
    producer: Any = connect(cluster).get_producer(linger_ms=60_000)
    cluster.on("Produce", Error(MESSAGE_TOO_LARGE), times=10)
    producer.produce("t", b"refused")
    outcomes = on_alarm(producer.close)
    with producer.making:
        signal.raise_signal(signal.SIGALRM)
    assert outcomes == [None]
    assert ends(producer, run)
    for _ in during(LIMIT_S, pause=0):
        if "NativeProducer.close(), which a signal handler has called, failed" in caplog.text:
            return
        run.sleep(0.01)
    pytest.fail(caplog.text)


def test_another_clients_call_ends_what_it_ends_before_it_returns(connect: Any, make_cluster: Any, run: Runner, on_alarm: Any) -> None:
    """The handler came into no call of that client."""
    cluster = make_cluster(topics={"t": 1})
    other: Any = connect(cluster).get_producer(linger_ms=60_000)
    other.produce("t", b"1").add_done_callback(lambda delivery: told.append(delivery.result(0).offset))
    told: list[int] = []

    def partitioner(partitions: list[int], key: object) -> int:
        signal.raise_signal(signal.SIGALRM)
        return partitions[0]

    outcomes = on_alarm(lambda: (other.close(LIMIT_S), list(told)))
    connect(cluster).get_producer(partitioner=partitioner).produce("t", b"2").result(LIMIT_S)
    assert outcomes == [(None, [0])]


CONSUMERS = {
    "group": ("client.get_consumer('t', 'g', auto_offset_reset='earliest')", "consumer.consume(60_000)", "consumer.stop()"),
    "client": ("client.get_consumer('t', 'g', auto_offset_reset='earliest')", "consumer.consume(60_000)", "client.close()"),
    "managed": ("client.topics['t'].get_balanced_consumer('g', managed=True)", "consumer.consume()", "consumer.stop()"),
    "kafka": (
        "KafkaConsumer('t', group_id='g', bootstrap_servers=BOOTSTRAP, handler=HANDLER, auto_offset_reset='earliest')",
        "next(consumer)",
        "consumer.close()",
    ),
}
CONSUME = """
from gkafka import KafkaClient
from gkafka.kafka import KafkaConsumer

client = KafkaClient(BOOTSTRAP, handler=HANDLER)
consumer = %s

def end(*_):
    %s
    sys.exit(0)

signal.signal(signal.SIGALRM, end)
%s
print("read", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.1)
while True:
    %s
"""


@HANDLERS
@pytest.mark.parametrize("kind", CONSUMERS)
def test_a_consumer_that_is_stopped_in_the_middle_of_a_call_leaves_its_group(
    make_cluster: Any, kind: str, handler: str, patched: bool
) -> None:
    cluster = make_cluster(topics={"t": 1})
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        producer.produce("t", b"1").result(LIMIT_S)
    make, consume, end = CONSUMERS[kind]
    program = CONSUME % (make, end, consume, consume)
    done = play(with_values(program, BOOTSTRAP=cluster.bootstrap, HANDLER=handler), patched=patched)
    assert (done.returncode, done.stdout.split(), "Traceback" in done.stderr) == (0, ["read"], False), done.stderr
    assert cluster.group("g").members == {}
