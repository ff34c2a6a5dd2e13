"""Offsets that groups have committed: listed, altered, deleted, and reset by a rule, with a plan first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gkafka.admin.arguments import by_topic, check_names, check_partitions, check_topic_names, one_partition
from gkafka.admin.groups import GroupsAdmin
from gkafka.admin.requests import GROUP, made_of, parts_of
from gkafka.admin.topics import TopicsAdmin
from gkafka.brokererrors import GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition, UnstableOffsetCommit
from gkafka.checks import check_count, check_flag, check_isolation, check_mapping, check_name, check_offset, check_text
from gkafka.common import IsolationLevel, TopicPartition
from gkafka.core.offsets import commit_request, fetch_request, read_commit
from gkafka.exceptions import AdminError, ConfigurationError, KafkaException, error_for
from gkafka.wire.groupadmin import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from gkafka.wire.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, OffsetFetchRequest

__all__ = ["FoundOffset", "GroupOffset", "OffsetReset", "OffsetsAdmin"]

EARLIEST, LATEST = -2, -1
BY_NAME = 9
"""OffsetFetch and OffsetCommit: the newest version that names topics, not their ids alone."""


class FoundOffset(NamedTuple):
    """offset, timestamp (ms since the epoch), leader_epoch: -1 each where there is none, the timestamp also for the ends of a log."""

    offset: int
    timestamp: int
    leader_epoch: int


class GroupOffset(NamedTuple):
    """offset: the next one to consume, -1 where nothing is committed. leader_epoch: -1 where the committer did not say (KIP-320)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetReset(NamedTuple):
    """What a reset does to a partition. before: what is committed, -1 for nothing. after: what will be. earliest, latest: the log's ends."""

    before: int
    after: int
    earliest: int
    latest: int


