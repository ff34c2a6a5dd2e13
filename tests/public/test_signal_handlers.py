"""A signal handler that calls the client: it gets what it asked for, or an error that says what to do instead, but it never waits for ever."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException, ReentrantCallError
from gkafka.testing import MockCluster
from tests.kit.clock import during
from tests.public.aids import LIMIT_S, Runner, stored

PARTITIONS = 4
SHOTS = 50
EVERY_S = 0.003
BRIEFLY_S = 0.2
"""Of a flush() inside a handler, below which what is to be delivered cannot go on."""

Calls = dict[str, Callable[[], object]]


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[], object]], list[BaseException | None]]]:
    """handle(call): SIGALRM's handler makes the call; a list of how each of its calls ended, which grows."""
    before = signal.getsignal(signal.SIGALRM)

    def install(call: Callable[[], object]) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        inside: list[None] = []

        def on_signal(*_: object) -> None:
            if inside:
                return
            inside.append(None)
            try:
                call()
                outcomes.append(None)
            except Exception as error:
                outcomes.append(error)
            finally:
                inside.clear()

        signal.signal(signal.SIGALRM, on_signal)
        return outcomes

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Parts:
    """A producer, a consumer, and what a handler may call of them."""

    def __init__(self, client: KafkaClient, cluster: MockCluster) -> None:
        self.cluster = cluster
        self.producer: Any = client.get_producer()
        self.producer.produce("t", b"first", partition=0).result(LIMIT_S)
        self.consumer: Any = client.get_consumer()
        self.consumer.assign({("t", p): 0 for p in range(PARTITIONS)})
        self.calls: Calls = {
            "flush": lambda: self.producer.flush(BRIEFLY_S),
            "produce": lambda: self.producer.produce("t", b"of the handler", partition=3),
            "stats": self.producer.stats,
            "pause": lambda: (self.consumer.pause([("t", 2)]), self.consumer.resume([("t", 2)])),
        }
        self.locks = {
            "flush": self.producer._driver.lock,
            "produce": self.producer.making,
            "pause": self.consumer._engine._lock,
        }


@pytest.fixture
def parts(connect: Any, make_cluster: Any, run: Runner) -> Iterator[Parts]:
    if not run.gevent and run.name != "threading":
        pytest.skip("signals come to the main thread")
    cluster = make_cluster(topics={"t": PARTITIONS})
    made = Parts(connect(cluster), cluster)
    yield made
    made.consumer.stop()


@pytest.mark.parametrize("what", ["flush", "produce", "pause"])
def test_a_call_that_would_wait_for_what_it_interrupted_says_what_to_do_instead(what: str, parts: Parts, handle: Any) -> None:
    outcomes = handle(parts.calls[what])
    with parts.locks[what]:
        signal.raise_signal(signal.SIGALRM)
    (error,) = outcomes
    assert isinstance(error, ReentrantCallError)
    for word in ("signal handler", "flag", "Event", "gevent.signal_handler()"):
        assert word in str(error)
    parts.calls[what]()
    parts.producer.produce("t", b"after").result(LIMIT_S)


@pytest.mark.parametrize("what", ["flush", "produce", "stats", "pause"])
def test_a_handler_that_calls_the_client_at_any_moment_ends_and_harms_nothing(what: str, parts: Parts, handle: Any, run: Runner) -> None:
    outcomes = handle(parts.calls[what])
    accepted = 0
    signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
    try:
        for _ in during(LIMIT_S, pause=0):
            if len(outcomes) >= SHOTS:
                break
            for _ in range(20):
                parts.producer.produce("t", b"%d" % accepted, partition=accepted % PARTITIONS)
                accepted += 1
            parts.producer.stats()
            parts.consumer.consume_batch(100, 1)
            parts.consumer.pause([("t", 1)])
            parts.consumer.resume([("t", 1)])
            run.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    parts.producer.flush(LIMIT_S)
    assert len(outcomes) >= SHOTS
    assert not [error for error in outcomes if error is not None and not isinstance(error, KafkaException)]

    counts = Counter(r.value for r in stored(parts.cluster, partitions=range(PARTITIONS)) if r.value not in (b"first", b"of the handler"))
    assert counts == Counter(b"%d" % n for n in range(accepted))


@pytest.mark.parametrize("what", ["client", "group", "managed", "simple", "producer", "flush", "committed"])
def test_what_would_wait_in_the_loop_of_an_idle_hub_is_refused_and_nothing_has_begun(make_cluster: Any, what: str) -> None:
    """The hub calls the handler itself there. What ends things had ended half of them by the time it could not wait."""
    cluster = make_cluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    topic = client.topics["t"]
    group: Any = client.get_consumer("t", "g", auto_offset_reset="earliest")
    managed: Any = topic.get_balanced_consumer("m", managed=True, consumer_timeout_ms=60_000)
    simple: Any = topic.get_simple_consumer("s", auto_commit_enable=True, consumer_timeout_ms=60_000)
    producer: Any = client.get_producer(linger_ms=60_000)
    group.consume(300)
    producer.produce("t", b"x")
    calls: Calls = {
        "client": lambda: client.close(2),
        "group": lambda: group.stop(2),
        "managed": managed.stop,
        "simple": simple.stop,
        "producer": lambda: producer.close(2),
        "flush": lambda: producer.flush(2),
        "committed": lambda: group.committed(("t", 0)),
    }
    outcomes: list[BaseException | None] = []
    hub = gevent.get_hub()

    def handle() -> None:
        try:
            outcomes.append(calls[what]() and None)
        except Exception as error:
            outcomes.append(error)

    hub.loop.run_callback(handle)
    gevent.sleep(0.1)
    assert [type(error) for error in outcomes] == [ReentrantCallError], outcomes
    assert "gevent.signal_handler()" in str(outcomes[0])
    producer.flush(LIMIT_S)
    for consumer in (group, managed, simple):
        message = consumer.consume(LIMIT_S * 1000) if consumer is group else consumer.consume()
        assert message is not None
        assert message.value == b"x"
    client.close(LIMIT_S)
    assert [cluster.group(name).members for name in ("g", "m")] == [{}, {}]
