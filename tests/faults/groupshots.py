"""F30-group: members of groups whose calls and workers are cut off anywhere, while connections live a second."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.faults.groups import GroupFault, GroupRun
from tests.faults.parties import Party
from tests.faults.stage import Stuck, ZooKeeperStage

__all__ = ["SHOT_GROUPS"]

LIVE_S = {"long": (0.5, 1.5), "short": (0.3, 0.8)}
"""How long connections live."""
LEAST: Mapping[str, Mapping[str, int]] = {
    "long": {"signals": 250, "signals at workers": 50, "timeouts": 150, "kills": 100, "shots at workers": 50},
    "short": {"signals": 10, "signals at workers": 1, "timeouts": 5, "kills": 5, "shots at workers": 5},
}
"""Shots at each group."""
SHOTS = {"threading": ("signals", "workers"), "gevent": ("timeouts", "signals")}
NONE = {"threading": ("timeouts", "kills", "signals at workers"), "gevent": ("shots at workers",)}
"""What no member of these is hit by."""
LONGEST_S = 240.0
CALL_S = 30.0


def shot_at(run: GroupRun) -> None:
    """Every member is shot at by what is meant for it, until each group has had enough; then all of them go on undisturbed."""
    run.stage.plan.lifetime = LIVE_S[run.form.name]
    _tell(run, "fire")
    try:
        run.wait(lambda: not any(_missing(run, party) for party in run.parties), "every group is shot at", LONGEST_S)
    except Stuck as error:
        raise Stuck(f"{error}: {[(party.name, _missing(run, party), _said(party)) for party in run.parties]}") from None
    run.stage.plan.clear()
    _tell(run, "calm")
    run.wait(lambda: all(m.said.get("calm") for party in run.parties for m in party.there), "the fire ends")
    run.ready()
    for party in run.parties:
        _measure(run, party)


def _tell(run: GroupRun, order: str) -> None:
    for party in run.parties:
        for member in party.members:
            member.tell(order)


def _sum(party: Party, what: str) -> Counter[str]:
    return sum((Counter(member.said.get(what, {})) for member in party.members), Counter())


def _said(party: Party) -> list[Any]:
    return [[member.said.get(what) for what in ("shots", "restarts", "read", "mine", "error lines")] for member in party.members]


def _missing(run: GroupRun, party: Party) -> dict[str, int]:
    shots = _sum(party, "shots")
    if not _sum(party, "restarts").total():
        return {"restarts": 0}
    return {kind: shots[kind] for kind, least in LEAST[run.form.name].items() if kind not in NONE[party.client] and shots[kind] < least}


def _measure(run: GroupRun, party: Party) -> None:
    shots, restarts = _sum(party, "shots"), _sum(party, "restarts")
    figures = {**shots, **{f"{engine} restarts": count for engine, count in restarts.items()}, **_sum(party, "hit")}
    for name, count in figures.items():
        party.most(name, float(count))
    party.most("shots", float(sum(shots.values())))
    party.most("restarts", float(sum(restarts.values())))
    party.most("call_s", max(float(member.said["longest_s"]) for member in party.members))
    party.most("ended_workers", float(sum(len(member.said["ended workers"]) for member in party.members)))


_shot: Callable[..., GroupFault] = functools.partial(
    GroupFault,
    play=shot_at,
    evidence=("shots", "restarts"),
    bars={"call_s": CALL_S, "ended_workers": 0},
    members=2,
    least=1,
    shots=SHOTS,
    control=False,
)
SHOT_GROUPS = {
    fault.id: fault
    for fault in (
        _shot("F30-group", "members cut off anywhere", kinds=("eager", "native"), short_kinds=("native",), short=True),
        _shot("F30-848", "members cut off anywhere, KIP-848", kinds=("kip848",)),
        _shot("F30-managed", "members cut off anywhere, pykafka's", kinds=("managed",)),
        _shot("F30-zookeeper", "members cut off anywhere, ZooKeeper", kinds=("zookeeper",), stage=ZooKeeperStage, session_s=4.0),
    )
}