class OffsetsAdmin(GroupsAdmin, TopicsAdmin):
    """The calls about groups' offsets."""

    def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        *,
        isolation: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Offsets for times: {("orders", 0): -2 earliest, -1 latest, or ms since the epoch}. -1 where no record is that new.

        Item errors: UnknownTopicOrPartition, TopicAuthorizationFailed, LeaderNotFoundError of a partition without a leader (after a second, in
        which an election may end), ...
        """
        return made_of(lambda: self.find_offsets(wanted, isolation=isolation, timeout=timeout), _offsets)

    def find_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        *,
        isolation: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FoundOffset]:
        """list_offsets() with the time and the leader epoch of what was found; -3: the newest record by its time (3.0 and newer)."""
        asked = {
            one_partition(tp): check_count("timestamp", time, low=-5, high=(1 << 63) - 1)
            for tp, time in check_mapping("wanted", wanted, '{("orders", 0): -1}').items()
        }
        return self._found_at(asked, int(check_isolation("isolation", isolation)), self._requests.begin(timeout))

    def _found_at(self, asked: Mapping[TopicPartition, int], isolation_level: int, deadline: float) -> dict[TopicPartition, FoundOffset]:
        def request_of(mine: list[TopicPartition]) -> ListOffsetsRequest:
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=p, timestamp=asked[TopicPartition(name, p)]) for p in numbers],
                )
                for name, numbers in by_topic(mine).items()
            ]
            return ListOffsetsRequest(isolation_level=isolation_level, topics=topics)

        def read(response: Any, mine: list[TopicPartition], broker: str) -> dict[TopicPartition, FoundOffset | KafkaException]:
            found: dict[TopicPartition, FoundOffset | KafkaException] = {}
            for topic in response.topics:
                for p in topic.partitions:
                    error = error_for(p.error_code, topic=topic.name, partition=p.partition_index, broker=broker, api="ListOffsets")
                    found[TopicPartition(topic.name, p.partition_index)] = (
                        FoundOffset(p.found, p.timestamp, p.leader_epoch) if error is None else error
                    )
            return found

        def attempt(left: list[TopicPartition]) -> dict[TopicPartition, FoundOffset | KafkaException]:
            return self._requests.by_broker(left, self._requests.leaders(left, deadline), request_of, read, deadline)

        return self._requests.settle("looking offsets up", asked, attempt, deadline)

    def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, GroupOffset]:
        """What a group has committed. partitions: of these, offset -1 where there is nothing; None: all that there is.

        require_stable: wait for the end of a transaction that may move it, as consumers do (KIP-447); else what stands is told at once.
        A group that nobody knows has committed nothing. Raises GroupAuthorizationFailed, ...; item errors: TopicAuthorizationFailed, ...
        """
        name = check_name("group", group)
        wanted = None if partitions is None else check_partitions(partitions)
        return self._committed(name, wanted, self._requests.begin(timeout), stable=check_flag("require_stable", require_stable))

    def list_offsets_of_groups(
        self, groups: Iterable[str], *, require_stable: bool = False, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """What each group has committed, all asked for together. require_stable: as of list_group_offsets().

        Item errors, by group: GroupAuthorizationFailed, ...; an AdminError of its own where a part of a group's partitions failed.
        """
        names = check_names("groups", groups)
        stable = check_flag("require_stable", require_stable)
        told = self._committed_of(names, None, self._requests.begin(timeout), stable=stable)
        errors = {group: outcome for group, outcome in told.items() if isinstance(outcome, KafkaException)}
        results = {group: outcome for group, outcome in told.items() if not isinstance(outcome, KafkaException)}
        return self._requests.all_or_error("asking for offsets", errors, results)

    def _committed(
        self, group: str, wanted: list[TopicPartition] | None, deadline: float, *, stable: bool = False
    ) -> dict[TopicPartition, GroupOffset]:
        """Raises the error of the group itself, and AdminError for partitions."""
        outcome = self._committed_of([group], wanted, deadline, stable=stable)[group]
        if isinstance(outcome, KafkaException):
            raise outcome
        return outcome

    def _committed_of(
        self, groups: list[str], wanted: list[TopicPartition] | None, deadline: float, *, stable: bool
    ) -> dict[str, dict[TopicPartition, GroupOffset] | KafkaException]:
        """Of each group what it has committed, or its error: an AdminError if only partitions failed. wanted: None for all that there is."""
        answers: dict[str, dict[TopicPartition, GroupOffset | KafkaException]] = {}
        # Who does not want them stable is not told that they are unstable, unless by a broker that always says so.
        final = (UnknownTopicOrPartition,) if stable else (UnknownTopicOrPartition, UnstableOffsetCommit)

        def request_of(mine: list[str]) -> OffsetFetchRequest:
            if wanted is None:
                return OffsetFetchRequest(group_id=mine[0], topics=None, require_stable=stable)
            return fetch_request(mine[0], wanted, stable=stable)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, dict[TopicPartition, GroupOffset | KafkaException]]:
            found = answers[mine[0]] = _read_committed(response, mine[0], wanted, broker)
            again = [e for e in found.values() if isinstance(e, KafkaException) and e.retriable and not isinstance(e, final)]
            if again:
                raise again[0]
            return {mine[0]: found}

        def attempt(left: list[str]) -> dict[str, dict[TopicPartition, GroupOffset | KafkaException] | KafkaException]:
            places = self._requests.coordinators(left, GROUP, deadline)
            return self._requests.by_broker(
                left, places, request_of, read, deadline, max_version=BY_NAME, most=1
            )  # older ones take one group

        what = f"asking for offsets of group {groups[0]!r}" if len(groups) == 1 else "asking for offsets"
        results, errors = parts_of(lambda: self._requests.settle(what, groups, attempt, deadline, final=final))
        told: dict[str, dict[TopicPartition, GroupOffset] | KafkaException] = {}
        for group in groups:
            found = results.get(group, answers.get(group))
            told[group] = errors[group] if found is None else self._of_partitions(group, found, wanted)
        return told

    def _of_partitions(
        self, group: str, told: dict[TopicPartition, GroupOffset | KafkaException], wanted: list[TopicPartition] | None
    ) -> dict[TopicPartition, GroupOffset] | KafkaException:
        missing = [tp for tp in wanted or () if tp not in told]
        errors = {tp: answer for tp, answer in told.items() if isinstance(answer, KafkaException)}
        results = {tp: answer for tp, answer in told.items() if isinstance(answer, GroupOffset)} | dict.fromkeys(missing, GroupOffset(-1))
        try:
            return self._requests.all_or_error(f"offsets of group {group!r}", errors, dict(sorted(results.items())))
        except AdminError as exc:
            return exc

    def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | GroupOffset], *, timeout: float | None = None
    ) -> None:
        """Commit offsets in the name of a group that has no members: the next ones to consume.

        Raises NonEmptyGroup while it has members. Item errors: UnknownTopicOrPartition, TopicAuthorizationFailed, ...
        """
        name = check_name("group", group)
        wanted = {one_partition(tp): _group_offset(value) for tp, value in check_mapping("offsets", offsets, '{("orders", 0): 70}').items()}
        deadline = self._requests.begin(timeout)
        self._check_empty(name, deadline)
        self._commit(name, wanted, deadline)

    def _commit(self, group: str, wanted: Mapping[TopicPartition, GroupOffset], deadline: float) -> dict[TopicPartition, None]:
        def attempt(left: list[TopicPartition]) -> Mapping[TopicPartition, KafkaException | None]:
            named = {tp: (wanted[tp].offset, wanted[tp].metadata) for tp in left}
            request = commit_request(group, named, epochs={tp: wanted[tp].leader_epoch for tp in left})
            place = self._requests.coordinators([group], GROUP, deadline)[group]
            return self._requests.by_broker(
                left,
                dict.fromkeys(left, place),
                lambda _: request,
                lambda r, _, broker: read_commit(r, group=group, broker=broker),
                deadline,
            )

        return self._requests.settle(f"committing offsets of group {group!r}", wanted, attempt, deadline)

    def delete_group_offsets(self, group: str, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None) -> None:
        """Forget what a group has committed. Raises GroupIdNotFound; item errors: GroupSubscribedToTopic while a member reads it, ..."""
        name = check_name("group", group)
        wanted = check_partitions(partitions)
        deadline = self._requests.begin(timeout)

        def request_of(_: list[str]) -> OffsetDeleteRequest:
            topics = [
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in numbers])
                for topic, numbers in by_topic(wanted).items()
            ]
            return OffsetDeleteRequest(group_id=name, topics=topics)

        def read(response: Any, mine: list[str], broker: str) -> dict[str, dict[TopicPartition, KafkaException | None]]:
            about = {"group": name, "broker": broker, "api": "OffsetDelete"}
            error = error_for(response.error_code, **about)
            if error is not None:
                raise error
            return {
                name: {
                    TopicPartition(t.name, p.partition_index): error_for(p.error_code, topic=t.name, partition=p.partition_index, **about)
                    for t in response.topics
                    for p in t.partitions
                }
            }

        told = self._of_group("deleting offsets", name, request_of, read, deadline)
        errors = {tp: answer for tp, answer in told.items() if isinstance(answer, KafkaException)}
        self._requests.all_or_error(f"deleting offsets of group {name!r}", errors, dict.fromkeys(told.keys() - errors.keys()))

    def reset_group_offsets(
        self,
        group: str,
        topics: Iterable[str] | None = None,
        *,
        partitions: Iterable[tuple[str, int]] | None = None,
        to: str | int | None = None,
        to_time: int | datetime | None = None,
        shift_by: int | None = None,
        dry_run: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Plan where a group shall go on, and with dry_run=False have it do so. Returns the plan in either case.

        topics, partitions: of which, both together are joined; None: of all that the group has committed. One of the three says where to:
        to: "earliest", "latest" or an offset. to_time: the first record at or after it, the end where there is none; ms since the epoch, or a
        datetime with a time zone. shift_by: so many records on, or back if negative. What lies outside of the log is moved to its end.
        Raises NonEmptyGroup where the group has members and dry_run is False, GroupIdNotFound where nothing is named and nothing committed, the
        error of a topic that cannot be looked at; nothing is reset then. Item errors: UnknownTopicOrPartition, LeaderNotFoundError; ConfigurationError
        of a partition to shift that nothing is committed for. The others are planned, and reset.
        """
        name = check_name("group", group)
        check_flag("dry_run", dry_run)
        rule = _Rule.of(to, to_time, shift_by)
        named = [] if topics is None else check_topic_names(topics)
        single = [] if partitions is None else check_partitions(partitions)
        deadline = self._requests.begin(timeout)
        wanted = (
            None if topics is None and partitions is None else sorted({*single, *(self._partitions_of(named, deadline) if named else [])})
        )
        committed, errors = parts_of(lambda: self._committed(name, wanted, deadline))
        if wanted is None and not (committed or errors):
            raise GroupIdNotFound(f"group {name!r} has committed nothing: name the topics, or check the name", group=name)
        plan = self._plan(committed, rule, deadline, errors)
        if not dry_run and plan:
            self._check_empty(name, deadline)
            _, refused = parts_of(lambda: self._commit(name, {tp: GroupOffset(reset.after) for tp, reset in plan.items()}, deadline))
            errors |= refused
        done = {tp: reset for tp, reset in plan.items() if tp not in errors}
        return self._requests.all_or_error("planning a reset" if dry_run else f"resetting offsets of group {name!r}", errors, done)

    def _plan(
        self, committed: Mapping[TopicPartition, GroupOffset], rule: _Rule, deadline: float, errors: dict[TopicPartition, KafkaException]
    ) -> dict[TopicPartition, OffsetReset]:
        """Of all that can be planned; why the others cannot goes to errors."""

        def offsets_at(time: int | None) -> dict[TopicPartition, int]:
            asked = {} if time is None else dict.fromkeys((tp for tp in committed if tp not in errors), time)
            found, failed = parts_of(lambda: self._found_at(asked, 0, deadline))
            errors.update(failed)
            return _offsets(found)

        earliest, latest, timed = offsets_at(EARLIEST), offsets_at(LATEST), offsets_at(rule.time)
        plan: dict[TopicPartition, OffsetReset] = {}
        for tp, offset in committed.items():
            if tp in errors:
                continue
            if rule.shift is not None and offset.offset < 0:
                text = f"{tp.topic}-{tp.partition}: nothing is committed, so there is nothing to shift: give to= or to_time="
                errors[tp] = ConfigurationError(text, topic=tp.topic, partition=tp.partition)
                continue
            aim = rule.aim(offset.offset, earliest[tp], latest[tp], timed.get(tp, -1))
            plan[tp] = OffsetReset(offset.offset, min(max(aim, earliest[tp]), latest[tp]), earliest[tp], latest[tp])
        return plan

    def _check_empty(self, group: str, deadline: float) -> None:
        """A group that nobody knows is empty."""
        try:
            with self._requests.alone():
                described = self.describe_groups([group], timeout=self._requests.left(deadline))[group]
        except GroupIdNotFound:
            return
        if described.members:
            hosts = ", ".join(sorted({f"{m.client_id} on {m.host}" for m in described.members}))
            there = "1 member" if len(described.members) == 1 else f"{len(described.members)} members"
            raise NonEmptyGroup(f"group {group!r} has {there}: stop them first ({hosts})", group=group)

    def _of_group(self, what: str, group: str, request_of: Any, read: Any, deadline: float) -> dict[TopicPartition, Any]:
        """What a group's coordinator tells, as a whole. Raises the error of the group itself."""

        def attempt(left: list[str]) -> dict[str, Any]:
            outcomes = self._requests.by_broker(
                left, self._requests.coordinators(left, GROUP, deadline), request_of, read, deadline, max_version=BY_NAME
            )
            if isinstance(outcomes.get(group), KafkaException):
                raise outcomes[group]
            return outcomes

        told: dict[TopicPartition, Any] = self._requests.settle(f"{what} of group {group!r}", [group], attempt, deadline)[group]
        return told


