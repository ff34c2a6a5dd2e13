"""Forks (F22, G23): the child is told at once, whatever it calls; the parent does not notice."""

from __future__ import annotations

import pytest

from tests.public.forking import script

CALLS = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=60_000)
    topic = client.topics["t"]
    documented = topic.get_producer(linger_ms=1)
    for i in range(300):
        producer.produce("t", b"%d" % i)
    producer.flush()
    documented.produce(b"x")
    consumer = topic.get_simple_consumer(consumer_group="g")
    assert consumer.consume().value == b"0"
    reader = client.get_consumer("t", "r", auto_commit=False)
    assert reader.consume(60_000).value == b"0"
    lone = client.get_consumer("t")
    assert lone.consume(60_000).value == b"0"
    texts = client.get_consumer("t", value_deserializer=lambda value: value.decode())
    assert texts.consume(60_000).value == "0"
    pending = producer.produce("t", b"300")

    def child():
        told = untold({
            "produce": lambda: producer.produce("t", b"child"),
            "produce again": lambda: producer.produce("t", b"child"),
            "end a batch": lambda: producer.end_batch("t", 0),
            "flush": lambda: producer.flush(60),
            "close": lambda: producer.close(60),
            "result": lambda: pending.result(60),
            "documented": lambda: documented.produce(b"child"),
            "consume": lambda: consumer.consume(),
            "batch": lambda: consumer.consume_batch(1, 60_000),
            "commit": lambda: consumer.commit_offsets(),
            "held": lambda: consumer.held_offsets,
            "explain": lambda: consumer.explain(),
            "iterate": lambda: next(iter(reader)),
            "iterate without a group": lambda: next(iter(lone)),
            "iterate over documented": lambda: next(iter(consumer)),
            "read": lambda: reader.consume(60_000),
            "read a batch": lambda: reader.consume_batch(1, 60_000),
            "position": lambda: reader.position(("t", 0)),
            "positions": lambda: reader.positions(),
            "assignment": lambda: reader.assignment(),
            "paused": lambda: reader.paused(),
            "pause": lambda: reader.pause([("t", 0)]),
            "resume": lambda: reader.resume([("t", 0)]),
            "seek": lambda: reader.seek(("t", 0), 0),
            "lag": lambda: reader.lag(),
            "high watermark": lambda: reader.high_watermark(("t", 0)),
            "why": lambda: reader.explain(),
            "counters": lambda: reader.stats(),
            "metadata": lambda: reader.group_metadata(),
            "read commit": lambda: reader.commit(),
            "committed": lambda: reader.committed(("t", 0)),
            "times": lambda: reader.offsets_for_times({("t", 0): 0}),
            "partitions": lambda: client.partitions("t"),
            "topics": lambda: client.update_cluster(),
            "new topic": lambda: client.topics["u"],
            "list_offsets": lambda: client.list_offsets({("t", 0): -1}),
            "fetch_raw": lambda: client.fetch_raw("t", 0, 0),
            "get_producer": lambda: client.get_producer(),
            "brokers": lambda: client.brokers,
            "stats": lambda: client.stats(),
            "new consumer": lambda: topic.get_simple_consumer(),
        })
        return "; ".join(told) or "all told"

    print(in_child(child))
"""

PARENT = """
    for i in range(301, 600):
        producer.produce("t", b"%d" % i)
    producer.flush(60)
    documented.stop()
    values = [r.value for r in cluster.log("t", 0) if r.value != b"x"]
    assert values == [b"%d" % i for i in range(600)], values[:5]
    assert consumer.consume().value == b"1"
    consumer.commit_offsets()
    assert reader.consume(60_000).value == b"1"
    reader.commit()
    client.close()
    cluster.close()
    print("parent fine")
