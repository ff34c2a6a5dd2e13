"""Functions of the application's that workers call, and that end the program, or that a signal ends: with greenlets the main one gets it, once."""

from __future__ import annotations

import textwrap

import pytest

from tests.public.programs import run_program

END = """
    import os, signal, sys
    from tests.kit.clock import PATIENCE_S, now

    deadline, rounds = now() + PATIENCE_S, 10  # which are left once all has happened

    class Ended(Exception):
        pass

    def shutdown(*_):
        raise Ended

    signal.signal(signal.SIGUSR1, shutdown)
    ENDS = {
        "exit": lambda: sys.exit(3),
        "ctrl-c": lambda: signal.raise_signal(signal.SIGINT),
        "signal": lambda: os.kill(os.getpid(), signal.SIGUSR1),
        "handler": shutdown,
    }
    end = ENDS["KIND"]
"""

LISTENER = """
    import sys
    import gevent
    from gkafka import KafkaClient
    from gkafka.testing import MockCluster

    called = []

    def listener(consumer, partitions):
        called.append(len(partitions))
        end()

    cluster = MockCluster(topics={"t": 2})
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    member = client.get_consumer("t", "g", CALLED=listener, auto_offset_reset="earliest")
    with client.get_producer() as producer:
        producer.produce("t", b"v", partition=0)
    got = []

    exits = 0
    while rounds and now() < deadline:
        rounds -= bool(got and exits)
        try:
            if not got:
                got = member.consume_batch(1, 100)
            elif CALLED_AT_THE_END:
                member.stop()
            gevent.sleep(0.02)
        except (SystemExit, KeyboardInterrupt, Ended):
            exits += 1
    print(called, exits, len(got))
    client.close(60)
    print(called, "closed")
    cluster.close()
"""

COMMIT = """
    import sys
    import gevent
    from gkafka.kafka import KafkaConsumer, TopicPartition, OffsetAndMetadata
    from gkafka.testing import MockCluster

    called = []

    def callback(offsets, response):
        called.append(response)
        end()

    cluster = MockCluster(topics={"t": 1})
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False, handler="gevent")
    consumer.assign([TopicPartition("t", 0)])
    future = consumer.commit_async({TopicPartition("t", 0): OffsetAndMetadata(1, "")}, callback=callback)
    exits = 0
    while rounds and now() < deadline:
        rounds -= bool(exits and future.succeeded())
        try:
            gevent.sleep(0.02)
        except (SystemExit, KeyboardInterrupt, Ended):
            exits += 1
    print(len(called), exits, future.succeeded())
    consumer.close()
    print(len(called), "closed")
    cluster.close()
"""

ASSIGNOR = """
    import gevent
    from gkafka import KafkaClient
    from gkafka.core.assignors import ASSIGNORS
    from gkafka.testing import MockCluster

    called = []

    class Assignor:
        name, cooperative = "mine", False

        def user_data(self, *_):
            return None

        def assign(self, topics, members):
            called.append(len(members))
            end()

    cluster = MockCluster(topics={"t": 2})
    client = KafkaClient(cluster.bootstrap, handler="gevent")
    member = client.get_consumer("t", "g", assignors=[Assignor()])
    exits = troubles = 0
    while rounds and now() < deadline:
        rounds -= bool(exits and troubles and member.assignment())
        try:
            member.consume_batch(1, 20)
        except (SystemExit, KeyboardInterrupt, Ended):
            exits += 1
        except Exception as error:
            troubles += "mine" in str(error)
    print(len(called), exits, troubles, len(member.assignment()))
    client.close(60)
    print(len(called), "closed")
    cluster.close()
"""

KINDS = ["exit", "ctrl-c", "signal", "handler"]


def some_patched(*kinds: str) -> pytest.MarkDecorator:
    """Each kind once, these of them patched; otherwise they are thorough."""
    both = [(kind, patched, patched == (kind in kinds)) for patched in (False, True) for kind in KINDS]
    ways = [pytest.param(kind, patched, marks=() if quick else pytest.mark.thorough) for kind, patched, quick in both]
    return pytest.mark.parametrize(("kind", "patched"), ways)


def run(program: str, kind: str, patched: bool) -> list[str]:
    source = textwrap.dedent(END).replace("KIND", kind) + textwrap.dedent(program)
    return run_program(source, patched=patched).splitlines()


def assert_called_once(listener: str, kind: str, patched: bool) -> None:
    program = LISTENER.replace("CALLED_AT_THE_END", str(listener == "on_revoked")).replace("CALLED", listener)
    assert run(program, kind, patched) == ["[2] 1 1", "[2] closed"]


@some_patched("ctrl-c", "handler")
def test_a_listener_that_ends_so_is_called_once_and_its_partitions_are_read(kind: str, patched: bool) -> None:
    """It was called again and again, and nothing was consumed."""
    assert_called_once("on_assigned", kind, patched)


@some_patched("exit", "signal")
def test_a_listener_that_ends_so_is_called_once_and_its_partitions_are_given_back(kind: str, patched: bool) -> None:
    assert_called_once("on_revoked", kind, patched)


@some_patched("exit", "handler")
def test_a_callback_of_a_commit_that_ends_so_is_called_once_and_the_commit_is_done(kind: str, patched: bool) -> None:
    """The commit was made again and again."""
    assert run(COMMIT, kind, patched) == ["1 1 True", "1 closed"]


@some_patched("ctrl-c", "signal")
def test_an_assignor_that_ends_so_is_called_once_and_a_built_in_one_takes_its_place(kind: str, patched: bool) -> None:
    """It was called again and again, and no member had partitions."""
    assert run(ASSIGNOR, kind, patched) == ["1 1 1 2", "1 closed"]
