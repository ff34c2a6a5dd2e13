"""client.get_consumer(topics, group): a member whose workers or callers are interrupted begins anew."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from gkafka import KafkaClient
from gkafka.consumer import Consumer
from gkafka.core.groupmachine import GroupMachine
from gkafka.core.groupstate import Ask
from gkafka.memberrequests import MemberRequests
from gkafka.membership import Member
from gkafka.testing import Drop, MockCluster
from gkafka.wire.consumergroups import ConsumerGroupHeartbeatRequest
from gkafka.wire.groups import HeartbeatRequest, JoinGroupRequest
from tests.public.aids import Runner
from tests.public.groupaids import FOUR, QUICK, Join, Told, cluster, join, owns, settle
from tests.public.test_interrupted_greenlets import Alarm, through

__all__ = ["cluster", "join"]

LASTING: dict[str, Any] = {**QUICK, "session_timeout_ms": 60_000, "auto_commit": False}
CLASSIC: dict[str, Any] = {**LASTING, "assignors": ["range"]}
KIP_848: dict[str, Any] = {"group_protocol": "consumer", "fetch_wait_max_ms": 50, "auto_commit": False}
BEATS = (HeartbeatRequest, ConsumerGroupHeartbeatRequest)


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Have a signal handler raise Alarm in the calling worker."""

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def once(patch: pytest.MonkeyPatch, kind: type, method: str, act: Callable[[], None], when: Callable[..., bool]) -> list[str]:
    """Act in front of the first call for which that holds, on a worker. Returns the names of the workers."""
    whole: Callable[..., Any] = getattr(kind, method)
    hits: list[str] = []

    def hit(*args: Any) -> Any:
        name = str(getattr(gevent.getcurrent(), "name", ""))
        if not hits and name.startswith("gkafka-") and when(*args):
            hits.append(name)
            act()
        return whole(*args)

    patch.setattr(kind, method, hit)
    return hits


def of(consumer: Consumer) -> dict[str, Any]:
    return consumer.stats()["group"]  # type: ignore[no-any-return]


def consume_until(consumer: Any, wanted: Callable[[], Any]) -> None:
    through(lambda: Runner("gevent").until(lambda: (consumer.consume_batch(timeout_ms=10), wanted())[1]))


@pytest.mark.parametrize("protocol", [CLASSIC, KIP_848], ids=["classic", "consumer"])
def test_a_heartbeat_that_was_not_sent_is_sent_again_and_that_is_counted_and_logged(
    cluster: MockCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    interrupt: Callable[[], None],
    protocol: dict[str, Any],
) -> None:
    caplog.set_level(logging.INFO, "gkafka")
    told = Told()
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        consumer = client.get_consumer("t", "g", **protocol, **told.listeners)
        consume_until(consumer, lambda: len(consumer.assignment()) == 4 and of(consumer)["state"] == "stable")
        hits = once(monkeypatch, MemberRequests, "send", interrupt, lambda _, ask: isinstance(ask.request, BEATS))
        consume_until(consumer, lambda: of(consumer)["restarts"] == 1 and of(consumer)["state"] == "stable")
        api = "Heartbeat" if protocol is CLASSIC else "ConsumerGroupHeartbeat"
        beats = len(cluster.requests(api))
        consume_until(consumer, lambda: len(cluster.requests(api)) > beats)
        assert hits == ["gkafka-group"]
        assert (of(consumer)["restarts"], of(consumer)["losses"], consumer.assignment()) == (1, 0, set(FOUR))
        assert told.all == [("assigned", [0, 1, 2, 3])]
        line = next(line for line in caplog.records if "begins anew" in line.getMessage())
        assert (line.levelname, "Alarm interrupted one of its workers" in line.getMessage()) == ("INFO", True)
        through(client.close)


def test_a_parked_join_is_sent_again_by_another_connection(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    cluster.on("JoinGroup", Drop(before=True), times=1)
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        consumer = through(lambda: client.get_consumer("t", "g", **CLASSIC))
        consume_until(consumer, lambda: cluster.requests("JoinGroup"))
        hits = once(monkeypatch, Member, "_drive", interrupt, lambda _: True)
        consumer._share._member._wake.set()  # type: ignore[union-attr]
        consume_until(consumer, lambda: len(consumer.assignment()) == 4)
        assert hits == ["gkafka-group"]
        through(client.close)


def test_a_callback_of_which_its_worker_did_not_hear_is_called(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    """The worker for requests was interrupted before it could wake the other one."""
    told, hits = Told(), list[None]()
    poll = GroupMachine.poll

    def interrupted(group: GroupMachine, now: float) -> Any:
        plan = poll(group, now)
        if plan.tell is not None and not hits:
            hits.append(None)
            interrupt()
        return plan

    monkeypatch.setattr(GroupMachine, "poll", interrupted)
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        consumer = through(lambda: client.get_consumer("t", "g", **CLASSIC, **told.listeners))
        consume_until(consumer, lambda: told.all)
        assert (hits, told.all) == ([None], [("assigned", [0, 1, 2, 3])])
        through(client.close)


def test_an_answer_that_was_lost_between_two_signals_is_asked_for_again(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[Ask] = []
    answered = Member._answered

    def losing(member: Member, ask: Ask, *answer: Any) -> None:
        if lost or not isinstance(ask.request, JoinGroupRequest):
            answered(member, ask, *answer)
        else:
            lost.append(ask)

    monkeypatch.setattr(Member, "_answered", losing)
    with KafkaClient(cluster.bootstrap, handler="gevent") as client:
        consumer = client.get_consumer("t", "g", **CLASSIC)
        consume_until(consumer, lambda: len(consumer.assignment()) == 4)
        assert (len(lost), of(consumer)["restarts"]) == (1, 1)
    assert [line.levelname for line in caplog.records if "an answer was lost" in line.getMessage()] == ["WARNING"]


class Hit(BaseException):
    """What a signal handler raises in a call."""


def test_a_stop_that_was_interrupted_in_the_middle_of_a_step_is_seen_through(
    cluster: MockCluster, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    member = join(**CLASSIC, **told.listeners)
    settle(run, lambda: len(member.assignment()) == 4 and owns(cluster, 1), member)
    inner = member._share._member  # type: ignore[union-attr]
    whole = GroupMachine._give_all_up
    hits = []

    def hit(group: GroupMachine, *args: Any, **options: Any) -> None:
        if not hits:
            hits.append(group)
            raise Hit
        whole(group, *args, **options)

    monkeypatch.setattr(GroupMachine, "_give_all_up", hit)
    with pytest.raises(Hit):
        member.stop()
    run.until(lambda: inner.ended)
    assert [request.message.members[0].member_id for request in cluster.requests("LeaveGroup")], "it said good-bye"
    assert inner.stats()["restarts"] == 1
    member.stop()
    assert told.all == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]


def test_a_bug_in_a_step_ends_the_member_and_whoever_consumes_is_told(
    cluster: MockCluster, join: Join, run: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = join(**CLASSIC)
    settle(run, lambda: len(member.assignment()) == 4, member)
    inner = member._share._member  # type: ignore[union-attr]

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(GroupMachine, "on_answer", fail)
    with pytest.raises(ZeroDivisionError):
        run.until(lambda: member.consume_batch(timeout_ms=10) and False)
    run.until(lambda: inner.ended)
    assert inner.stats()["restarts"] == 0
    assert "its member has failed and ends by ZeroDivisionError" in caplog.text
