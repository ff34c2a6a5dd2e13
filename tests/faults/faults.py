"""The faults that are played under load, by their ids."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.faults.closing import play_closing
from tests.faults.copies import play_copies
from tests.faults.cutfaults import CUT_FAULTS
from tests.faults.gapfaults import GAP_FAULTS
from tests.faults.groupfaults import GROUP_FAULTS
from tests.faults.groups import GroupFault, GroupLine, play_groups
from tests.faults.groupshots import SHOT_GROUPS
from tests.faults.ledger import Entry
from tests.faults.namefaults import NAME_FAULTS
from tests.faults.proxy import PRODUCE, Cut, Lose
from tests.faults.runs import Fault, Form, Line, Run, play
from tests.faults.shots import play_rate, play_reading_shots, play_shots, play_transaction_shots
from tests.faults.stage import Stage
from tests.faults.zookeeperfaults import ZOOKEEPER_FAULTS
from tests.kit import clock

__all__ = ["FAULTS", "GAMES", "OF_GROUPS", "Game"]


def leader_killed(run: Run) -> None:
    """kill -9 of the node that leads a partition; it comes back when another leads."""
    for _ in range(10 if run.long else 1):
        run.in_sync()
        run.write(1000)
        before = run.watch_leaders()
        victim = before[run.chance.randrange(len(before))]
        run.stage.kill(victim)
        run.recovered()
        run.count_moves({p: leader for p, leader in before.items() if leader == victim})
        run.stage.restart(victim)


def no_quorum(run: Run) -> None:
    """Two of three nodes are killed: no controller, too few replicas."""
    first, second = run.chance.sample([1, 2, 3], 2)
    run.write(1000)
    run.stage.kill(first)
    run.stage.kill(second)
    run.pause(20 if run.long else 4)
    run.stage.restart(first)
    run.stage.restart(second)
    run.recovered()


def frozen_for(run: Run, seconds: float) -> None:
    """SIGSTOP: its sockets stay open and it says nothing, until SIGCONT."""
    run.write(1000)
    before = run.watch_leaders()
    victim = before[run.chance.randrange(len(before))]
    began = clock.now()
    run.stage.cluster.suspend(victim)
    try:
        run.pause(1.0)
        alive = [node for node in run.stage.alive() if node.id != victim]
        held = [p for p, leader in before.items() if leader == victim]
        run.wait(lambda: all(alive[0].leaders(run.topic).get(p, -1) not in (-1, victim) for p in held), "another node leads")
        run.moves += len(held)
        run.pause(max(0.0, seconds - (clock.now() - began)))
    finally:
        run.stage.cluster.resume(victim)
    run.recovered()


def frozen_shortly(run: Run) -> None:
    frozen_for(run, 5)


def frozen_long(run: Run) -> None:
    frozen_for(run, 35)


def leaders_move(run: Run) -> None:
    """Every partition gets another leader every 500 ms, for as long as there is something to write."""
    topics = [topic for topics in run.topics.values() for topic in topics]
    least = clock.soon(30 if run.long else 4)
    turn, before = 0, run.watch_leaders()
    while clock.now() < least or not run.done():
        turn += 1
        began = clock.now()
        run.stage.move_leaders(topics, turn)
        now = run.watch_leaders()
        run.moves += sum(leader > 0 and before.get(p, leader) != leader for p, leader in now.items())
        before = now
        run.pause(max(0.0, 0.5 - (clock.now() - began)))
    run.recovered()


def replies_lost(run: Run) -> None:
    """The broker wrote the batch; its answer is lost, whole or after a few bytes, with the connection."""
    run.stage.plan.add(PRODUCE, Lose(), share=0.02)
    run.stage.plan.add(PRODUCE, Cut(run.chance.randrange(1, 40)), share=0.01)
    run.pause(20 if run.long else 3)
    run.until_done()
    run.stage.plan.clear()
    run.recovered()


def short_lives(run: Run) -> None:
    """Every connection lives 0.5 to 1.5 s, whatever is under way on it."""
    run.stage.plan.lifetime = (0.5, 1.5)
    for door in run.stage.doors:
        door.down()  # those that are open were made before
        door.up()
    run.pause(30 if run.long else 4)
    run.until_done()
    run.stage.plan.clear()
    run.recovered()


def too_few_in_sync(run: Run) -> None:
    """The topics ask for three in-sync replicas and one node is gone: the leaders refuse every batch."""
    run.in_sync()
    run.write(1000)
    victim = run.chance.choice([1, 2, 3])
    run.stage.kill(victim)
    run.pause(25 if run.long else 8.5)
    run.stage.restart(victim)
    run.recovered()


def recreated(run: Run) -> None:
    """The second topic of each writer is deleted and made again; the first must not notice."""
    churned = [topics[1] for topics in run.topics.values()]
    born = [0.0]

    def must_stay(entry: Entry) -> bool:
        return entry.topic not in churned or entry.offered_at > born[0]

    run.must_stay = must_stay
    for _ in range(3 if run.long else 1):
        run.write(1000)
        for topic in churned:
            run.stage.delete_topic(topic)
        run.pause(run.chance.uniform(0.2, 2.0))
        for topic in churned:
            run.stage.create_topic(topic)
        born[0] = clock.now()
        run.recovered()


KILLED = ("retries", "disconnects", "moves")
FAULTS = {
    fault.id: fault
    for fault in (
        Fault("F01", "leader killed", leader_killed, evidence=KILLED),
        Fault("F02", "no quorum, deliveries time out", no_quorum, evidence=("retries", "disconnects"), fails=True, delivery_timeout_s=3),
        Fault("F02-patient", "no quorum, deliveries wait", no_quorum, evidence=("retries", "disconnects"), short=False),
        Fault("F03-5", "broker frozen 5 s", frozen_shortly, evidence=("retries", "moves")),
        Fault("F03-35", "broker frozen 35 s", frozen_long, evidence=("retries", "moves"), short=False),
        Fault("F05", "leaders move every 500 ms", leaders_move, evidence=("retries", "moves")),
        Fault("F06", "replies lost after the broker acted", replies_lost, evidence=("retries", "disconnects")),
        Fault("F07", "connections live 0.5-1.5 s", short_lives, evidence=("retries", "disconnects")),
        Fault(
            "F13",
            "too few in-sync replicas",
            too_few_in_sync,
            evidence=("retries", "disconnects"),
            configs={"min_insync_replicas": 3},
            fails=True,
            delivery_timeout_s=4,
        ),
        Fault("F14", "topic deleted and made again", recreated, topics=2),
    )
}


class Game(NamedTuple):
    """Anything that `make faults` plays. play: with a stage, a form, a seed and the clients' names; short: has a short form."""

    title: str
    play: Callable[[Stage, Form, int, Sequence[str]], Sequence[Line | GroupLine]]
    short: bool = True


