"""The faults that are played to groups of consumers, by their ids."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable

from tests.faults.consumed import takeover
from tests.faults.groups import GroupFault, GroupRun
from tests.faults.load import FILLER
from tests.faults.member import CALLBACKS
from tests.faults.parties import Member, Party
from tests.faults.proxy import API_VERSIONS, FETCH, HEARTBEAT, Delay, Flip
from tests.faults.stage import until
from tests.kit.clock import figure, now

__all__ = ["GROUP_FAULTS", "churn", "ended_members"]

SESSION_S = 6.0
REQUEST_S = 4.0
"""A request is given up after that."""
METADATA_S = 5.0
RECONNECT_S = 6.0
"""The longest pause before a broker is tried again: reconnect_backoff_max_ms and its jitter."""
BOTH = ("threading", "gevent")
FAILOVER_S = 5.0
"""Until the other nodes have noticed that one is gone, and a partition of it is led and loaded by another."""


def note_takeovers(run: GroupRun, happened: list[tuple[Party, Member, float]], figure: str, count: str) -> None:
    """Wait until others have what each had; how long that took is a figure of the group, and how often there was anything to take a count of it."""
    for party, victim, at in happened:
        run.wait(lambda v=victim, p=party, t=at: takeover(p.diaries(), v.name, t) < float("inf"), f"{party.name}: others take over")  # type: ignore[misc]
        seconds = takeover(party.diaries(), victim.name, at)
        party.most(figure, seconds)
        party.figures[count] = party.figures.get(count, 0) + (seconds > 0)


def killed_members(run: GroupRun) -> None:
    """kill -9 of one member of each group; another takes its place later, and leaves in order."""
    for _ in range(5 if run.long else 1):
        run.ready()
        happened = [(party, victim, victim.kill()) for party, victim in run.victims()]
        run.counts["kills"] += len(happened)
        note_takeovers(run, happened, "takeover_s", "takeovers")
        run.settled()
        for party in run.parties:
            run.join(party)
        run.ready()
        note_takeovers(run, [(party, victim, victim.leave()) for party, victim in run.victims()], "leave_s", "handovers")
        for party in run.parties:
            run.join(party)


def frozen_members(run: GroupRun) -> None:
    """SIGSTOP of one member of each group for two sessions: its partitions go to others, and it wakes as a zombie."""
    for _ in range(5 if run.long else 1):
        run.ready()
        happened = [(party, victim, victim.freeze()) for party, victim in run.victims()]
        run.counts["freezes"] += len(happened)
        note_takeovers(run, happened, "takeover_s", "takeovers")
        run.pause(max(0.0, happened[0][2] + 2 * run.fault.session_s - now()))
        for _, zombie, _ in happened:
            zombie.wake()
        run.ready()


def killed_and_frozen(run: GroupRun) -> None:
    """kill -9 of one member of each group and SIGSTOP of another; a third takes over from both, and the frozen one wakes."""
    doomed = {party: run.chance.sample(party.there, 2) for party in run.parties}
    frozen = [(party, members[0], members[0].freeze()) for party, members in doomed.items()]
    killed = [(party, members[1], members[1].kill()) for party, members in doomed.items()]
    run.counts["freezes"] += len(frozen)
    run.counts["kills"] += len(killed)
    note_takeovers(run, [*frozen, *killed], "takeover_s", "takeovers")
    run.pause(max(0.0, frozen[0][2] + 1.5 * run.fault.session_s - now()))
    for _, zombie, _ in frozen:
        zombie.wake()
    run.ready()


def coordinators_killed(run: GroupRun) -> None:
    """kill -9 of the node that coordinates a group, while a member is joining; it comes back when another coordinates."""
    for turn in range(6 if run.long else 2):
        run.ready()
        before = run.coordinators()
        joins = turn % 2 == 1
        victim = before[run.chance.choice(run.parties).group]
        if joins:
            for party in run.parties:
                run.join(party)
            run.wait(lambda: any(p.members[-1].said for p in run.parties), "a member joins")
        run.stage.kill(victim)
        killed = now()
        run.counts["kills"] += 1
        hit = [party for party in run.parties if before[party.group] == victim]
        run.measure("recovery_s", killed)
        run.wait(lambda b=before, h=hit: all(run.stage.coordinator(p.group) not in (-1, b[p.group]) for p in h), "others coordinate")  # type: ignore[misc]
        run.counts["moves"] += len(hit)
        run.stage.restart(victim)
        if joins:
            for party in run.parties:
                party.members[-1].leave()


def rolling_restart(run: GroupRun) -> None:
    """Every node is ended in order (SIGTERM) and started again, one after the other; in short only one that coordinates."""
    for _ in range(5 if run.long else 1):
        for node in run.stage.cluster.nodes:
            before = run.coordinators()
            if not run.long and (node.id not in before.values() or run.counts["restarts"]):
                continue
            until(lambda: run.stage.in_sync(run.topic), "three replicas are in sync")
            run.stage.cluster.kill(node, signal.SIGTERM)
            run.stage.doors[node.id - 1].down()
            run.counts["restarts"] += 1
            run.wait(lambda at=node.id: at not in run.coordinators().values(), "others coordinate")  # type: ignore[misc]
            run.counts["moves"] += sum(at == node.id for at in before.values())
            run.stage.restart(node.id)
            run.goes_on()


def churn(run: GroupRun) -> None:
    """Groups grow from two members to six and shrink again, a member every three seconds."""
    least = now() + (150 if run.long else 10)
    growing = True
    while now() < least:
        for party in run.parties:
            if growing:
                run.join(party)
            else:
                run.chance.choice(party.there).leave()
            run.counts["changes"] += 1
        size = min(len(party.there) for party in run.parties)
        growing = True if size <= 2 else False if size >= (6 if run.long else 4) else growing
        run.pause(3.0)
    run.ready()


def slow_replies(run: GroupRun) -> None:
    """A third of the replies come up to two seconds late, and with them what is behind; then all at 20 kB/s and byte by byte."""
    seconds = 30 if run.long else 8
    before = cpu_share(run, seconds)
    run.stage.plan.add(None, Delay(0.0, most=2.0), share=0.3)
    run.pause(seconds)
    run.goes_on()
    run.stage.plan.clear()
    run.goes_on()
    run.stage.plan.rate, run.stage.plan.drip = 20_000.0, True
    after = cpu_share(run, seconds)
    run.goes_on()
    run.stage.plan.clear()
    for party in run.parties:
        party.most("cpu_x", after[party] / max(before[party], 0.01))
    run.counts["slow"] += 2


def cpu_share(run: GroupRun, seconds: float) -> dict[Party, float]:
    """Processor time of each group in so many seconds from now."""
    first = {party: sum(member.cpu_s() for member in party.there) for party in run.parties}
    run.pause(seconds)
    return {party: sum(member.cpu_s() for member in party.there) - first[party] for party in run.parties}


def flipped_bits(run: GroupRun) -> None:
    """A bit of what lies under a checksum arrives as the other one, in a part of the fetches."""
    goal = run.stage.plan.flipped + (2000 if run.long else 50)
    first = run.stage.plan.flipped
    run.stage.plan.add(FETCH, Flip(FILLER, reach=len(FILLER) + 30), share=0.3)
    run.wait(lambda: run.stage.plan.flipped >= goal, "bits are flipped", run.form.limit_s)
    run.stage.plan.clear()
    run.counts["flips"] += run.stage.plan.flipped - first
    run.measure("recovery_s", now())


def half_open(run: GroupRun) -> None:
    """Nothing comes back from any broker, and no connection ends."""
    began = now()
    run.stage.plan.silence()
    run.pause(60 if run.long else 12)
    run.stage.plan.clear()
    cleared = now()
    for party in run.parties:
        for member in party.there:
            tries = [at for at in run.stage.plan.asked[member.name, API_VERSIONS] if began < at < cleared]
            run.counts["detected"] += bool(tries)
            party.most("detect_s", min(tries, default=float("inf")) - began)
    run.measure("recovery_s", cleared)
    run.settled()


def partitions_added(run: GroupRun) -> None:
    """The topic gets half as many partitions more, and they are written at once."""
    for _ in range(3 if run.long else 1):
        run.end_load()
        run.topics[run.topic] += 3
        run.stage.add_partitions(run.topic, run.topics[run.topic])
        run.start_load()
        run.counts["added"] += 3
        run.measure("new_partitions_s", now())
        run.settled()


def naps(run: GroupRun) -> None:
    """The application asks for nothing during two sessions."""
    ordered(run, f"nap {2 * run.fault.session_s}", run.parties)


def spins(run: GroupRun) -> None:
    """The application computes during two sessions, and lets nothing else run in its thread."""
    ordered(run, f"spin {2 * run.fault.session_s}", run.parties)


def ordered(run: GroupRun, order: str, parties: list[Party]) -> None:
    began = now()
    victims = [(party, member) for party, member in run.victims() if party in parties]
    for _, member in victims:
        member.tell(order)
        run.counts["orders"] += 1
    run.pause(2 * run.fault.session_s + 1)
    run.measure("recovery_s", now())
    run.settled()
    for party, member in victims:
        beats = [figure(began), *(at for at in run.stage.plan.asked[member.name, HEARTBEAT] if at > began), figure(now())]
        party.most("heartbeat_gap_s", max(b - a for a, b in itertools.pairwise(beats)))


def callbacks_misbehave(run: GroupRun) -> None:
    """What is called when partitions come raises, commits, or computes for five seconds: a member of each joins, and all rebalance."""
    ours = [party for party in run.parties if party.kind in ("managed", "native")]
    for name in CALLBACKS:
        for party in ours:
            run.join(party, callback=name)
        run.counts["callbacks"] += len(ours)
        run.ready()
    for party in ours:
        party.members[-1].leave()
    run.ready()


def static_churn(run: GroupRun) -> None:
    """A static member of each group stops or is killed, and comes back under its name within the session."""
    for turn in range(8 if run.long else 2):
        run.ready()
        happened = []
        for party, member in run.victims():
            (member.kill if turn % 2 else member.leave)()
            happened.append((party, member))
        for party, member in happened:
            run.wait(lambda m=member: m.status is not None, f"{member.name} ends")  # type: ignore[misc]
            run.join(party, instance=member.given.instance)
            run.counts["changes"] += 1
    run.ready()


def ended_members(stem: str, session_s: float, make: Callable[..., GroupFault] = GroupFault) -> tuple[GroupFault, GroupFault]:
    """F15: one that is killed, one that is frozen."""
    takeover = {"takeover_s": session_s + 5}
    return (
        make(
            f"{stem}-kill",
            "member killed, member leaves",
            killed_members,
            evidence=("kills", "takeovers", "handovers"),
            bars={**takeover, "leave_s": 3.0},
        ),
        make(f"{stem}-freeze", "member frozen for two sessions", frozen_members, evidence=("freezes", "takeovers"), bars=takeover),
    )


GROUP_FAULTS = {
    fault.id: fault
    for fault in (
        *ended_members("F15", SESSION_S),
        GroupFault(
            "F15-both",
            "one killed, one frozen",
            killed_and_frozen,
            evidence=("freezes", "kills", "takeovers"),
            bars={"takeover_s": SESSION_S + 5},
            short_kinds=("managed",),
            short=True,
        ),
        GroupFault(
            "F16",
            "coordinator killed, while one joins",
            coordinators_killed,
            evidence=("kills", "moves", "disconnects"),
            bars={"recovery_s": FAILOVER_S + 5},
        ),
        GroupFault(
            "F04",
            "rolling restart",
            rolling_restart,
            evidence=("restarts", "moves", "disconnects"),
            quiet=BOTH,
            session_s=10.0,
            short=True,
            short_kinds=("native",),
        ),
        *(
            GroupFault(
                f"F17-{name}",
                f"members come and go, {name}",
                churn,
                evidence=("changes",),
                members=2,
                bars={"unowned_s": 10.0},
                kinds=("native",) if "sticky" in name else ("managed", "native"),
                strategy=name,
                native_strategy=name,
                control=name != "sticky",  # librdkafka has no such assignor
                short=name == "cooperative-sticky",
            )
            for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
        ),
        GroupFault(
            "F17-static",
            "static members come and go",
            static_churn,
            evidence=("changes",),
            bars={"unowned_s": 10.0},
            kinds=("native",),
            strategy="cooperative-sticky",
            static=True,
        ),
        GroupFault("F08", "slow replies", slow_replies, evidence=("slow",), quiet=BOTH, session_s=10.0, errors=False),
        GroupFault(
            "F09",
            "bits flip in fetched records",
            flipped_bits,
            evidence=("flips",),
            kinds=("managed", "native", "simple"),
            quiet=BOTH,
            short=True,
            short_kinds=("native", "simple"),
        ),
        GroupFault(
            "F10",
            "half-open connections",
            half_open,
            evidence=("detected",),
            bars={"detect_s": REQUEST_S + 1, "recovery_s": RECONNECT_S + 2},
            kinds=("managed", "native", "simple"),
            client_options={"socket_timeout_ms": REQUEST_S * 1000},
            options={"request_timeout_ms": REQUEST_S * 1000},
            control_options={"socket.timeout.ms": int(REQUEST_S * 1000)},
        ),
        GroupFault(
            "F14-partitions",
            "partitions are added",
            partitions_added,
            evidence=("added",),
            bars={"new_partitions_s": METADATA_S + 5},
            client_options={"metadata_max_age_ms": METADATA_S * 1000},
        ),
        GroupFault(
            "F18-nap", "the application sleeps", naps, evidence=("orders",), bars={"heartbeat_gap_s": 2.0}, quiet=BOTH, errors=False
        ),
        GroupFault("F18-spin", "the application computes", spins, evidence=("orders",), quiet=("threading",)),
        GroupFault("F18-callback", "callbacks misbehave", callbacks_misbehave, evidence=("callbacks",), partitions=9, control=False),
    )
}
