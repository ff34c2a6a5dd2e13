"""Faults of groups that share a topic by way of ZooKeeper: F15, F20 and F21 with BalancedConsumer, on a node of 2.8."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tests.faults.groupfaults import churn, ended_members
from tests.faults.groups import GroupFault, GroupRun
from tests.faults.parties import Member
from tests.faults.stage import ZooKeeperStage
from tests.kit.clock import now
from tests.live.sessions import end_session

__all__ = ["ZOOKEEPER_FAULTS"]

EXPIRES = 5
"""Sessions of each group that end, in the long form."""
SESSION_S = 4.0
"""Of the members with ZooKeeper. What is frozen here longer than a node's own session (18 s) would end that, too."""


def zookeeper_frozen(run: GroupRun) -> None:
    """SIGSTOP of ZooKeeper: for a second, which nobody has to notice, and for two sessions."""
    for _ in range(3 if run.long else 1):
        run.stage.cluster.suspend_zookeeper()
        run.pause(1.0)
        run.stage.cluster.resume_zookeeper()
        run.goes_on()
        run.counts["freezes"] += 1
        away(run, run.stage.cluster.suspend_zookeeper, run.stage.cluster.resume_zookeeper, 2 * SESSION_S)


def zookeeper_killed(run: GroupRun) -> None:
    """kill -9 of ZooKeeper, which comes back after two sessions."""
    for _ in range(3 if run.long else 1):
        away(run, run.stage.cluster.kill_zookeeper, run.stage.cluster.restart_zookeeper, 2 * SESSION_S)
        run.counts["kills"] += 1


def away(run: GroupRun, go: Callable[[], None], come: Callable[[], None], seconds: float) -> None:
    """Until when anything is handed out while ZooKeeper is away, and how long it takes to go on when it is back."""
    gone = now()
    go()
    run.pause(seconds)
    for party in run.parties:
        party.most("delivers_s", max((read.at for diary in party.diaries() for read in diary.reads), default=gone) - gone)
    come()
    run.measure("recovery_s", now())
    run.settled()


def sessions_expire(run: GroupRun) -> None:
    """ZooKeeper ends a member's session: another client closes it under the same id and password."""
    for _ in range(EXPIRES if run.long else 1):
        run.settled()
        victims = run.victims()
        before = {member.name: session(member) for _, member in victims}
        began = now()
        for _, member in victims:
            expire(run, member)
            run.counts["expired"] += 1
        for _, member in victims:
            known = before[member.name]
            run.wait(lambda m=member, k=known: session(m) not in (None, k), f"{member.name} has another session")  # type: ignore[misc]
        run.measure("recovery_s", began)
        run.settled()


def session(member: Member) -> tuple[int, str] | None:
    found = member.said.get("session")
    return None if found is None else (found[0], found[1])


def expire(run: GroupRun, member: Member) -> None:
    found = session(member)
    assert found is not None
    client_id = (found[0], bytes.fromhex(found[1]))
    run.wait(lambda: end_session(run.stage.cluster.zookeeper, client_id), f"the session of {member.name} is over")


def owners_stolen(run: GroupRun) -> None:
    """Somebody else's znode stands in the place of a member's, for two seconds."""
    from kazoo.client import KazooClient

    thief = KazooClient(run.stage.cluster.zookeeper)
    thief.start()
    try:
        for _ in range(5 if run.long else 1):
            for party in run.parties:
                path = f"/consumers/{party.group}/owners/{run.topic}"
                name = run.chance.choice(sorted(thief.get_children(path)))
                partition = int(name.rpartition("-")[2])
                transaction = thief.transaction()
                transaction.delete(f"{path}/{name}")
                transaction.create(f"{path}/{name}", b"a thief", ephemeral=True)
                transaction.commit()
                run.counts["stolen"] += 1
                stolen = now()
                place = (run.topic, partition)
                run.wait(lambda p=party, at=place: not any(at in m.mine for m in p.there), f"{party.name} gives {place} up")  # type: ignore[misc]
                party.most("given_up_s", now() - stolen)
                run.pause(2.0)
                thief.delete(f"{path}/{name}")
            run.ready()
    finally:
        thief.stop()
        thief.close()


def broker_away(run: GroupRun) -> None:
    """The broker is killed and comes back; ZooKeeper stays, and with it who has what there."""
    for _ in range(3 if run.long else 1):
        run.stage.kill(1)
        run.counts["kills"] += 1
        run.pause(10 if run.long else 5)
        run.stage.restart(1)
        run.measure("recovery_s", now())
        run.settled()


def both_away(run: GroupRun) -> None:
    """The broker and ZooKeeper are killed, now the one first and now the other; ZooKeeper comes back first, since no broker starts without it."""
    kills: list[Callable[[], None]] = [lambda: run.stage.kill(1), run.stage.cluster.kill_zookeeper]
    for turn in range(4 if run.long else 1):
        for kill in kills if turn % 2 == 0 else reversed(kills):
            kill()
            run.counts["kills"] += 1
            run.pause(1.0)
        run.pause(2 * SESSION_S)
        run.stage.cluster.restart_zookeeper()
        run.pause(1.0)
        run.stage.restart(1)
        run.measure("recovery_s", now())
        run.settled()


RECOVERY_S = 2 * SESSION_S + 5
AWAY = {"delivers_s": SESSION_S, "recovery_s": RECOVERY_S}
_shared = functools.partial(GroupFault, kinds=("zookeeper",), session_s=SESSION_S, control=False, stage=ZooKeeperStage)
ZOOKEEPER_FAULTS = {
    fault.id: fault
    for fault in (
        *ended_members("F15-zookeeper", SESSION_S, _shared),
        _shared(
            "F17-zookeeper",
            "members come and go",
            churn,
            evidence=("changes",),
            bars={"unowned_s": 10.0},
            members=2,
        ),
        _shared(
            "F20-freeze",
            "ZooKeeper frozen",
            zookeeper_frozen,
            evidence=("freezes",),
            bars=AWAY,
        ),
        _shared(
            "F20-kill",
            "ZooKeeper killed, broker up (F21)",
            zookeeper_killed,
            evidence=("kills",),
            bars=AWAY,
        ),
        _shared(
            "F20-expire",
            "a session expires",
            sessions_expire,
            evidence=("expired",),
            bars={"recovery_s": RECOVERY_S},
            short=True,
        ),
        _shared(
            "F20-stolen",
            "an owner's znode is taken",
            owners_stolen,
            evidence=("stolen",),
            bars={"given_up_s": SESSION_S},
        ),
        GroupFault(
            "F21-broker",
            "broker killed, ZooKeeper up",
            broker_away,
            evidence=("kills",),
            bars={"recovery_s": RECOVERY_S},
            kinds=("zookeeper", "managed", "native"),
            session_s=6.0,
            quiet=("threading/zookeeper", "gevent/zookeeper"),
            stage=ZooKeeperStage,
        ),
        _shared("F21-both", "broker and ZooKeeper killed", both_away, evidence=("kills",), bars={"recovery_s": RECOVERY_S}),
    )
}