def _under_load(fault: Fault) -> Game:
    def played(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
        return play(stage, fault, form, seed, clients)

    return Game(fault.title, functools.wraps(fault.play)(played), fault.short)


def _of_groups(fault: GroupFault) -> Game:
    def played(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[GroupLine]:
        if fault.stage is None:
            return play_groups(stage, fault, form, seed, clients)
        with fault.stage(seed) as own:
            own.logs = stage.logs
            return play_groups(own, fault, form, seed, clients)

    return Game(fault.title, functools.wraps(fault.play)(played), fault.short)


OF_GROUPS = {**GROUP_FAULTS, **SHOT_GROUPS, **GAP_FAULTS, **CUT_FAULTS, **NAME_FAULTS, **ZOOKEEPER_FAULTS}
GAMES = {
    **{id: _under_load(fault) for id, fault in FAULTS.items()},
    "F23": Game("close() in every state", play_closing),
    "F24": Game("calls and workers cut off anywhere", play_shots),
    "F24-tx": Game("transactions cut off anywhere", play_transaction_shots),
    "F24-rate": Game("a hundred interruptions a second", play_rate, short=False),
    "F25": Game("transactions", play_copies),
    "F30": Game("consumers cut off anywhere", play_reading_shots),
    **{id: _of_groups(fault) for id, fault in OF_GROUPS.items()},
}
