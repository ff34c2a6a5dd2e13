"""15: a process forks after it has used its producer, and both sides go on. What a child is told by each call is in tests/public/test_forks.py."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from gkafka.exceptions import ForkedClientError
from tests.gevent.harness import LIMIT_S, THREADS, connect, greenlets_and_threads, in_child
from tests.kit.clock import Span, now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

EACH = 300
MAX_BLOCK_S, REFUSED_WITHIN_S = 120.0, 30.0
"""A refusal does not wait for anything that produce() may wait for."""
EXEC = "popen"


# -- the ways to fork: each runs a function in a child, and returns how to get what it says --------------------------------------------
def by(fork: Callable[[], int], prepare: Callable[[], object] = int) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def start(run: Callable[[], Any]) -> Callable[[], Any]:
        readable, writable = os.pipe()
        if fork() == 0:
            try:
                prepare()
                said = run()
            except BaseException as error:
                said = repr(error)
            os.write(writable, json.dumps(said).encode())
            os._exit(0)
        os.close(writable)
        return lambda: read_all(readable)

    return start


def read_all(readable: int) -> Any:
    with os.fdopen(readable, "rb") as pipe:
        return json.loads(pipe.read())


def by_multiprocessing(run: Callable[[], Any]) -> Callable[[], Any]:
    readable, writable = os.pipe()

    def work() -> None:
        os.write(writable, json.dumps(run()).encode())

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    os.close(writable)

    def said() -> Any:
        told = read_all(readable)
        child.join(LIMIT_S)
        assert not child.exitcode  # None: gevent's subprocess, which this program uses as well, has heard of its end
        return told

    return said


def by_popen(run: Callable[[], Any]) -> Callable[[], Any]:
    """Other programs, which must inherit no connection."""
    look = (
        "import json, pathlib; print(json.dumps([str(fd.readlink()) for fd in pathlib.Path('/proc/self/fd').iterdir() if fd.is_symlink()]))"
    )
    others = [subprocess.Popen([sys.executable, "-c", look], stdout=subprocess.PIPE, close_fds=False) for _ in range(3)]
    return lambda: [json.loads(other.communicate(timeout=LIMIT_S)[0]) for other in others]


def new_hub() -> None:
    """As gipc does it: the child throws its parent's hub away."""
    import gevent

    gevent.reinit()
    gevent.get_hub().destroy(destroy_loop=True)


def ways(mode: str) -> dict[str, Any]:
    common = {"os.fork": by(os.fork), "multiprocessing": by_multiprocessing, EXEC: by_popen}
    if mode == THREADS:
        return common
    import gevent.os

    return {**common, "gevent.os.fork": by(gevent.os.fork), "gipc": by(os.fork, new_hub)}


# -- what both sides do ---------------------------------------------------------------------------------------------------------------
def send(producer: Any, topic: str, stem: str, complaints: list[str]) -> dict[str, Any]:
    """Acknowledged: value -> offset. Refused: how often, and the longest that it took, in seconds. Complaints: gkafka's warnings in this process."""
    told_before = len(complaints)
    deliveries, refused, slowest = {}, 0, Span(0)
    for number in range(EACH):
        began = now()
        try:
            value = f"{stem} {number}"
            deliveries[value] = producer.produce(topic, value.encode())
        except ForkedClientError:
            refused, slowest = refused + 1, max(slowest, now() - began)
    acknowledged = {v: d.result(LIMIT_S).offset for v, d in deliveries.items()}
    return {"acknowledged": acknowledged, "refused": refused, "slowest_s": slowest, "complaints": complaints[told_before:]}


def fork_and_send(hosts: str, topics: dict[str, str], mode: str) -> dict[str, Any]:
    """topics: one for each way, "recreate" in its name if the child is to go on."""
    complaints: list[str] = []
    watch = logging.Handler(logging.WARNING)
    watch.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gkafka").addHandler(watch)
    told: dict[str, Any] = {}
    for name, topic in topics.items():
        way, _, then = name.partition(" ")
        with (
            connect(hosts) as client,
            client.get_producer(acks="all", on_fork=then or "raise", max_block_ms=1000 * MAX_BLOCK_S) as producer,
        ):
            before = send(producer, topic, "before", complaints)
            child = ways(mode)[way](lambda p=producer, t=topic: send(p, t, "child", complaints))
            told[name] = {"before": before, "parent": send(producer, topic, "parent", complaints), "child": child()}
    return told


def names(mode: str) -> list[str]:
    plain = list(ways(mode))
    return plain + [f"{way} recreate" for way in plain if way != EXEC]


@greenlets_and_threads
def test_15_a_child_is_refused_or_goes_on_alone_and_the_parents_records_are_all_there(
    mode: str, kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topics = {name: new_topic() for name in names(mode)}
    told = in_child(mode, fork_and_send, kafka.hosts, topics, mode)
    peer = Peer(kafka.hosts, kafka.release)
    for name, topic in topics.items():
        check(name, told[name], peer, topic)


def check(name: str, told: dict[str, Any], peer: Peer, topic: str) -> None:
    child = told["child"]
    sides = [told["before"], told["parent"]]
    if name == EXEC:
        assert all("socket" not in target for fds in child for target in fds), child
    elif name.endswith("recreate"):
        sides.append(child)
    else:
        assert (child["acknowledged"], child["refused"], child["complaints"]) == ({}, EACH, []), (name, child)
        assert child["slowest_s"] <= REFUSED_WITHIN_S, (name, child)
    acknowledged: dict[str, int] = {}
    for side in sides:
        assert (len(side["acknowledged"]), side["refused"], side["complaints"]) == (EACH, 0, []), (name, side)
        acknowledged |= side["acknowledged"]
    log = {record.value.decode(): record.offset for record in peer.read(topic, EACH * len(sides)) if record.value is not None}
    assert log == acknowledged, name