"""

ENDS = """
    from gkafka.kafka import KafkaConsumer, KafkaProducer
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer(linger_ms=1)
    topic = client.topics["t"]
    documented = topic.get_producer(linger_ms=1)
    for i in range(3):
        producer.produce("t", b"%d" % i).result(60)
    documented.produce(b"x")
    simple = topic.get_simple_consumer(consumer_group="s")
    balanced = topic.get_balanced_consumer(consumer_group="b", managed=True)
    reader = client.get_consumer("t", "r", auto_commit=False)
    theirs = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=HANDLER, group_id="k", auto_offset_reset="earliest")
    sender = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler=HANDLER)
    assert simple.consume().value == balanced.consume().value == reader.consume(60_000).value == b"0"
    assert theirs.poll(60_000, max_records=1)
    sender.send("t", b"y").get(60)
    ends = {
        "Client.close": client.close, "Producer.close": producer.close, "Consumer.close": reader.close, "Consumer.stop": reader.stop,
        "SimpleConsumer.stop": simple.stop, "BalancedConsumer.stop": balanced.stop, "topic's Producer.stop": documented.stop,
        "KafkaConsumer.close": theirs.close, "KafkaProducer.close": sender.close,
    }

    def ending(name):
        begun = now()
        try:
            ends[name]()
            told = "ends here only"
        except ForkedClientError:
            told = "refused"
        return told if now() - begun < 30 else "late"

    for name in ends:
        print(f"{name}: {in_child(lambda: ending(name))}")
    before = cluster.connections()
    producer.produce("t", b"z").result(60)
    sender.send("t", b"z").get(60)
    documented.produce(b"z")
    assert simple.consume().value == balanced.consume().value == reader.consume(60_000).value == b"1"
    simple.commit_offsets()
    balanced.commit_offsets()
    reader.commit()
    theirs.commit()
    assert cluster.connections() == before
    theirs.close()
    sender.close()
    client.close()
    cluster.close()
    print("parent fine")
