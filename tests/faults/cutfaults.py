"""F14 and F27: offsets that begin anew, because a topic was made again under its name or an unclean election cut its log."""

from __future__ import annotations

import functools
from collections import Counter

from tests.faults.consumed import Place, slowest
from tests.faults.groups import GroupFault, GroupRun
from tests.faults.parties import Party
from tests.faults.stage import until
from tests.kit.clock import now

__all__ = ["CUT_FAULTS"]

METADATA_S = 5.0
FAILOVER_S = 5.0


def topic_made_again(run: GroupRun) -> None:
    """The topic is deleted under its readers and made again a moment later; a second topic is written and read all the time."""
    began = now()
    for _ in range(5 if run.long else 2):
        run.caught_up()
        run.stage.delete_topic(run.topic)
        run.pause(run.chance.uniform(0.2, 2.0) if run.counts["made"] % 2 else METADATA_S + 1)
        run.stage.create_topic(run.topic, partitions=run.topics[run.topic])
        run.counts["made"] += 1
        run.start_load()
        run.measure("new_topic_s", now())
        run.settled()
    for party in run.parties:
        beside = [read for diary in party.diaries() for read in diary.reads if read.term.place[0] != run.topic]
        party.most("beside_s", slowest(beside, began, now()))


def log_cut(run: GroupRun) -> None:
    """The topic has two replicas. The follower is killed; what is written then has the leader alone, and the groups read it. The leader is killed,
    the follower comes back and leads a log without that (an unclean election), and the old leader cuts its own when it comes back."""
    leader, follower = run.fault.nodes
    for _ in range(4 if run.long else 1):
        run.end_load()  # what is open when a log is cut is never closed, and read_committed waits for it
        until(lambda: run.stage.in_sync(run.topic, 2), "two replicas are in sync")
        # Markers are written beside the commit: a follower that has no end of a transaction would hide all that follows.
        until(lambda: run.stage.is_closed(run.topic), "the replicas have the ends of all transactions")
        run.stage.kill(follower)
        run.wait(lambda: run.stage.isolated(run.topic), "the leader has nobody in sync")
        run.start_load()
        run.goes_on()
        run.reads(200)
        run.caught_up()
        stood = {party: last_reads(run, party) for party in run.parties}
        run.stage.kill(leader)
        run.stage.restart(follower)
        run.counts["kills"] += 2
        run.wait(lambda at=follower: {*run.stage.leaders(run.topic).values()} == {at}, "the other node leads")  # type: ignore[misc]
        cut = run.stage.ends(run.topic)
        run.start_load()
        run.measure("recovery_s", now())
        for party, last in stood.items():
            note_cuts(run, party, {place: range(end, last[place] + 1) for place, end in cut.items()})
        run.stage.restart(leader)
        run.goes_on()
        leader, follower = follower, leader


def note_cuts(run: GroupRun, party: Party, cut: dict[Place, range]) -> None:
    """Whether its members were told of every offset that they had consumed and that is not there any more, of none that is, and once."""
    told = Counter((place, lost.start) for diary in party.diaries() for place, lost in diary.cuts)
    ends = {(place, lost.start): lost.stop for diary in party.diaries() for place, lost in diary.cuts}
    wrong = [place for place, lost in cut.items() if ends.get((place, lost.start), 0) < lost.stop or told[place, lost.start] > 1]
    party.figures["cuts"] = party.figures.get("cuts", 0) + sum(map(bool, cut.values()))
    party.figures["unnamed"] = party.figures.get("unnamed", 0) + len(wrong)


def last_reads(run: GroupRun, party: Party) -> dict[Place, int]:
    """The offset of the newest record of each place that the group has read."""
    newest: dict[Place, tuple[int, int]] = {}
    for diary in party.diaries():
        for read in diary.reads:
            newest[read.term.place] = max(newest.get(read.term.place, (-1, -1)), (read.id, read.offset))
    return {place: offset for place, (_, offset) in newest.items()}


_cut = functools.partial(
    GroupFault,
    play=log_cut,
    evidence=("kills", "cuts"),
    bars={"unnamed": 0.0, "recovery_s": FAILOVER_S + 5},
    partitions=3,
    nodes=(1, 2),
    session_s=30.0,  # two of three nodes are away for a while, and with them perhaps the coordinator: who has what shall stay
    configs={"unclean_leader_election_enable": "true", "min_insync_replicas": 1},
)
CUT_FAULTS = {
    fault.id: fault
    for fault in (
        GroupFault(
            "F14-recreated",
            "topic deleted and made again",
            topic_made_again,
            evidence=("made",),
            bars={"new_topic_s": METADATA_S + 5, "beside_s": 3.0},
            kinds=("managed", "native", "simple"),
            beside=3,
            control=False,
            client_options={"metadata_max_age_ms": METADATA_S * 1000},
        ),
        _cut("F27", "unclean election", kinds=("managed", "native", "simple")),
        _cut("F27-none", "unclean election, no reset", kinds=("native",), options={"auto_offset_reset": "none"}, control=False),
    )
}