class _Rule(NamedTuple):
    """Where to. end: EARLIEST or LATEST; offset, time (ms), shift: as given; one of them is there."""

    end: int | None
    offset: int | None
    time: int | None
    shift: int | None

    @classmethod
    def of(cls, to: Any, to_time: Any, shift_by: Any) -> _Rule:
        if [to, to_time, shift_by].count(None) != 2:
            raise ConfigurationError("give one of to=, to_time= and shift_by=: where shall the group go on?")
        if to_time is not None:
            return cls(None, None, _milliseconds(to_time), None)
        if shift_by is not None:
            return cls(None, None, None, check_count("shift_by", shift_by, low=-(1 << 63), high=(1 << 63) - 1))
        if isinstance(to, str):
            if to not in ("earliest", "latest"):
                raise ConfigurationError(f"to={to!r}: must be 'earliest', 'latest' or an offset")
            return cls(EARLIEST if to == "earliest" else LATEST, None, None, None)
        return cls(None, check_offset("to", to), None, None)

    def aim(self, committed: int, earliest: int, latest: int, timed: int) -> int:
        """The offset, which may lie outside of the log. timed: that of the time, -1 where no record is that new."""
        if self.end is not None:
            return earliest if self.end == EARLIEST else latest
        if self.offset is not None:
            return self.offset
        if self.time is not None:
            return timed if timed >= 0 else latest
        return committed + (self.shift or 0)


