"""What is known of the cluster, and how often it is asked: brokers, leaders, epochs, unknown topics, storms."""

from __future__ import annotations

import itertools
import uuid
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gkafka.core.backoff import Backoff
from gkafka.core.metadata import NO_TOPIC_ID, SLICE, BrokerInfo, Metadata, PartitionInfo, read_topics
from gkafka.exceptions import InvalidTopic, UnknownTopicOrPartition
from gkafka.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from tests.core.fakes import TOPIC_ID, metadata, told

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC = 3, 5, 17
NEVER = float("inf")


class Rig:
    """The machine with a clock, and a broker that answers at once what it is told to."""

    def __init__(self, *, auto_create: bool = True, max_age_s: float = 300, max_idle_s: float = 300, seed: int = 1) -> None:
        self.metadata = Metadata(
            max_age_s=max_age_s, max_idle_s=max_idle_s, backoff=Backoff(0.1, 1.0), chance=Random(seed), auto_create=auto_create
        )
        self.now = 1000.0
        self.asked: list[tuple[float, MetadataRequest]] = []

    def due(self) -> float:
        return self.metadata.due(self.now)

    def ask(self) -> MetadataRequest:
        assert self.due() <= self.now
        request = self.metadata.request()
        self.asked.append((self.now, request))
        return request

    def round(self, answer: MetadataResponse) -> MetadataRequest:
        """Wait until a request is due, send it, take the answer."""
        assert self.due() < NEVER
        self.now = max(self.now, self.due())
        request = self.ask()
        self.metadata.on_response(request, answer, self.now)
        return request

    def names(self, request: MetadataRequest) -> list[str | None] | None:
        return None if request.topics is None else [topic.name for topic in request.topics]


def test_nothing_is_asked_before_somebody_wants_something() -> None:
    rig = Rig()
    assert rig.due() == NEVER
    assert rig.metadata.add_topics(["t"])
    assert rig.due() <= rig.now
    assert rig.names(rig.ask()) == ["t"]


def test_the_interest_is_asked_for_by_name_and_lets_the_broker_create_topics_only_if_told_so() -> None:
    for auto_create in (True, False):
        rig = Rig(auto_create=auto_create)
        rig.metadata.add_topics(["b", "a"])
        request = rig.ask()
        assert rig.names(request) == ["a", "b"]
        assert request.allow_auto_topic_creation is auto_create


def missing(*names: str) -> MetadataResponse:
    """An answer that knows none of these topics."""
    return MetadataResponse(topics=[MetadataResponseTopic(name=name, error_code=UNKNOWN_TOPIC) for name in names])


def test_a_topic_that_was_deleted_is_made_again_only_for_records_that_wait_or_who_asks_for_it_by_name() -> None:
    rig = Rig(auto_create=True)
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}))
    gone = missing("t")
    rig.metadata.invalidate()
    assert rig.round(gone).allow_auto_topic_creation is False, "it was there"
    assert rig.round(gone).allow_auto_topic_creation is False
    rig.metadata.forget_topic("t")
    rig.metadata.add_topics(["t"])
    assert rig.round(gone).allow_auto_topic_creation is False
    rig.metadata.add_topics(["t"], written_at=rig.now)
    assert rig.round(gone).allow_auto_topic_creation is False, "no record waits for it"
    rig.metadata.add_topics(["t"], written_at=rig.now, awaited=True)
    assert rig.round(gone).allow_auto_topic_creation is True
    assert rig.round(gone).allow_auto_topic_creation is False, "those who wait say so once more after each answer"
    rig.metadata.forget_topic("t")
    rig.metadata.add_topics(["t"], anew=True)
    assert rig.round(gone).allow_auto_topic_creation is True


