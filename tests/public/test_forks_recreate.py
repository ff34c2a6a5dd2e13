"""on_fork="recreate": a producer goes on in a forked child, with nothing of its parent's; and every call tells without hooks, too (B60)."""

from __future__ import annotations

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ConfigurationError
from tests.public.aids import error_of
from tests.public.forking import script

WAYS = [("threading", False), ("gevent", False), ("gevent", True)]
VARIANTS = pytest.mark.parametrize(("handler", "patched"), WAYS)


def also_without_hooks(*ways: tuple[str, bool]) -> pytest.MarkDecorator:
    """All variants with hooks, these without; the others without are thorough."""
    without = [pytest.param(*way, False, marks=() if way in ways else pytest.mark.thorough) for way in WAYS]
    return pytest.mark.parametrize(("handler", "patched", "hooks"), [*((*way, True) for way in WAYS), *without])


RECREATE = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=60_000, on_fork="recreate")
    called = []
    for i in range(50):
        producer.produce("t", b"parent %d" % i)
    pending = producer.produce("t", b"pending")
    pending.add_done_callback(lambda delivery: called.append(os.getpid()))
    parent = os.getpid()

    def child():
        try:
            return "told: " + str(pending.result(60))
        except ForkedClientError as exc:
            text = str(exc)
        assert pending.done() and "this one does not" in text, text
        told = pending.exception(0)
        assert (told.persisted, told.record.value) == ("maybe", b"pending"), "the parent may well deliver it"
        deliveries = [producer.produce("t", b"child %d" % i) for i in range(50)]
        producer.flush(60)
        assert [d.result(0).offset for d in deliveries] == list(range(50)), deliveries
        assert producer.stats()["delivered_records"] == 50
        assert client.handler is not producer.handler
        assert not called
        mine = producer.stats()["producer_id"]
        producer.close(60)
        assert not [w for w in producer.handler.workers() if w.is_alive()]
        return "child fine %d" % mine

    answer = in_child(child)
    assert answer.startswith("child fine"), answer
    assert [r.value for r in cluster.log("t", 0)] == [b"child %d" % i for i in range(50)]
    producer.flush(60)
    assert pending.result(60).offset == 100
    assert answer.split()[-1] != str(producer.stats()["producer_id"])
    values = [r.value for r in cluster.log("t", 0)]
    assert values[50:] == [b"parent %d" % i for i in range(50)] + [b"pending"], values[50:]
    client.close()
    cluster.close()
    assert called == [parent]
    print("parent fine")
"""


@also_without_hooks(("threading", False), ("gevent", True))
def test_a_child_goes_on_with_a_producer_id_of_its_own_and_leaves_the_parents_records(handler: str, patched: bool, hooks: bool) -> None:
    assert script(RECREATE, handler, patched, hooks=hooks) == ["parent fine"]


@VARIANTS
def test_pykafkas_producer_goes_on_too(handler: str, patched: bool) -> None:
    body = """
    cluster = MockCluster(topics={"t": 2})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.topics["t"].get_producer(linger_ms=60_000, on_fork="recreate", max_queued_messages=10, block_on_queue_full=False)
    for i in range(9):
        producer.produce(b"parent")

    def child():
        assert producer.pending == 0
        for i in range(9):
            producer.produce(b"child")
        assert producer.pending == 9  # with ten the queue is full, and they go at once
        producer.stop()
        return "fine"

    print(in_child(child))
    producer.stop()
    print(sorted([r.value for p in (0, 1) for r in cluster.log("t", p)]) == [b"child"] * 9 + [b"parent"] * 9)
    client.close()
    cluster.close()
"""
    assert script(body, handler, patched) == ["fine", "True"]


def test_a_child_that_was_patched_after_the_fork_goes_on_with_greenlets() -> None:
    """gunicorn -k gevent --preload: the master has threads, its workers patch themselves."""
    body = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(on_fork="recreate", linger_ms=60_000)
    producer.produce("t", b"0").result(60)

    def child():
        from gevent import monkey
        monkey.patch_all()
        offset = producer.produce("t", b"1").result(60).offset
        producer.close(60)
        return f"{offset} {producer.handler.name}"

    print(in_child(child))
    print(client.handler.name)
    client.close()
    cluster.close()
"""
    assert script(body, "auto", alone=True) == ["1 gevent", "threading"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_grandchild_goes_on_as_well(handler: str) -> None:
    body = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(on_fork="recreate", linger_ms=0)
    producer.produce("t", b"0").result(60)

    def grandchild():
        return str(producer.produce("t", b"2").result(60).offset)

    def child():
        offset = producer.produce("t", b"1").result(60).offset
        told = in_child(grandchild)
        return f"{offset} {told} {producer.produce('t', b'3').result(60).offset}"

    print(in_child(child))
    print(producer.produce("t", b"4").result(60).offset)
    client.close()
    cluster.close()
"""
    assert script(body, handler) == ["1 2 3", "4"]


def test_threads_of_a_child_that_begin_at_once_share_one_producer() -> None:
    body = """
    import threading
    import gkafka.nativeproducer as module
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler="threading")
    producer = client.get_producer(on_fork="recreate", linger_ms=1)
    producer.produce("t", b"0").result(60)
    driver = module.ProducerDriver

    def in_no_hurry(*args, **about):
        time.sleep(0.2)
        return driver(*args, **about)

    def child():
        module.ProducerDriver = in_no_hurry  # nobody goes ahead with a producer that is half made
        errors = []
        start = threading.Barrier(8)

        def work():
            try:
                start.wait(60)
                for _ in range(100):
                    producer.produce("t", b"child")
            except BaseException as exc:
                errors.append(repr(exc))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.close(60)
        return f"{errors} {producer.generation}"

    print(in_child(child))
    print(len(cluster.log("t", 0)))
    client.close()
    cluster.close()