def _offsets(found: Mapping[TopicPartition, FoundOffset]) -> dict[TopicPartition, int]:
    return {tp: one.offset for tp, one in found.items()}


def _read_committed(
    response: Any, group: str, wanted: list[TopicPartition] | None, broker: str
) -> dict[TopicPartition, GroupOffset | KafkaException]:
    """What an answer tells of one group: of what was wanted, None for all. Raises the error of the group."""
    about = {"group": group, "broker": broker, "api": "OffsetFetch"}
    (answer,) = response.answers
    error = error_for(answer.error_code, **about)
    if error is not None:
        raise error
    asked = None if wanted is None else frozenset(wanted)
    found: dict[TopicPartition, GroupOffset | KafkaException] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if asked is not None and tp not in asked:
                continue
            problem = error_for(p.error_code, topic=topic.name, partition=p.partition_index, **about)
            found[tp] = GroupOffset(p.committed_offset, p.metadata or "", p.committed_leader_epoch) if problem is None else problem
    return found


def _milliseconds(time: Any) -> int:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ConfigurationError(f"to_time={time!r}: has no time zone: give it one, such as tzinfo=timezone.utc")
        return int(time.timestamp() * 1000)
    return check_count("to_time", time, low=0, high=(1 << 63) - 1)


def _group_offset(given: Any) -> GroupOffset:
    offset = given if isinstance(given, GroupOffset) else GroupOffset(given)
    return GroupOffset(check_offset("offset", offset.offset), check_text("metadata", offset.metadata), offset.leader_epoch)