def test_a_topic_that_was_only_written_to_and_is_gone_is_not_asked_for_any_more() -> None:
    rig = Rig(max_age_s=10, max_idle_s=1e6)
    rig.metadata.add_topics(["t"], written_at=rig.now)
    rig.round(told({0: 1}))
    rig.metadata.invalidate()
    assert rig.names(rig.round(missing("t"))) == ["t"]
    request = rig.round(missing())
    assert (rig.names(request), request.allow_auto_topic_creation) == ([], False)
    assert rig.asked[-1][0] - rig.asked[-2][0] >= 10, "only the brokers are asked for, when they are old"
    assert not rig.metadata.wrote("t", rig.now)
    rig.metadata.add_topics(["t"], written_at=rig.now, awaited=True)
    request = rig.round(told({0: 1}))
    assert (rig.names(request), request.allow_auto_topic_creation) == (["t"], True)


def test_a_topic_that_nobody_writes_to_is_forgotten_and_the_next_write_says_so() -> None:
    rig = Rig(max_age_s=100, max_idle_s=250)
    rig.metadata.add_topics(["t"], written_at=rig.now)
    rig.metadata.add_topics(["read"])
    both = told({0: 1})
    both.topics += told({0: 1}, topic="read").topics
    for _ in range(3):
        rig.round(both)
    assert rig.metadata.topic("t") is not None
    assert rig.metadata.wrote("t", rig.now)
    for _ in range(2):
        rig.round(both)
        assert rig.metadata.topic("t") is not None, "250 s count from the last write"
    rig.round(both)
    assert rig.metadata.topic("t") is None
    assert rig.metadata.leader("t", 0) is None
    assert rig.names(rig.round(told({0: 1}, topic="read"))) == ["read"]
    assert not rig.metadata.wrote("t", rig.now)
    assert rig.metadata.wrote("read", rig.now)


def test_what_somebody_else_asked_for_too_is_kept_whoever_came_first() -> None:
    rig = Rig(max_age_s=100, max_idle_s=1)
    rig.metadata.add_topics(["a"], written_at=rig.now)
    rig.metadata.add_topics(["a", "b"])
    rig.metadata.add_topics(["b"], written_at=rig.now)
    for _ in range(3):
        assert rig.names(rig.round(told({0: 1}))) == ["a", "b"]


def test_what_a_call_or_a_record_waits_for_is_not_forgotten() -> None:
    rig = Rig(max_age_s=100, max_idle_s=1)
    rig.metadata.waiting = {"called": 1}
    for _ in range(5):
        rig.metadata.add_topics(["called"], written_at=0.0)
        rig.metadata.add_topics(["record"], written_at=0.0, awaited=True)
        assert rig.names(rig.round(missing("called", "record"))) == ["called", "record"]


def test_a_topic_that_is_forgotten_stays_in_a_list_of_all_topics() -> None:
    rig = Rig(max_age_s=100, max_idle_s=1)
    rig.metadata.add_topics(["t"], written_at=rig.now)
    rig.metadata.want_everything()
    rig.round(told({0: 1}))
    rig.round(told({0: 1}))
    assert rig.metadata.topic("t") is not None
    assert not rig.metadata.wrote("t", rig.now), "a producer has it asked for again"
    assert rig.names(rig.round(missing())) == []


def test_a_request_that_may_make_a_topic_names_none_that_may_not_be_made() -> None:
    """Another topic's creation must not bring back what was deleted; each of the two kinds has its turn."""
    rig = Rig()
    rig.metadata.add_topics(["read"])
    rig.round(told({0: 1}, topic="read"))
    rig.metadata.invalidate()
    rig.round(missing("read"))
    rig.metadata.add_topics(["new"])
    rig.metadata.invalidate()
    seen = [(rig.names(request), request.allow_auto_topic_creation) for request in (rig.round(missing("read", "new")) for _ in range(4))]
    assert seen == [(["new"], True), (["read"], False)] * 2


def test_a_listing_of_everything_never_creates_a_topic() -> None:
    rig = Rig(auto_create=True)
    rig.metadata.want_everything()
    request = rig.ask()
    assert request.topics is None
    assert request.allow_auto_topic_creation is False


