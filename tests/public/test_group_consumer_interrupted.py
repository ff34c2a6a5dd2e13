"""client.get_consumer(topics, group): calls that a signal handler interrupts, at any of their lines."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gkafka
from gkafka import KafkaClient
from tests.kit.clock import now
from tests.public.aids import Runner, fill
from tests.public.groupaids import FOUR, QUICK, read_all, settle
from tests.public.test_interrupted import Gun, Shot


def entered_without_a_look(file: str) -> set[str]:
    """Python enters a finally block without a look for signals: what that does first is done."""
    tree = ast.parse((Path(gkafka.__file__).parent / file).read_text())
    firsts = [node.finalbody[0] for node in ast.walk(tree) if isinstance(node, ast.Try) and node.finalbody]
    return {f"{file}:{line}" for first in firsts for line in range(first.lineno, (first.end_lineno or first.lineno) + 1)}


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
        unreached = entered_without_a_look("progress.py")
        for n in range(1, 600, apart):
            gun = Gun()
            with contextlib.suppress(Shot), gun.aimed(n):
                calls[call]()
            if not gun.shots:
                break
            where += gun.shots
            if gun.shots[0] in unreached:
                member._progress._line.clear()
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
