"""F12: brokers that are known by name, when names cannot be looked up, mean dead addresses too, or mean others than before."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator

from tests.faults.groups import GroupFault, GroupRun
from tests.faults.parties import Party
from tests.faults.stage import NamedStage
from tests.kit import clock

__all__ = ["NAME_FAULTS"]

REFUSED, SILENT = "127.0.0.11", "127.0.0.12"
"""Addresses at which nobody listens, and at which nobody answers."""
HOMES = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")


def resolver_away(run: GroupRun) -> None:
    """No name can be looked up for half a minute, and every connection ends at its beginning."""
    stage, before = stage_of(run), counted(run, "refused")
    for turn in range(3 if run.long else 1):
        stage.names.nobody_answers(silent=turn == 1)
        stage.cut_off()
        run.pause(30 if run.long else 10)
        stage.names.somebody_answers()
        run.measure("recovery_s", clock.now())
        run.settled()
    note_counted(run, "refused", before)


def addresses_dead(run: GroupRun) -> None:
    """Before its own address each name has two at which nobody is: one refuses, one says nothing."""
    stage, before = stage_of(run), counted(run, "lookups")
    with deaf(stage.ports):
        stage.names.mean(stage.known_as, [SILENT, REFUSED, stage.home])
        for _ in range(5 if run.long else 1):
            stage.cut_off()
            run.measure("recovery_s", clock.now())
            run.settled()
    stage.names.mean(stage.known_as, [stage.home])
    note_counted(run, "lookups", before)


def brokers_moved(run: GroupRun) -> None:
    """All brokers go to another address at once: first under their names, then under other names and ports. The bootstrap name stays."""
    stage, before = stage_of(run), counted(run, "lookups")
    for home in HOMES[1:] if run.long else HOMES[1:3]:
        connections = stage.plan.connections
        if stage.moves % 2 == 0:
            stage.move(home)
        else:
            stage.move_and_rename(home)
        run.measure("recovery_s", clock.now())
        run.settled()
        run.counts["moves"] += 1
        run.counts["connections"] += stage.plan.connections - connections
    note_counted(run, "lookups", before)


def stage_of(run: GroupRun) -> NamedStage:
    assert isinstance(run.stage, NamedStage)
    return run.stage


def counted(run: GroupRun, name: str) -> dict[Party, int]:
    """Of each group: what its members have counted of their look-ups."""
    return {party: sum(member.count(name) for member in party.members) for party in run.parties}


def note_counted(run: GroupRun, name: str, before: dict[Party, int]) -> None:
    """What was counted since is evidence."""
    for party, now in counted(run, name).items():
        party.figures[name] = now - before[party]


@contextlib.contextmanager
def deaf(ports: list[int]) -> Iterator[None]:
    """Listeners at SILENT that accept nobody and whose queues are full: the kernel answers no further connection."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((SILENT, port))
            listener.listen(0)
            for _ in range(3):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex((SILENT, port))
        yield


_named = functools.partial(GroupFault, bars={"recovery_s": 12.0}, stage=NamedStage, control=False)
NAME_FAULTS = {
    fault.id: fault
    for fault in (
        _named("F12-resolver", "names cannot be looked up", resolver_away, evidence=("refused", "disconnects")),
        _named(
            "F12-dead",
            "two of three addresses are dead",
            addresses_dead,
            evidence=("lookups", "disconnects"),
            client_options={"connect_timeout_ms": 3000},
        ),
        _named("F12-moved", "all brokers move", brokers_moved, evidence=("moves", "connections", "lookups", "disconnects")),
    )
}
