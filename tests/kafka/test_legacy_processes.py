"""MultiProcessConsumer as kafka-python 0.9 documents it (behaviours 330-332): real processes on the broker in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

import gkafka
from gkafka.kafka.errors import IllegalStateError, KafkaConfigurationError, WrongTypeError
from gkafka.kafka.legacy import ConsumerProcessError, KafkaClient, MultiProcessConsumer, multiprocess
from gkafka.kafka.legacy.multiprocess import MESSAGES, _shares
from gkafka.testing import MockCluster
from tests.kafka.legacy import Make, committed, eventually, fill, values
from tests.kit.clock import PATIENCE_S, now

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(gkafka.__file__).parent.parent)}
with_threads = pytest.mark.parametrize("handler", ["threading"])
with_greenlets = pytest.mark.parametrize("handler", ["gevent"])
"""What is the same in both ways of concurrency is tried in one: each test starts interpreters."""


@pytest.fixture
def four(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """The topic "t" with four partitions."""
    return make_cluster(topics={"t": 4})


@pytest.fixture
def make(handler: str) -> Iterator[Make]:
    """Makes MultiProcessConsumers of topic "t" and group "g": make(cluster, **options)."""
    made: list[Any] = []

    def consumer(cluster: MockCluster, group: str | None = "g", **options: Any) -> MultiProcessConsumer:
        made.append(KafkaClient(cluster.bootstrap, handler=handler))
        made.append(MultiProcessConsumer(made[-1], group, "t", **options))
        found: MultiProcessConsumer = made[-1]
        return found

    yield consumer
    for one in reversed(made):
        pids = [process.pid for process in one.procs] if isinstance(one, MultiProcessConsumer) else []
        one.close() if isinstance(one, KafkaClient) else one.stop()
        assert [pid for pid in pids if lives(pid)] == []


def lives(pid: int) -> bool:
    """Is there such a process, other than as a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_partitions_are_read_in_several_processes(four: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviours 330, 331, 332."""
    fill(four, {p: [b"%d-%d" % (p, i) for i in range(3)] for p in range(4)})
    consumer = make(four, num_procs=2, auto_commit_every_n=5, auto_commit_every_t=3_600_000)
    pids = [process.pid for process in consumer.procs]
    assert len(set(pids)) == 2
    assert os.getpid() not in pids
    assert all(lives(pid) for pid in pids)
    found = consumer.get_messages(5, timeout=60)
    assert len(found) == 5
    assert sum(committed(four).values()) == 5
    found += list(consumer)
    assert sorted(values(found)) == sorted(b"%d-%d" % (p, i) for p in range(4) for i in range(3))
    for p in range(4):
        mine = [m.offset for m in found if m.message.value.startswith(b"%d-" % p)]
        assert mine == [0, 1, 2]
    consumer.provide_partition_info()
    fill(four, {3: [b"late"]})
    ((partition, message),) = consumer.get_messages(1, timeout=60)
    assert (partition, message.offset, message.message.value) == (3, 3, b"late")
    begun = now()
    monkeypatch.setattr(multiprocess, "STOP_S", 120.0)
    consumer.stop()
    assert now() - begun < 60
    assert not any(lives(pid) for pid in pids)
    assert committed(four) == {0: 3, 1: 3, 2: 3, 3: 4}
    consumer.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        consumer.get_messages()


@pytest.mark.parametrize(
    ("partitions", "num_procs", "partitions_per_proc", "shares"),
    [
        (4, 1, 0, [[0, 1, 2, 3]]),
        (4, 2, 0, [[0, 2], [1, 3]]),
        (4, 3, 0, [[0, 3], [1], [2]]),
        (2, 5, 0, [[0], [1]]),
        (5, 1, 2, [[0, 1], [2, 3], [4]]),
        (3, 9, 5, [[0, 1, 2]]),
        (0, 2, 0, []),
    ],
)
def test_how_the_partitions_are_divided(partitions: int, num_procs: int, partitions_per_proc: int, shares: list[list[int]]) -> None:
    """Behaviour 331."""
    assert _shares(list(range(partitions)), num_procs, partitions_per_proc) == shares


@with_threads
def test_partitions_per_proc_goes_before_num_procs(four: MockCluster, make: Make) -> None:
    """Behaviour 331."""
    consumer = make(four, num_procs=1, partitions_per_proc=2)
    assert [process.partitions for process in consumer.procs] == [[0, 1], [2, 3]]


def test_get_messages_waits_as_it_is_told(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 332. What the brokers have is waited for beyond that, here for as long as a busy machine takes."""
    monkeypatch.setattr("gkafka.kafka.legacy.multiprocess.LOOK_S", PATIENCE_S)
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster)
    assert values(consumer.get_messages(2, block=False)) == [b"a", b"b"]
    begun = now()
    assert values(consumer.get_messages(5, timeout=1.5)) == [b"c"]
    assert 1.5 <= now() - begun < PATIENCE_S
    assert consumer.get_messages(block=False) == []
    fill(cluster, {0: [b"d", b"e"]})
    assert values(consumer.get_messages(2, timeout=None)) == [b"d", b"e"]
    assert list(consumer) == []