"""

RAW = """
    from tests.handlers.rawfork import fork_without_hooks
    from gkafka.kafka import KafkaConsumer
    cluster = MockCluster(topics={"t": 1})
    options = {"auto_offset_reset": "earliest"}
    client, other = (KafkaClient(cluster.bootstrap, handler=HANDLER) for _ in range(2))
    with client.get_producer() as producer:
        producer.produce("t", b"1")
    simple = client.topics["t"].get_simple_consumer("s", auto_commit_enable=True, consumer_timeout_ms=60_000)
    member, inside = client.get_consumer("t", "m", **options), other.get_consumer("t", "c", **options)
    assigned = client.get_consumer(None, "a", **options)
    assigned.assign([("t", 0)])
    theirs = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, handler=HANDLER, group_id="k", **options)
    assert theirs.poll(60_000) and simple.consume() and all(one.consume(60_000) for one in (member, inside, assigned))
    time.sleep(0.3)  # each worker waits for what to do
    ends = {
        "SimpleConsumer.stop": simple.stop, "Consumer.stop": member.stop, "assigned": assigned.stop, "Client.close": other.close,
        "KafkaConsumer.close": theirs.close,
    }
    r, w = os.pipe()
    pid = fork_without_hooks()
    if pid == 0:
        for name, end in ends.items():
            begun = now()
            try:
                told = f"returned {end()}"
            except BaseException as exc:
                told = repr(exc)
            os.write(w, f"{name}: {told}{'' if now() - begun < 30 else ', late'}\\n".encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as lines:
        print(lines.read(), end="")
    os.waitpid(pid, 0)
    for one in (simple, member, inside, assigned):
        one.stop()
    theirs.close()
    print(*(cluster.group(group).members for group in "mck"))
    client.close()
    other.close()
    cluster.close()
"""


CONSUMERS = """
    import gkafka.kafka as kafka

    cluster = MockCluster(topics={"t": 2})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    with client.get_producer() as producer:
        producer.produce("t", b"1")
    topic, here, tp = client.topics["t"], ("t", 0), kafka.TopicPartition("t", 0)
    native = client.get_consumer("t", "native", auto_commit=False)
    simple = topic.get_simple_consumer("simple", consumer_timeout_ms=60_000)
    managed = topic.get_balanced_consumer("managed", managed=True, consumer_timeout_ms=60_000)
    there = {"bootstrap_servers": cluster.bootstrap, "handler": HANDLER}
    other = kafka.KafkaConsumer("t", group_id="other", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **there)
    sender = kafka.KafkaProducer(**there)
    sender.send("t", b"2").get(60)
    for consumer in (native, simple, managed):
        assert consumer.consume() is not None
    next(other)

    def child():
        told = untold({
            "connect": lambda: client.connect(),
            "client.partitions": lambda: client.partitions("t"),
            "admin": lambda: client.admin(),
            "native.assignment": lambda: native.assignment(),
            "native.position": lambda: native.position(here),
            "native.positions": lambda: native.positions(),
            "native.seek": lambda: native.seek(here, 0),
            "native.pause": lambda: native.pause([here]),
            "native.resume": lambda: native.resume([here]),
            "native.paused": lambda: native.paused(),
            "native.lag": lambda: native.lag(),
            "native.explain": lambda: native.explain(),
            "native.stats": lambda: native.stats(),
            "native.group_metadata": lambda: native.group_metadata(),
            "native.committed": lambda: native.committed(here),
            "native.commit": lambda: native.commit(),
            "native.offsets_for_times": lambda: native.offsets_for_times({here: 0}),
            "native.consume": lambda: native.consume(),
            "native iteration": lambda: next(iter(native)),
            "simple.partitions": lambda: simple.partitions,
            "simple.held_offsets": lambda: simple.held_offsets,
            "simple.explain": lambda: simple.explain(),
            "simple.fetch_offsets": lambda: simple.fetch_offsets(),
            "simple.commit_offsets": lambda: simple.commit_offsets(),
            "simple.reset_offsets": lambda: simple.reset_offsets(),
            "simple iteration": lambda: next(iter(simple)),
            "managed.partitions": lambda: managed.partitions,
            "managed.held_offsets": lambda: managed.held_offsets,
            "managed.explain": lambda: managed.explain(),
            "managed.stats": lambda: managed.stats(),
            "managed.commit_offsets": lambda: managed.commit_offsets(),
            "managed.reset_offsets": lambda: managed.reset_offsets(),
            "managed.consume": lambda: managed.consume(),
            "other.assignment": lambda: other.assignment(),
            "other.position": lambda: other.position(tp),
            "other.seek": lambda: other.seek(tp, 0),
            "other.pause": lambda: other.pause(tp),
            "other.paused": lambda: other.paused(),
            "other.commit": lambda: other.commit(),
            "other.committed": lambda: other.committed(tp),
            "other.end_offsets": lambda: other.end_offsets([tp]),
            "other.poll": lambda: other.poll(),
            "other iteration": lambda: next(other),
            "sender.send": lambda: sender.send("t", b"child"),
            "sender.flush": lambda: sender.flush(),
            "sender.partitions_for": lambda: sender.partitions_for("t"),
        })
        for mine in (native, simple, other):  # what a child ends is its own
            begun = now()
            mine.close() if mine is other else mine.stop()
            if now() - begun > 30:
                told.append(f"{mine}: stopped late")
        return "; ".join(told) or "all told"

    print(in_child(child))
    native.commit()
    simple.commit_offsets()
    managed.commit_offsets()
    other.commit()
    print(sender.send("t", b"3").get(60).topic)
    for consumer in (native, simple, managed, other):
        consumer.close() if consumer is other else consumer.stop()
    sender.close()
"""

# -- a child of its own ----------------------------------------------------------------------------------------------------
BEGIN = """
    cluster = MockCluster(topics={"t": 1})
    client = KafkaClient(cluster.bootstrap, handler=HANDLER)
    producer = client.get_producer()
    producer.produce("t", b"parent").result(60)
"""

OWN = """
    def child():
        with KafkaClient(cluster.bootstrap, handler=HANDLER) as mine, mine.get_producer() as producer:
            return str(producer.produce("t", b"child").result(60).offset)

    print(in_child(child))
    print([r.value for r in cluster.log("t", 0)])
"""

QUIET = """
    before = cluster.connections()
    pid = os.fork()
    if pid == 0:
        import gc
        del producer, client
        gc.collect()
        sys.exit(0)
    begun = now()
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert now() - begun < 30
    producer.produce("t", b"1").result(60)
    assert cluster.connections() == before
    print("fine")
"""

UNDER_WAY = """
    import logging
    consumer = client.get_consumer("t", "g", auto_commit=False)
    assert consumer.consume(60_000).value == b"parent"
    consumer.commit()
    idle = client.get_consumer(group="other", auto_commit=False)
    idle.commit()
    held = Held()
    cluster.on("Produce", held)
    pending = [producer.produce("t", b"%d" % i) for i in range(10)]
    while not held.holds:
        client.handler.sleep(0.01)

    def child():
        said = []
        class Heard(logging.Handler):
            def emit(self, record):
                said.append(record.getMessage())
        logging.getLogger("gkafka").addHandler(Heard(logging.WARNING))
        def refused(call):
            try:
                call()
            except ForkedClientError:
                return
            said.append("not refused")
        refused(consumer.commit)
        refused(idle.commit)
        client.handler.sleep(2.5)
        refused(lambda: pending[0].result(60))
        return str(said)

    print(in_child(child))
    held.released = True
    print([delivery.result(60).offset for delivery in pending])
    consumer.stop()
    idle.stop()
"""

END = """
    client.close()
    cluster.close()
"""

UNCLOSED = """
    consumer = client.topics["t"].get_simple_consumer()
    assert consumer.consume().value == b"parent"
    print("end")
"""


@pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])
def test_a_child_is_told_at_once_and_the_parent_goes_on(handler: str, patched: bool) -> None:
    assert script(CALLS + PARENT, handler, patched) == ["all told", "parent fine"]


@pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])
def test_a_child_that_ends_what_is_its_parents_ends_it_for_itself_only(handler: str, patched: bool) -> None:
    """What holds records, or a membership that a program may begin again, says so; a consumer has nothing to say and is stopped in the child."""
    refused = {"Client.close", "Producer.close", "BalancedConsumer.stop", "topic's Producer.stop", "KafkaProducer.close"}
    here_only = {"Consumer.close", "Consumer.stop", "SimpleConsumer.stop", "KafkaConsumer.close"}
    expected = {f"{name}: refused" for name in refused} | {f"{name}: ends here only" for name in here_only}
    assert {*script(ENDS, handler, patched)} == expected | {"parent fine"}


@pytest.mark.parametrize(("handler", "patched"), [("threading", False), ("gevent", False), ("gevent", True)])
def test_a_child_is_told_by_each_call_of_each_consumer_and_stops_nothing_of_the_parents(handler: str, patched: bool) -> None:
    assert script(CONSUMERS + END, handler, patched) == ["all told", "t"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_child_that_was_forked_in_c_waits_for_no_worker_of_its_parents(handler: str) -> None:
    """As uWSGI forks: Python is not told, and takes the parent's threads for alive."""
    names = ("SimpleConsumer.stop", "Consumer.stop", "assigned", "Client.close", "KafkaConsumer.close")
    assert script(RAW, handler) == [*(f"{name}: returned None" for name in names), "{} {} {}"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_child_may_make_a_client_of_its_own(handler: str) -> None:
    assert script(BEGIN + OWN + END, handler) == ["1", "[b'parent', b'child']"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_child_that_ends_like_any_process_takes_nothing_with_it(handler: str) -> None:
    """sys.exit with finalizers and atexit hooks, objects collected: the parent's connections stay."""
    assert script(BEGIN + QUIET + END, handler) == ["fine"]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_child_says_nothing_of_what_its_parent_delivers_and_commits_nothing(handler: str) -> None:
    assert script(BEGIN + UNDER_WAY + END, handler) == ["[]", str(list(range(1, 11)))]


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_an_interpreter_that_ends_without_close_ends_soon_and_quietly(handler: str) -> None:
    """gevent acceptance 26, F23."""
    assert script(BEGIN + UNCLOSED, handler) == ["end"]
