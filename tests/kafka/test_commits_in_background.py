"""The worker of commit_async(): its end, and what the functions that it calls raise."""

from __future__ import annotations

import gc
import sys
import textwrap
from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer, OffsetAndMetadata
from gkafka.testing import Delay, Error, MockCluster
from tests.handlers.hub import run_script
from tests.kafka.consuming import FIRST, GROUP, committed, consume, put, until
from tests.kit.clock import PATIENCE_S, now
from tests.public.aids import Runner


def test_the_worker_of_commits_ends_with_a_consumer_that_is_dropped(cluster: MockCluster, handler: str) -> None:
    """It waited for ever: one more thread or greenlet for each such consumer."""
    gc.collect()
    gc.disable()
    try:
        consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, handler=handler, **GROUP)
        consumer.assign([FIRST])
        assert consumer.commit_async({FIRST: OffsetAndMetadata(1, "")}).get(60)
        worker = consumer._commits._worker
        assert worker.is_alive()
        del consumer
        until(handler, lambda: not worker.is_alive())
    finally:
        gc.enable()


def test_a_commit_covers_nothing_that_a_deserializer_is_still_at_work_on(consumer: Any, cluster: MockCluster) -> None:
    """It took the position behind the records, which goes back when the deserializer fails."""
    put(cluster, b"0", b"1", b"2")
    futures: list[Any] = []

    def fail(value: bytes) -> Any:
        futures.append(made.commit_async())
        raise ValueError(value)

    made = consumer(cluster, value_deserializer=fail, **GROUP)
    made.assign([FIRST])
    with pytest.raises(ValueError, match="0"):
        consume(made, 1)
    assert futures[0].get(60)
    assert made.position(FIRST) == 0
    assert committed(cluster).get(0, 0) == 0


@pytest.mark.parametrize("fork", ["fork_without_hooks()", "os.fork()"], ids=["without hooks", "with hooks"])
def test_the_end_of_a_forked_child_waits_for_no_commit_of_the_parent(handler: str, fork: str) -> None:
    """Without hooks, as uWSGI forks, close() waited for the parent's worker, for request_timeout_ms."""
    out = run_script(
        f"""
        import os, signal
        from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
        from gkafka.testing import Delay, Error, MockCluster
        from tests.handlers.rawfork import fork_without_hooks
        with MockCluster(1, {{"t": 1}}) as cluster:
            consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", handler="{handler}")
            consumer.assign([TopicPartition("t", 0)])
            consumer.commit_async({{TopicPartition("t", 0): OffsetAndMetadata(1, "")}}).get(60)
            pid = {fork}
            if pid == 0:
                signal.alarm(60)
                consumer._commits.finish(3600)
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
            consumer.close()
        """,
        timeout=120,
    )
    assert out.split()[-1] == "0"


@pytest.mark.parametrize("what", ["callback", "future", "errback"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RuntimeError])
def test_a_thread_makes_a_commit_once_whatever_those_raise_that_are_told_of_it(
    cluster: MockCluster, what: str, error: type[BaseException]
) -> None:
    """The worker ended with it, and later commits were never made."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, handler="threading", **GROUP)
    consumer.assign([FIRST])
    heard: list[Any] = []

    def hear(*args: Any) -> None:
        heard.append(args[-1])
        raise error

    if what == "errback":
        cluster.on("OffsetCommit", Error(12))
    cluster.on("OffsetCommit", Delay(0.1))
    future = consumer.commit_async({FIRST: OffsetAndMetadata(1, "")}, hear if what == "callback" else None)
    behind: list[Any] = []
    if what != "callback":
        future.add_both(hear).add_both(behind.append)
    until("threading", lambda: future.is_done and heard)
    assert consumer.commit_async({FIRST: OffsetAndMetadata(2, "")}).get(60)
    assert len(heard) == 1
    assert len(behind) == (what != "callback")
    assert len(cluster.requests("OffsetCommit")) == 2, "one for each"
    consumer.close()


@pytest.mark.parametrize(
    "patch", ["", "import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()"], ids=["unpatched", "patched"]
)
@pytest.mark.parametrize("what", ["callback", "future"])
def test_with_greenlets_a_callback_that_exits_is_called_once_and_the_commit_is_made_once(patch: str, what: str) -> None:
    """A future's callback had the commit made twice."""
    program = PROGRAM.format(what=what)
    assert run_script(f"{patch}\n{textwrap.dedent(program)}", timeout=60).splitlines() == ["1 1 1 True"]


PROGRAM = """
    import sys
    import gevent
    from gkafka.kafka import KafkaConsumer, TopicPartition, OffsetAndMetadata
    from gkafka.testing import Delay, MockCluster

    called, behind = [], []

    def hear(*args):
        called.append(args)
        sys.exit(3)

    cluster = MockCluster(topics={{"t": 1}})
    cluster.on("OffsetCommit", Delay(0.1))
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False, handler="gevent")
    consumer.assign([TopicPartition("t", 0)])
    given = {{TopicPartition("t", 0): OffsetAndMetadata(1, "")}}
    future = consumer.commit_async(given, callback=hear if {what!r} == "callback" else None)
    if {what!r} == "future":
        future.add_callback(hear)
    future.add_callback(behind.append)
    exits = 0
    turns = 0
    while turns < 10:  # so many after all has happened
        turns += bool(exits and behind)
        try:
            gevent.sleep(0.02)
        except SystemExit as exit:
            exits += exit.code == 3
    print(len(called), exits, len(cluster.requests("OffsetCommit")), len(behind) == 1 and future.succeeded())
    consumer.close()
    cluster.close()
"""


def test_callbacks_behind_one_that_is_a_builtin_and_exits_are_called(cluster: MockCluster, handler: str) -> None:
    """It leaves no frame of its own, and was taken for one that a signal came before: with greenlets nobody behind it was called."""
    run, exits = Runner(handler), 0
    behind: list[Any] = []
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False, handler=handler)
    consumer.assign([FIRST])
    cluster.on("OffsetCommit", Delay(0.1))
    future = consumer.commit_async({FIRST: OffsetAndMetadata(1, "")})
    future.add_callback(sys.exit).add_callback(behind.append)
    until = now() + PATIENCE_S
    while not (behind and exits == run.gevent) and now() < until:
        try:
            run.sleep(0.02)
        except SystemExit:
            exits += 1
    assert (exits, len(behind)) == (run.gevent, 1)
    assert len(cluster.requests("OffsetCommit")) == 1
    consumer.close()
