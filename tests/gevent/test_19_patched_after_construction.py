"""19: a process that is patched after its client was made says so. One that is patched after the import is LATE in tests 1 to 5 and 8."""

from __future__ import annotations

import textwrap

import pytest

from gkafka.testing import MockCluster
from tests.effort import one_of
from tests.handlers.hub import run_script


def test_19_a_client_of_threads_refuses_to_work_once_the_process_is_patched() -> None:
    out = run_script(
        """
        from gkafka import KafkaClient
        from gkafka.exceptions import ConfigurationError
        from gkafka.testing import MockCluster
        cluster = MockCluster(1, {"t": 1})
        client = KafkaClient(cluster.bootstrap)
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        calls = {
            "partitions": lambda: client.partitions("t"),
            "produce": lambda: client.get_producer().produce("t", b"x"),
            "consume": lambda: client.get_consumer("t"),
            "connect": client.connect,
        }
        for name, call in calls.items():
            try:
                call()
            except ConfigurationError as error:
                print(name, "monkey-patch before the client is made" in str(error))
        """,
        python=(),
    )
    assert out.splitlines() == ["partitions True", "produce True", "consume True", "connect True"]


def test_19_a_client_of_greenlets_does_not_mind() -> None:
    out = run_script(
        """
        from gkafka import KafkaClient
        from gkafka.testing import MockCluster
        cluster = MockCluster(1, {"t": 1})
        client = KafkaClient(cluster.bootstrap, handler="gevent")
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        print(client.get_producer().produce("t", b"x").result(60).offset)
        client.close()
        """,
        python=(),
    )
    assert out == "0"


USED = """
    import time
    from tests.kit.clock import now
    from gkafka import KafkaClient
    from gkafka.exceptions import ConfigurationError
    client = KafkaClient({bootstrap!r}, handler="threading")
    producer = client.get_producer(linger_ms=600_000, delivery_timeout_ms=1_200_000)
    producer.produce("u", b"before").add_done_callback(lambda delivery: None)
    producer.flush(60)
    waits = [producer.produce("u", b"waits %d" % i) for i in range(100)]
    topic = client.topics["u"]
    skin = topic.get_producer(linger_ms=600_000, delivery_timeout_ms=1_200_000)
    skin.produce(b"skin")
    consumer = client.get_consumer("u", group="g")
    assert consumer.consume(60_000).value == b"before"
    simple = topic.get_simple_consumer(b"s")
    managed = topic.get_balanced_consumer(b"m", managed=True)
    assert simple.consume().value == managed.consume().value == b"before"
    transactional = client.get_producer(transactional_id="x")
    with transactional.transaction():
        transactional.produce("u", b"in a transaction")
    from gkafka.kafka import KafkaConsumer, KafkaProducer
    theirs = KafkaProducer(bootstrap_servers={bootstrap!r}, linger_ms=600_000, delivery_timeout_ms=1_200_000)
    future = theirs.send("u", b"theirs")
    reader = KafkaConsumer("u", bootstrap_servers={bootstrap!r}, auto_offset_reset="earliest", group_id="k", max_poll_records=1)
    assert reader.poll(60_000)
    time.sleep({rest})
    from gevent import monkey; monkey.{patch}
    """
CALLS = """
    calls = {
        "result": lambda: waits[-1].result(300),
        "flush": lambda: producer.flush(300),
        "consume": lambda: [consumer.consume(300_000) for _ in range(9)],
        "seek": lambda: consumer.seek(("u", 0), 0),
        "commit": consumer.commit,
        "committed": lambda: consumer.committed(("u", 0)),
        "transaction": lambda: transactional.transaction().__enter__(),
        "simple": lambda: [simple.consume() for _ in range(9)],
        "fetch_offsets": simple.fetch_offsets,
        "managed": lambda: [managed.consume() for _ in range(9)],
        "partitions": lambda: client.partitions("u"),
        "stats": client.stats,
        "topics": lambda: topic.latest_available_offsets(),
        "get_producer": client.get_producer,
        "get_consumer": lambda: client.get_consumer("u"),
        "admin": lambda: client.admin().describe_cluster(),
        "future": lambda: future.get(300),
        "their flush": lambda: theirs.flush(300),
        "poll": lambda: reader.poll(300_000),
    }
    for name, call in calls.items():
        began = now()
        try:
            print(name, "returned", call())
        except ConfigurationError as error:
            assert "monkey-patch before the client is made" in str(error), error
        assert now() - began < 30, name
    """
CLOSE = """
    began = now()
    for part in (reader, theirs, consumer, client):
        part.close()
    print("closed", all(wait.exception(0) is None for wait in waits), now() - began < 60, client.handler.workers())
    """
SENT = {b"before", b"in a transaction", b"skin", b"theirs", *(b"waits %d" % i for i in range(100))}


@pytest.mark.parametrize(
    ("patch", "rest"),
    [
        ("patch_all()", 2.5),
        ("patch_socket()", 0),
        ("patch_thread()", 0),
        *(
            pytest.param(*other, marks=pytest.mark.thorough)
            for other in [("patch_all()", 0), ("patch_socket()", 2.5), ("patch_thread()", 2.5)]
        ),
    ],
)
def test_19_a_client_of_threads_that_was_used_before_refuses_each_call_and_close_delivers(
    cluster: MockCluster, patch: str, rest: float
) -> None:
    cluster.create_topic("u", 1)
    script = (
        textwrap.dedent(USED.format(bootstrap=cluster.bootstrap, patch=patch, rest=rest)) + textwrap.dedent(CALLS) + textwrap.dedent(CLOSE)
    )
    assert run_script(script, python=(), timeout=90) == "closed True True []"
    assert {record.value for record in cluster.log("u", 0)} == SENT


@pytest.mark.parametrize("patch", one_of("patch_all()", "patch_socket()", "patch_thread()"))
def test_19_what_it_was_given_is_sent_when_the_program_ends(cluster: MockCluster, patch: str) -> None:
    cluster.create_topic("u", 1)
    assert run_script(USED.format(bootstrap=cluster.bootstrap, patch=patch, rest=0), python=(), timeout=90) == ""
    assert {record.value for record in cluster.log("u", 0)} == SENT


FIRST_CALLBACK = """
    from tests.kit.clock import now
    from gkafka import KafkaClient
    client = KafkaClient({bootstrap!r}, handler="threading")
    producer = client.get_producer(linger_ms=600_000, delivery_timeout_ms=1_200_000)
    told = []
    waits = [producer.produce("u", b"%d" % i) for i in range(50)]
    for wait in waits:
        wait.add_done_callback(told.append)
    import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
    began = now()
    """


def test_19_the_first_delivery_callbacks_are_called_by_who_closes(cluster: MockCluster) -> None:
    """No worker can be started for them any more."""
    cluster.create_topic("u", 1)
    script = textwrap.dedent(FIRST_CALLBACK.format(bootstrap=cluster.bootstrap))
    assert run_script(script + "client.close(120)\nprint(told == waits, now() - began < 60)", python=(), timeout=90) == "True True"


def test_19_or_by_the_end_of_the_program(cluster: MockCluster) -> None:
    cluster.create_topic("u", 1)
    script = textwrap.dedent(FIRST_CALLBACK.format(bootstrap=cluster.bootstrap))
    assert run_script(script.replace("told.append", "lambda delivery: print(delivery.index)"), python=(), timeout=90).split() == [
        str(i) for i in range(50)
    ]