def test_a_listing_is_answered_by_its_own_request_and_by_no_other_that_was_under_way() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    under_way = rig.ask()
    listing = rig.metadata.want_everything()
    rig.metadata.on_response(under_way, told({0: 1}), rig.now)
    assert rig.metadata.listings < listing
    request = rig.round(told({0: 1}))
    assert request.topics is None
    assert rig.metadata.listings >= listing


def test_a_listing_that_was_asked_for_while_one_is_under_way_is_asked_anew() -> None:
    rig = Rig()
    first = rig.metadata.want_everything()
    under_way = rig.ask()
    second = rig.metadata.want_everything()
    rig.metadata.on_response(under_way, told({0: 1}), rig.now)
    assert first <= rig.metadata.listings < second
    assert rig.round(told({0: 1})).topics is None
    assert rig.metadata.listings >= second
    assert rig.due() > rig.now + 100


def test_a_listing_that_failed_is_still_wanted() -> None:
    rig = Rig()
    listing = rig.metadata.want_everything()
    rig.ask()
    rig.metadata.on_failure(rig.now)
    assert rig.round(told({0: 1})).topics is None
    assert rig.metadata.listings >= listing


@pytest.mark.parametrize("at", range(3))
def test_who_looks_while_an_answer_is_taken_in_sees_nothing_of_it(at: int) -> None:
    """Whoever waits for a list of all topics looks at them as soon as it is said to be there, and holds no lock."""
    rig = Rig()
    listing = rig.metadata.want_everything()
    rig.round(told({0: 1}, topic="old"))
    answer, seen = MetadataResponse(brokers=told({}).brokers), []

    class Looking(list[Any]):
        def __iter__(self) -> Any:
            seen.append((rig.metadata.listings > listing, set(rig.metadata.topics)))
            return super().__iter__()

    for number in range(3):
        answer.topics += told({0: 1}, topic=f"new{number}", topic_id=uuid.UUID(int=number + 1)).topics
    answer.topics[at].partitions = Looking(answer.topics[at].partitions)
    rig.metadata.want_everything()
    topics = rig.metadata.topics
    rig.round(answer)
    assert seen == [(False, {"old"})]
    assert (set(rig.metadata.topics), rig.metadata.listings) == ({"new0", "new1", "new2"}, listing + 1)
    assert set(topics) == {"old"}, "what somebody iterates over does not change"


def test_a_large_answer_is_read_in_slices() -> None:
    answer = told(dict.fromkeys(range(SLICE * 2), 1), topic="first")
    answer.topics += told(dict.fromkeys(range(SLICE // 2), 1), topic="second").topics
    sizes = [(sorted(topics), sum(len(topic.partitions) for topic in topics.values())) for topics in read_topics(answer)]
    assert len(sizes) == 3
    assert sizes[-1] == (["first", "second"], SLICE * 5 // 2)
    *_, topics = read_topics(answer, epochs=False)
    assert {p.leader_epoch for topic in topics.values() for p in topic.partitions.values()} == {-1}


def test_who_iterates_over_topics_is_not_disturbed_by_one_that_is_forgotten() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}))
    topics = rig.metadata.topics
    rig.metadata.forget_topic("t")
    assert list(topics) == ["t"]
    assert not rig.metadata.topics


def test_an_answer_tells_brokers_leaders_and_ids() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1, 1: 2}, epoch=4))
    known = rig.metadata
    assert sorted(known.brokers) == [1, 2, 3]
    assert (known.brokers[2].host, known.brokers[2].port) == ("h", 9002)
    assert known.leader("t", 0) == (1, 4)
    assert known.leader("t", 1) == (2, 4)
    assert known.leader("t", 9) is None
    assert known.leader("other", 0) is None
    assert known.topic_id("t") == TOPIC_ID
    assert known.names_by_id == {TOPIC_ID: "t"}
    assert known.controller_id == 1