"""
    assert script(body, "threading") == ["[] 2", "801"]


def test_a_producer_that_was_closed_before_the_fork_stays_closed() -> None:
    body = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler="threading")
    producer = client.get_producer(on_fork="recreate")
    producer.close()

    def child():
        try:
            producer.produce("t", b"v")
        except KafkaException as exc:
            return type(exc).__name__

    print(in_child(child))
    client.close()
    cluster.close()
"""
    assert script(body, "threading") == ["ForkedClientError"]


CALLS = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=60_000)
    documented = client.topics["t"].get_producer(linger_ms=60_000, delivery_reports=True)
    sync = client.topics["t"].get_sync_producer()
    plain = client.topics["t"].get_producer(linger_ms=60_000)
    sync.produce(b"s")
    for i in range(200):
        producer.produce("t", b"v")
        plain.produce(b"p")
    pending = producer.produce("t", b"pending")
    documented.produce(b"d")

    def child():
        told = untold({
            "produce": lambda: producer.produce("t", b"child"),
            "flush": lambda: producer.flush(60),
            "stats": lambda: producer.stats(),
            "client.stats": lambda: client.stats(),
            "done": lambda: pending.done(),
            "result": lambda: pending.result(60),
            "exception": lambda: pending.exception(60),
            "callback": lambda: pending.add_done_callback(print),
            "plain": lambda: plain.produce(b"child"),
            "sync": lambda: sync.produce(b"child"),
            "documented": lambda: documented.produce(b"child"),
            "pending": lambda: documented.pending,
            "report": lambda: documented.get_delivery_report(timeout=5),
            "wait_all": lambda: plain._wait_all(),
            "stop": lambda: plain.stop(),
            "close": lambda: producer.close(60),
        })
        return "; ".join(told) or "all told"

    print(in_child(child))
    producer.flush(60)
    plain.stop()
    documented.stop()
    print(len(cluster.log("t", 0)), pending.done())
    client.close()
    cluster.close()
"""


@also_without_hooks(("gevent", False))
def test_every_call_of_producers_and_deliveries_tells_a_child(handler: str, patched: bool, hooks: bool) -> None:
    assert script(CALLS, handler, patched, hooks=hooks) == ["all told", "403 True"]


def test_on_fork_is_one_of_two(client: KafkaClient) -> None:
    error = error_of(client.get_producer, on_fork="again")
    assert isinstance(error, ConfigurationError)
    assert "on_fork='again'" in str(error)


def test_a_transactional_producer_cannot_go_on_in_a_child(client: KafkaClient) -> None:
    error = error_of(client.get_producer, on_fork="recreate", transactional_id="orders")
    assert isinstance(error, ConfigurationError)
    assert "would fence its parent" in str(error)


@pytest.mark.parametrize("handler", ["threading", "gevent"])
@pytest.mark.parametrize("where", ["gkafka.cluster.Cluster.adopt", "gkafka.lifetime.disown"])
def test_a_renewal_that_was_interrupted_goes_on_with_the_next_call(handler: str, where: str) -> None:
    """What is disowned is the parent's, not what the first try made."""
    body = f"""
    from unittest import mock
    import gkafka.cluster, gkafka.lifetime

    cluster = MockCluster(topics={{"t": 1}})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=60_000, on_fork="recreate")
    pending = producer.produce("t", b"parent")

    def child():
        lock = producer._renewal.held[1]
        if hasattr(lock, "_at_fork_reinit"):
            lock.acquire()  # by a thread of the parent's, which is not here
        try:
            with mock.patch({where!r}, side_effect=KeyboardInterrupt):
                producer.produce("t", b"interrupted")
        except KeyboardInterrupt:
            offset = producer.produce("t", b"child").result(60).offset
        assert pending.done()
        producer.close(60)
        return f"{{offset}} {{type(pending.exception(0)).__name__}}"

    print(in_child(child))
    producer.flush(60)
    print(pending.result(60).offset)
    client.close()
    cluster.close()
"""
    assert script(body, handler) == ["0 ForkedClientError", "1"]
