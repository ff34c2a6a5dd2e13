"""client.get_consumer(topics, group): calls that a signal handler interrupts, at any of their lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gkafka import KafkaClient
from tests.kit.clock import now
from tests.public.aids import Runner, fill
from tests.public.groupaids import FOUR, QUICK, read_all, settle
from tests.public.test_interrupted import Gun, Shot


@pytest.mark.parametrize("apart", [5, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "all"])
@pytest.mark.parametrize("call", ["commit", "consume", "seek", "pause", "explain"])
def test_a_call_may_be_interrupted_at_any_line(make_cluster: Any, call: str, apart: int) -> None:
    """No turn stays taken, no lock, no partition. apart: the lines at which there is a shot."""
    cluster = make_cluster(1, {"t": 2})
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        for p in range(2):
            fill(client, [b"x"] * 5, partition=p)
        # A shot inside a commit ends the connection, for heartbeats too: on a busy machine none may come through for as long as there are shots.
        member = client.get_consumer("t", "g", **{**QUICK, "auto_commit": False, "assignors": ["range"], "session_timeout_ms": 60_000})
        read_all(member, 10)
        calls: dict[str, Callable[[], object]] = {
            "commit": lambda: member.commit(timeout=60),
            "consume": lambda: member.consume_batch(timeout_ms=0),
            "seek": lambda: member.seek(FOUR[0], 5),
            "pause": lambda: (member.pause(FOUR[:2]), member.resume(FOUR[:2])),
            "explain": member.explain,
        }
        where: list[str] = []
        for n in range(1, 600, apart):
            gun = Gun()
            with contextlib.suppress(Shot), gun.aimed(n):
                calls[call]()
            if not gun.shots:
                break
            where += gun.shots
            begun = now()
            member.commit({FOUR[1]: 5}, timeout=60)
            assert now() - begun < 30, gun.shots
        assert len(where) > 5 // apart
        member.resume(FOUR[:2])
        generation = member.stats()["group"]["generation"]
        cluster.rebalance("g")
        settle(Runner("threading"), lambda: member.stats()["group"]["generation"] > generation and len(member.assignment()) == 2, member)
        begun = now()
        member.stop()
        assert now() - begun < 30