def test_a_leader_whose_address_is_not_told_is_none() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 7}))
    assert rig.metadata.leader("t", 0) is None


def test_metadata_is_refreshed_when_it_is_old() -> None:
    rig = Rig(max_age_s=300)
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}))
    assert rig.due() == pytest.approx(rig.now + 300)
    rig.now += 301
    rig.round(told({0: 2}, epoch=2))
    assert rig.metadata.leader("t", 0) == (2, 2)


def test_a_broker_that_lags_behind_does_not_bring_an_older_leader_back() -> None:
    """KIP-320: the leader epoch decides whose word is newer."""
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 2}, epoch=5))
    for leader, epoch, expected in ((1, 4, (2, 5)), (1, 5, (1, 5)), (3, 6, (3, 6))):
        rig.metadata.invalidate()
        rig.round(told({0: leader}, epoch=epoch))
        assert rig.metadata.leader("t", 0) == expected


def test_partitions_of_which_nothing_older_was_told_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them would hold up all others."""
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told(dict.fromkeys(range(100), 1), epoch=3))
    compared: list[int] = []
    newer = Metadata._newer
    monkeypatch.setattr(
        Metadata, "_newer", lambda self, name, old, new, now: [compared.append(new.id), newer(self, name, old, new, now)][1]
    )
    rig.metadata.invalidate()
    rig.round(told(dict.fromkeys(range(100), 2), epoch=4))
    assert not compared
    assert {rig.metadata.leader("t", n) for n in range(100)} == {(2, 4)}


def test_without_epochs_the_last_answer_counts() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    for leader in (1, 2, 1):
        rig.metadata.invalidate()
        rig.round(told({0: leader}, epoch=-1))
        assert rig.metadata.leader("t", 0) == (leader, -1)


def test_an_older_epoch_counts_for_a_topic_that_was_made_anew() -> None:
    """A topic that is deleted and created again begins at epoch 0 under another id (KIP-516)."""
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 2}, epoch=9))
    answer = told({0: 1}, epoch=0)
    answer.topics[0].topic_id = uuid.UUID(int=8)
    rig.metadata.invalidate()
    rig.round(answer)
    assert rig.metadata.leader("t", 0) == (1, 0)
    assert rig.metadata.names_by_id == {uuid.UUID(int=8): "t"}


def test_a_partition_without_a_leader_is_asked_for_until_it_has_one() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: -1}))
    assert rig.metadata.leader("t", 0) is None
    assert rig.due() < rig.now + 1.3
    rig.round(told({0: 1}, epoch=2))
    assert rig.due() > rig.now + 100


def test_new_leaders_in_an_answer_are_taken_at_once() -> None:
    """KIP-951."""
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}, epoch=3))
    assert not rig.metadata.leader_moved("t", 0, 2, 3), "not newer than what is known"
    assert not rig.metadata.leader_moved("t", 0, 9, 4), "nobody told where broker 9 is"
    assert not rig.metadata.leader_moved("t", 5, 2, 4)
    assert not rig.metadata.leader_moved("other", 0, 2, 4)
    assert rig.metadata.leader("t", 0) == (1, 3)
    assert rig.metadata.leader_moved("t", 0, 2, 4)
    assert rig.metadata.leader("t", 0) == (2, 4)
    assert not rig.metadata.leader_moved("t", 0, 2, 4), "no news any more"


def test_an_answer_may_tell_where_a_leader_is_that_nobody_knew() -> None:
    """KIP-951: NodeEndpoints."""
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}, epoch=3))
    before = rig.metadata.brokers
    rig.metadata.add_brokers([BrokerInfo(9, "new", 9009), BrokerInfo(1, "elsewhere", 1)])
    assert rig.metadata.leader_moved("t", 0, 9, 4)
    assert rig.metadata.leader("t", 0) == (9, 4)
    assert (rig.metadata.brokers[9].host, rig.metadata.brokers[1].host) == ("new", "h"), "what metadata told of a broker stays"
    assert 9 not in before, "whoever iterates over it is not disturbed"


def test_a_leader_that_was_named_outlives_an_answer_that_does_not_know_it_yet() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}, epoch=3))
    rig.metadata.leader_moved("t", 0, 2, 4)
    rig.metadata.invalidate()
    rig.round(told({0: 1}, epoch=3))
    assert rig.metadata.leader("t", 0) == (2, 4)


# -- topics that are not there ---------------------------------------------------------------------------------------------
def test_an_unknown_topic_is_told_and_asked_again_with_growing_pauses() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    start = rig.now
    while rig.now < start + 10:
        rig.round(told({}, error=UNKNOWN_TOPIC))
        assert isinstance(rig.metadata.topic_error("t"), UnknownTopicOrPartition)
        assert rig.metadata.topic("t") is None
    assert 10 <= len(rig.asked) <= 16, "about one a second, after a quick start"
    assert [b[0] - a[0] < 0.5 for a, b in zip(rig.asked, rig.asked[1:], strict=False)][:2] == [True, True]


def test_a_topic_that_cannot_be_is_not_asked_for_again() -> None:
    rig = Rig()
    rig.metadata.add_topics(["no/such name"])
    rig.round(told({}, topic="no/such name", error=INVALID_TOPIC))
    assert isinstance(rig.metadata.topic_error("no/such name"), InvalidTopic)
    assert rig.due() > rig.now + 100


def test_a_topic_that_appears_settles() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({}, error=LEADER_NOT_AVAILABLE))
    rig.round(told({0: 1}))
    assert rig.metadata.topic("t") is not None
    assert rig.metadata.topic_error("t") is None
    assert not rig.metadata.add_topics(["t"]), "it is known: nothing to ask"
    assert rig.due() > rig.now + 100


def test_a_new_topic_does_not_wait_for_the_pause_after_another() -> None:
    rig = Rig()
    for n in range(20):
        rig.metadata.add_topics([f"t{n}"])
        assert rig.due() <= rig.now
        rig.round(MetadataResponse(brokers=told({}).brokers, topics=[t for i in range(n + 1) for t in told({0: 1}, topic=f"t{i}").topics]))
    assert rig.now == 1000.0


def test_a_new_topic_does_wait_for_the_pause_after_a_failure() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.ask()
    rig.metadata.on_failure(rig.now)
    rig.metadata.add_topics(["u"])
    assert rig.due() >= rig.now + 0.08


def test_a_topic_that_vanishes_from_a_listing_is_unknown() -> None:
    rig = Rig()
    rig.metadata.want_everything()
    rig.round(told({0: 1}))
    rig.metadata.want_everything()
    rig.round(told({0: 1}, topic="other"))
    assert rig.metadata.topic("t") is None
    assert sorted(rig.metadata.topics) == ["other"]
    assert list(rig.metadata.names_by_id.values()) == ["other"]


def test_a_topic_that_is_left_out_of_the_answer_it_was_asked_in_is_unknown_and_asked_again() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}))
    rig.metadata.invalidate()
    rig.round(MetadataResponse(brokers=told({}).brokers, topics=[]))
    assert rig.metadata.topic("t") is None
    assert rig.due() < rig.now + 1.3


def test_a_topic_that_another_request_did_not_ask_for_stays_known() -> None:
    rig = Rig()
    rig.metadata.want_everything()
    rig.round(told({0: 1}))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="other")])
    rig.metadata.on_response(asked, told({0: 1}, topic="other"), rig.now)
    assert rig.metadata.topic("t") is not None


def test_a_forgotten_topic_is_neither_known_nor_asked_for() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t", "u"])
    rig.round(told({0: 1}))
    rig.metadata.forget_topic("t")
    assert rig.metadata.topic("t") is None
    assert rig.metadata.names_by_id == {}
    rig.now = rig.due()
    assert rig.names(rig.ask()) == ["u"]


def test_a_topic_without_partitions_is_no_topic_yet() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({}))
    assert rig.metadata.topic("t") is None


def test_topics_without_ids_do_not_share_one() -> None:
    rig = Rig()
    topics = [MetadataResponseTopic(name=n, topic_id=NO_TOPIC_ID, partitions=told({0: 1}).topics[0].partitions) for n in "ab"]
    rig.metadata.want_everything()
    rig.round(MetadataResponse(brokers=told({}).brokers, topics=topics))
    assert rig.metadata.names_by_id == {}
    rig.metadata.forget_topic("a")
    assert rig.metadata.topic("b") is not None


# -- rates -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_a_storm_of_invalidations_costs_two_requests_a_second(seed: int) -> None:
    """G26: stale answers of many partitions, all the time."""
    rig = Rig(seed=seed)
    rig.metadata.add_topics(["t"])
    epoch, start = 1, rig.now
    while rig.now < start + 30:
        rig.metadata.invalidate()
        if rig.due() <= rig.now:
            epoch += 1
            rig.round(told({0: 1 + epoch % 3}, epoch=epoch))
        rig.now += 0.005
    times = [t - start for t, _ in rig.asked]
    assert len(times) <= 2.2 * 30
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.65, "and yet nobody waits long for a new leader"
    assert sum(t < 1.0 for t in times) <= 6


def test_a_single_stale_answer_is_followed_up_at_once() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    rig.round(told({0: 1}))
    rig.now += 10
    rig.metadata.invalidate()
    assert rig.due() <= rig.now


def test_without_a_broker_the_pauses_grow_to_a_second() -> None:
    rig = Rig()
    rig.metadata.add_topics(["t"])
    start, asked = rig.now, 0
    while rig.now < start + 20:
        rig.now = max(rig.now, rig.due())
        rig.ask()
        asked += 1
        rig.metadata.on_failure(rig.now)
    assert 18 <= asked <= 30


Step = tuple[str, int]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "forget", "invalidate", "list", "answer", "fail", "wait", "moved", "unknown"]), st.integers(0, 5)
        ),
        max_size=60,
    )
)
def test_whatever_happens_what_is_known_stays_consistent(steps: list[Step]) -> None:
    rig = Rig()
    known: Any = rig.metadata
    newest: dict[str, int] = {}
    for what, n in steps:
        name = f"t{n % 3}"
        if what == "add":
            known.add_topics([name])
        elif what == "forget":
            known.forget_topic(name)
            newest.pop(name, None)
        elif what == "invalidate":
            known.invalidate()
        elif what == "list":
            known.want_everything()
        elif what == "moved" and known.leader_moved(name, 0, 1 + n % 3, newest.get(name, 0) + 1):
            newest[name] = newest.get(name, 0) + 1
        elif what == "wait":
            rig.now += n
        elif rig.due() <= rig.now:
            request = rig.ask()
            if what == "fail":
                known.on_failure(rig.now)
            else:
                answer = told({0: 1 + n % 3}, topic=name, epoch=n, error=UNKNOWN_TOPIC if what == "unknown" else 0)
                answer.topics[0].topic_id = uuid.UUID(int=n % 3 + 1)
                gone = set(known.topics if request.topics is None else [t.name for t in request.topics]) - {name}
                known.on_response(request, answer, rig.now)
                newest = {k: v for k, v in newest.items() if k not in gone}
                newest[name] = max(newest.get(name, 0), n) if what != "unknown" else 0
        assert set(known.names_by_id.values()) <= set(known.topics)
        assert rig.due() >= known._retry.not_before
        for topic, epoch in newest.items():
            leader = known.leader(topic, 0)
            assert leader is None or leader[1] >= epoch, "a leader went back to an older epoch"


# -- new topics, alone -------------------------------------------------------------------------------------------------------
def test_a_topic_that_is_new_is_asked_for_alone() -> None:
    """5,000 topics, one after the other, are 5,000 short requests."""
    rig = Rig()
    for i in range(200):
        name = f"t{i}"
        rig.metadata.add_topics([name])
        assert rig.due() <= rig.now, "at once"
        assert rig.names(rig.round(told({0: 1}, topic=name))) == [name]
    assert all(rig.metadata.topic(f"t{i}") is not None for i in range(200))
    rig.metadata.invalidate()
    assert len(rig.names(rig.round(told({0: 1}, topic="t0"))) or []) == 200


def test_new_topics_do_not_put_off_the_refresh_of_the_others() -> None:
    rig = Rig(max_age_s=300)
    rig.metadata.add_topics(["a"])
    rig.round(told({0: 1}, topic="a"))
    begun = rig.now
    rig.now += 200
    rig.metadata.add_topics(["b"])
    rig.round(told({0: 1}, topic="b"))
    assert rig.due() == begun + 300
    assert rig.names(rig.round(told({0: 1}, topic="a"))) == ["a", "b"]


def test_a_new_topic_that_is_not_there_yet_is_asked_for_again_alone_with_pauses() -> None:
    rig = Rig()
    rig.metadata.add_topics(["a"])
    rig.round(told({0: 1}, topic="a"))
    rig.metadata.add_topics(["b"])
    pauses = []
    for _ in range(4):
        before = rig.now
        assert rig.names(rig.round(told({}, topic="b", error=UNKNOWN_TOPIC))) == ["b"]
        pauses.append(rig.now - before)
    assert pauses[1] < pauses[2] < pauses[3]
    rig.metadata.forget_topic("b")
    assert rig.due() > rig.now + 100


def test_a_request_for_a_new_topic_that_fails_is_made_again() -> None:
    rig = Rig()
    rig.metadata.add_topics(["a"])
    rig.round(told({0: 1}, topic="a"))
    rig.metadata.add_topics(["b"])
    rig.ask()
    rig.metadata.on_failure(rig.now)
    assert rig.names(rig.round(told({0: 1}, topic="b"))) == ["b"]


def test_what_is_out_of_date_is_asked_for_right_behind_what_is_new_and_may_be_made() -> None:
    """In one request a topic that was deleted, which nobody knows yet, would be made again."""
    rig = Rig()
    rig.metadata.add_topics(["a"])
    rig.round(told({0: 1}, topic="a"))
    rig.metadata.invalidate()
    rig.metadata.add_topics(["b"])
    began = rig.now
    assert rig.names(rig.round(told({0: 1}, topic="b"))) == ["b"]
    assert rig.names(rig.round(told({0: 1}, topic="a"))) == ["a", "b"]
    assert rig.now - began < 1.0


def test_without_a_right_to_make_topics_all_go_in_one_request() -> None:
    rig = Rig(auto_create=False)
    rig.metadata.add_topics(["a"])
    rig.round(told({0: 1}, topic="a"))
    rig.metadata.invalidate()
    rig.metadata.add_topics(["b"])
    assert rig.names(rig.round(told({0: 1}, topic="a"))) == ["a", "b"]


def test_an_answer_of_a_leader_may_come_while_the_metadata_are_taken_in() -> None:
    """Other workers take in what leaders answer, and hold no lock of the metadata's."""

    class Told(dict[int, PartitionInfo]):
        def __contains__(self, partition: object) -> bool:
            known.dispute("t", 1, 1, 0.0)
            return super().__contains__(partition)

    known = metadata({0: 1, 1: 1})
    known.dispute("t", 0, 1, 0.0)
    partitions = Told(known.topics["t"].partitions)
    topics = {"t": known.topics["t"]._replace(partitions=partitions)}
    known.on_response(MetadataRequest(topics=None), told({0: 1, 1: 1}), 0.0, topics)
    assert known.leader("t", 1) == (1, 1)