@with_greenlets
def test_the_group_goes_on_where_it_has_committed(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b"]})
    first = make(cluster)
    assert values(first.get_messages(1, timeout=60)) == [b"a"]
    first.stop()
    assert committed(cluster) == {0: 1}
    assert values(make(cluster).get_messages(1, timeout=60)) == [b"b"]


@with_threads
def test_fetch_last_known_offsets_goes_back_to_the_commit(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"a", b"b", b"c"]})
    consumer = make(cluster, auto_commit=False)
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    consumer.commit()
    assert values(consumer.get_messages(2, timeout=60)) == [b"b", b"c"]
    before = consumer.procs[0].pid
    consumer.fetch_last_known_offsets()
    assert not lives(before)
    assert values(consumer.get_messages(2, timeout=60)) == [b"b", b"c"]


@with_greenlets
def test_what_is_fetched_ahead_is_bounded(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full pipe holds the process up: it does not read the topic into the parent's memory, and stop() ends it all the same."""
    fill(cluster, {0: [b"x" * 50_000] * 100})
    consumer = make(cluster, auto_commit=False)
    assert len(consumer.get_messages(1, timeout=60)) == 1
    consumer._handler.sleep(0.5)
    assert len(consumer._waiting) <= 10
    begun = now()
    monkeypatch.setattr(multiprocess, "STOP_S", 120.0)
    consumer.stop()
    assert now() - begun < 60


def test_the_death_of_a_process_is_told(four: MockCluster, make: Make) -> None:
    fill(four, {0: [b"a"]})
    consumer = make(four, num_procs=2)
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    victim = consumer.procs[1]
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(ConsumerProcessError, match=rf"process {victim.pid} of partitions \[1, 3\] of 't' has died \(by signal SIGKILL\)"):
        consumer.get_messages(1, timeout=60)
    with pytest.raises(ConsumerProcessError):
        list(consumer)


@with_threads
def test_what_was_found_before_a_process_dies_is_handed_out_and_its_death_told_with_the_next_call(cluster: MockCluster, make: Make) -> None:
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    consumer = make(cluster)
    assert values(consumer.get_messages(1, timeout=60)) == [b"0"]

    def kill() -> None:
        eventually(lambda: len(consumer._waiting) == 4)
        os.kill(consumer.procs[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert values(consumer.get_messages(10, timeout=60)) == [b"1", b"2", b"3", b"4"]
    with pytest.raises(ConsumerProcessError):
        consumer.get_messages(10, timeout=60)
    killer.join()


@with_greenlets
def test_a_call_that_is_cut_short_loses_nothing(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cluster, {0: [b"a", b"b"]})
    consumer = make(cluster)
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    receive = consumer._receive

    def cut(seconds: float) -> None:
        if consumer._waiting:
            raise KeyboardInterrupt
        receive(seconds)

    monkeypatch.setattr(consumer, "_receive", cut)
    with pytest.raises(KeyboardInterrupt):
        consumer.get_messages(10, timeout=60)
    consumer.commit()
    assert committed(cluster) == {0: 1}
    monkeypatch.undo()
    assert values(consumer.get_messages(1, block=False)) == [b"b"]


@with_threads
def test_what_a_call_was_cut_short_with_comes_again(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it may stand in a pipe: new processes read on from where the consumer stands."""
    fill(cluster, {0: [b"%d" % i for i in range(5)]})
    consumer = make(cluster)
    receive = connection.Connection.recv

    def cut(pipe: Any) -> Any:
        what = receive(pipe)
        if what[0] == MESSAGES:
            raise KeyboardInterrupt
        return what

    monkeypatch.setattr(connection.Connection, "recv", cut)
    with pytest.raises(KeyboardInterrupt):
        consumer.get_messages(5, timeout=60)
    monkeypatch.undo()
    assert values(consumer.get_messages(5, timeout=60)) == [b"0", b"1", b"2", b"3", b"4"]


@with_threads
def test_an_error_in_a_process_is_told(cluster: MockCluster, make: Make) -> None:
    """Its broker is gone when it starts: it cannot connect."""
    client = KafkaClient(cluster.bootstrap, handler="threading")
    client.config |= {"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": 1000}
    with MultiProcessConsumer(client, "g", "t") as consumer, pytest.raises(ConsumerProcessError, match="failed: NoBrokersAvailableError"):
        consumer.get_messages(1, timeout=60)
    client.close()


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "forked"])
def test_no_process_outlives_its_parent(cluster: MockCluster, tmp_path: Path, forked: bool) -> None:
    """A real SIGKILL: nothing runs in the parent that could tell its processes. Its main module has no guard, and is not read again. A fork of the
    parent has copies of the pipes, which do not end then."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import os, sys, time
        from gkafka.kafka.legacy import KafkaClient, MultiProcessConsumer
        consumer = MultiProcessConsumer(KafkaClient({cluster.bootstrap!r}), "g", "t", num_procs=1)
        consumer.get_messages(1, timeout=60)
        fork = os.fork() if {forked} else 0
        if {forked} and not fork:
            time.sleep(300)
            os._exit(0)
        print(consumer.procs[0].pid, fork, flush=True)
        time.sleep(300)
        """)
    )
    fill(cluster, {0: [b"x" * 50_000] * 60})  # it may be held up by a full pipe
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as parent:
        assert parent.stdout is not None
        pid, fork = (int(word) for word in parent.stdout.readline().split())
        try:
            assert lives(pid)
            parent.send_signal(signal.SIGKILL)
            parent.wait(60)
            eventually(lambda: not lives(pid))
        finally:
            if fork:
                os.kill(fork, signal.SIGKILL)


@with_greenlets
def test_a_process_that_does_not_end_is_killed(cluster: MockCluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocess, "STOP_S", 0.3)
    fill(cluster, {0: [b"a"]})
    consumer = make(cluster)
    assert values(consumer.get_messages(1, timeout=60)) == [b"a"]
    pid = consumer.procs[0].pid
    os.kill(pid, signal.SIGSTOP)
    consumer.stop()
    assert not lives(pid)


def test_under_gevent_other_greenlets_run_while_messages_are_waited_for(cluster: MockCluster) -> None:
    """In a process that gevent has patched."""
    fill(cluster, {0: [b"a", b"b"]})
    program = textwrap.dedent(f"""
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        import gevent
        from gkafka.kafka.legacy import KafkaClient, MultiProcessConsumer
        turns = []
        def turn():
            while True:
                gevent.sleep(0.01)
                turns.append(1)
        gevent.spawn(turn)
        consumer = MultiProcessConsumer(KafkaClient({cluster.bootstrap!r}), "g", "t")
        found = consumer.get_messages(2, timeout=60)
        del turns[:]
        assert consumer.get_messages(1, timeout=1) == []
        assert len(turns) > 5, turns
        consumer.stop()
        print([m.message.value for m in found])
        """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)
    assert (ended.stdout, ended.stderr) == ("[b'a', b'b']\n", "")


def test_the_end_of_a_program_without_stop_ends_its_processes(cluster: MockCluster, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        from gkafka.kafka.legacy import KafkaClient, MultiProcessConsumer
        consumer = MultiProcessConsumer(KafkaClient({cluster.bootstrap!r}), "g", "t", num_procs=1)
        print(*(process.pid for process in consumer.procs), flush=True)
        """)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, env=ENVIRONMENT)
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 1
    eventually(lambda: not any(lives(pid) for pid in pids))


def test_what_other_processes_cannot_have_is_refused(cluster: MockCluster, handler: str) -> None:
    with gkafka.KafkaClient(cluster.bootstrap, handler=handler) as native, pytest.raises(WrongTypeError, match="each process makes one"):
        MultiProcessConsumer(native, "g", "t")
    with KafkaClient(cluster.bootstrap, handler=handler) as client:
        client.config["ssl_password"] = lambda: "secret"
        with pytest.raises(KafkaConfigurationError, match=r"ssl_password=.* cannot be given to other processes"):
            MultiProcessConsumer(client, "g", "t")
        with pytest.raises(KafkaConfigurationError, match="num_procs=0"):
            MultiProcessConsumer(client, "g", "t", num_procs=0)
