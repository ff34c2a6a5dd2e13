"""client.get_consumer(topics, group) on real brokers: members divide topics by way of the group's coordinator."""

from __future__ import annotations

import contextlib
import gc
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as Theirs

from gkafka import KafkaClient
from gkafka.broker import CONTROL
from gkafka.common import TopicPartition
from gkafka.consumer import Consumer
from gkafka.exceptions import CommitFailedError, ConsumerStoppedException, FencedInstanceId, UnsupportedVersion
from gkafka.wire.groups import JoinGroupRequest, JoinGroupRequestProtocol, LeaveGroupRequest, MemberIdentity
from tests.effort import one_of
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.live.sharing import LIMIT_S, add_partitions, fill, until
from tests.public.programs import Ended, play, with_values

Join = Callable[..., Consumer]
Seen = list[tuple[int, int]]


@pytest.fixture
def join(connect: Callable[..., KafkaClient]) -> Iterator[Join]:
    """Makes members, each with a client of its own; they are stopped after the test."""
    made: list[Consumer] = []

    def make(topics: Any, group: str, **options: Any) -> Consumer:
        client = connect(metadata_max_age_ms=options.pop("metadata_max_age_ms", 300_000))
        made.append(client.get_consumer(topics, group, **{"heartbeat_interval_ms": 300, "session_timeout_ms": 20_000, **options}))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def parts(*members: Consumer) -> list[list[int]]:
    """The partitions of each; the members go on asking for messages, as applications do, and get none."""
    return [sorted(tp.partition for tp in m.assignment()) for m in members]


def read(count: int, *members: Consumer, before: Callable[[], Any] | None = None) -> Seen:
    """(partition, offset) of the next `count` messages, whoever gets them; `before` comes between the calls."""
    got: Seen = []
    deadline = now() + LIMIT_S
    while len(got) < count:
        assert now() < deadline, f"{len(got)} of {count} messages; {parts(*members)}; {[m.stats() for m in members]}"
        for member in members:
            got += [(m.partition_id, m.offset) for m in member.consume_batch(timeout_ms=50)]
    return got


def settle(wanted: Callable[[], Any], *members: Consumer) -> None:
    """Let the members consume, nothing is there, until it is true."""

    def asked() -> Any:
        for member in members:
            assert member.consume_batch(timeout_ms=20) == []
        return wanted()

    until(asked)


@pytest.mark.parametrize("version", [*one_of("0.9.0.1", "0.10.2.2"), *one_of("4.2.0", "2.8.2")])
def test_members_divide_a_topic_and_take_over_from_who_leaves(
    version: str, join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    places = fill(peer, topic, 4)
    first = join(topic, group)
    assert sorted(read(40, first)) == places
    second = join(topic, group)
    settle(lambda: sorted(map(len, parts(first, second))) == [2, 2], first, second)
    more = fill(peer, topic, 4, first=10)
    assert sorted(read(40, first, second)) == more, "each once: what was consumed is committed when a partition is revoked"
    second.stop()
    settle(lambda: parts(first) == [[0, 1, 2, 3]], first)
    last = fill(peer, topic, 4, first=20)
    assert sorted(read(40, first)) == last
    first.stop()
    assert peer.committed(group, topic, 4) == dict.fromkeys(range(4), 30), "position == consumed after a clean stop"
    with pytest.raises(ConsumerStoppedException):
        second.consume()


@pytest.mark.parametrize("version", ["0.8.2.2"])
def test_brokers_without_groups_are_told_apart(version: str, join: Join, new_topic: Callable[..., str]) -> None:
    with pytest.raises(UnsupportedVersion, match="JoinGroup"):
        join(new_topic(1), "g")


@pytest.mark.parametrize("garbage", [b"\xff" * 7, b"\x00\x01\x00\x00\x00\x01\x00\x03abc\x7f\xff\xff\xff"], ids=["nonsense", "cut short"])
def test_a_member_whose_metadata_nobody_can_read_is_outlived(
    garbage: bytes,
    join: Join,
    peer: Peer,
    connect: Callable[..., KafkaClient],
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    """Kafka 4 answers each JoinGroup with UNKNOWN_SERVER_ERROR until that member is taken out of the group."""
    topic, group = new_topic(4), new_name("group")
    member = join(topic, group, assignors=["range"])
    settle(lambda: len(member.assignment()) == 4, member)
    stranger = connect()
    broker = stranger.cluster.get_group_coordinator(group)
    ask = JoinGroupRequest(group_id=group, session_timeout_ms=6000, rebalance_timeout_ms=6000, protocol_type="consumer")
    ask.protocols = [JoinGroupRequestProtocol(name="range", metadata=garbage)]
    ask.member_id = broker.call(("by hand", group), ask, timeout_s=LIMIT_S).member_id  # MEMBER_ID_REQUIRED comes with it
    parked = stranger.handler.spawn(broker.call, ("by hand", group), ask, timeout_s=LIMIT_S)
    settle(lambda: "tried again after UnknownError" in member.explain().group, member)
    broker.call(CONTROL, LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=ask.member_id)]), timeout_s=LIMIT_S)
    settle(lambda: len(member.assignment()) == 4 and member.stats()["group"]["state"] == "stable", member)
    assert parked.join(LIMIT_S)
    places = fill(peer, topic, 4)
    assert sorted(read(40, member)) == places


def test_with_cooperative_sticky_what_stays_is_not_interrupted(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    told: list[tuple[str, list[int]]] = []

    def note(what: str) -> Callable[..., None]:
        return lambda _, partitions: told.append((what, [tp.partition for tp in partitions]))

    first = join(topic, group, on_assigned=note("assigned"), on_revoked=note("revoked"), on_lost=note("lost"))
    settle(lambda: len(first.assignment()) == 4, first)
    second = join(topic, group)
    settle(lambda: sorted(map(len, parts(first, second))) == [2, 2], first, second)
    kept = parts(first)[0]
    assert [entry for entry in told if entry[1]] == [("assigned", [0, 1, 2, 3]), ("revoked", sorted({0, 1, 2, 3} - set(kept)))]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_with_confluents_and_kafka_pythons_members(
    assignor: str, join: Join, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(6), new_name("group")
    ours = [join(topic, group, assignors=[assignor]) for _ in range(2)]
    theirs: dict[str, Any] = {}
    if assignor != "sticky":  # librdkafka has the cooperative kind of it alone
        theirs["confluent"] = Theirs(
            {
                "bootstrap.servers": kafka.hosts,
                "group.id": group,
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "auto.offset.reset": "earliest",
            }
        )
        theirs["confluent"].subscribe([topic])
    with _quietly():
        theirs["kafka-python"] = _kafka_python(kafka.hosts, group, topic, assignor)
        _share(ours, theirs)
    places = fill(peer, topic, 6)
    assert sorted(read(60, *ours)) == places


def _share(ours: list[Consumer], theirs: dict[str, Any]) -> None:
    """All of them get partitions, each partition has one of them; the others' members leave."""
    try:
        wanted = len(ours) + len(theirs)

        def their_parts() -> list[list[int]]:
            found = []
            for name, consumer in theirs.items():
                if name == "confluent":
                    consumer.poll(0.02)
                else:
                    consumer.poll(20)
                found.append(sorted(tp.partition for tp in consumer.assignment()))
            return found

        def divided() -> bool:
            all_parts = [*parts(*ours), *their_parts()]
            return sorted(p for share in all_parts for p in share) == list(range(6)) and all(all_parts) and len(all_parts) == wanted

        settle(divided, *ours)
    finally:
        for consumer in theirs.values():
            consumer.close()
    settle(lambda: sorted(map(len, parts(*ours))) == [3, 3], *ours)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The warnings of kafka-python, and of sockets that it leaves open, are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            gc.collect()


def _kafka_python(hosts: str, group: str, topic: str, assignor: str) -> Any:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)
    return KafkaConsumer(
        topic,
        bootstrap_servers=hosts,
        group_id=group,
        partition_assignment_strategy=[next(each for each in assignors if each.name == assignor)],
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
    )


def test_topics_that_come_into_being_and_partitions_that_are_added_are_shared(
    join: Join, kafka: KafkaCluster, client: KafkaClient, peer: Peer, new_name: Callable[[str], str]
) -> None:
    stem, group = new_name("log"), new_name("group")
    client.create_topic(f"{stem}-a", 1)
    members = [join(re.compile(re.escape(stem) + "-.*"), group, metadata_max_age_ms=300) for _ in range(2)]
    settle(lambda: sorted(map(len, parts(*members))) == [0, 1], *members)
    client.create_topic(f"{stem}-b", 2)
    settle(lambda: sum(map(len, parts(*members))) == 3, *members)
    add_partitions(kafka.hosts, f"{stem}-a", 3)
    settle(lambda: sum(map(len, parts(*members))) == 5, *members)
    assert all(parts(*members))


def test_a_static_member_comes_back_to_its_partitions_and_its_double_is_fenced(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    told: list[Any] = []
    one = join(topic, group, group_instance_id="one", session_timeout_ms=20_000)
    two = join(topic, group, group_instance_id="two", session_timeout_ms=20_000, on_revoked=lambda c, p: told.append(p))
    settle(lambda: sorted(map(len, parts(one, two))) == [2, 2], one, two)
    had, kept, told[:] = parts(one)[0], parts(two)[0], []
    one.stop()
    again = join(topic, group, group_instance_id="one", session_timeout_ms=20_000)
    settle(lambda: parts(again)[0] == had, again, two)
    assert parts(two)[0] == kept
    assert told == [], "nothing was taken from the other one"
    double = join(topic, group, group_instance_id="one", session_timeout_ms=20_000)

    def fenced() -> bool:
        double.consume(20)
        try:
            again.consume(20)
        except FencedInstanceId:
            return True
        return False

    until(fenced)


def test_a_partition_is_given_back_when_the_application_has_finished_what_it_has(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 2)
    first = join(topic, group, assignors=["range"])
    got = read(20, first)
    second = join(topic, group, assignors=["range"])
    for _ in range(10):  # the application is at work with what it has, and says nothing
        assert second.consume(100) is None
    assert parts(second) == [[]]
    assert peer.committed(group, topic, 2) in ({0: -1001, 1: -1001}, {}, {0: -1, 1: -1}), "nothing of it is finished"
    settle(lambda: sorted(map(len, parts(first, second))) == [1, 1], first, second)
    assert peer.committed(group, topic, 2) == {0: 10, 1: 10}
    assert len(got) == 20


def test_an_application_that_is_silent_leaves_until_it_asks_again_and_cannot_commit_meanwhile(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    lost: list[list[TopicPartition]] = []
    fill(peer, topic, 2)
    slow = join(topic, group, max_poll_interval_ms=2000, auto_commit=False, on_lost=lambda c, partitions: lost.append(partitions))
    assert len(read(20, slow)) == 20
    other = join(topic, group, auto_commit=False)
    until(lambda: (other.consume_batch(timeout_ms=50) and False) or parts(other) == [[0, 1]])
    until(lambda: sorted(tp.partition for each in lost for tp in each) == [0, 1])
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        slow.commit({(topic, 0): 10, (topic, 1): 10})
    assert slow.stats()["group"]["losses"] == 1

    def back() -> bool:
        slow.consume_batch(timeout_ms=20)
        other.consume_batch(timeout_ms=20)
        return sorted(map(len, parts(slow, other))) == [1, 1]

    until(back)


def test_listeners_may_seek_pause_commit_and_stop(
    join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 2)
    committed: list[int] = []

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            consumer.seek(tp, 7)
        consumer.pause([tp for tp in partitions if tp.partition == 1])

    def on_revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit({tp: consumer.position(tp) for tp in partitions})
        committed.extend(consumer.committed(tp) for tp in partitions)

    consumer = join(topic, group, auto_commit=False, on_assigned=on_assigned, on_revoked=on_revoked)
    assert read(3, consumer) == [(0, 7), (0, 8), (0, 9)]
    assert consumer.paused() == {TopicPartition(topic, 1)}
    consumer.stop()
    assert committed == [10, 7]

    stopper = join(topic, group, on_assigned=lambda c, _: c.stop())
    until(lambda: stopper.closed)
    with pytest.raises(ConsumerStoppedException):
        stopper.consume()
    last = join(topic, group)
    assert sorted(read(3, last)) == [(1, 7), (1, 8), (1, 9)]


def test_a_transaction_commits_the_positions_of_a_member_and_not_those_of_one_that_was_replaced(
    join: Join, connect: Callable[..., KafkaClient], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, out, group = new_topic(1), new_topic(1), new_name("group")
    fill(peer, topic, 1)
    member = join(topic, group, auto_commit=False)
    read(10, member)
    stale = member.group_metadata()
    with connect().get_producer(transactional_id=new_name("tx")) as producer:
        with producer.transaction():
            producer.produce(out, b"made of it")
            producer.send_offsets(member.positions(), member.group_metadata())
        assert peer.committed(group, topic) == {0: 10}
        member.stop()
        other = join(topic, group, auto_commit=False)
        settle(lambda: parts(other) == [[0]], other)
        with pytest.raises(Exception, match=r"[Gg]eneration|member"), producer.transaction():
            producer.send_offsets({(topic, 0): 3}, stale)
    assert peer.committed(group, topic) == {0: 10}


# -- the groups of KIP-848 -------------------------------------------------------------------------------------------------------
def coordinated(join: Join) -> Join:
    """As join, with group_protocol="consumer"; the coordinator says how often to send a heartbeat."""

    def make(topics: Any, group: str, **options: Any) -> Consumer:
        return join(topics, group, group_protocol="consumer", heartbeat_interval_ms=3000, **{"session_timeout_ms": 45_000, **options})

    return make


@pytest.mark.parametrize("assignor", [None, "range"])
def test_group_protocol_consumer_has_the_coordinator_divide_as_group_remote_assignor_says(
    assignor: str | None, join: Join, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    member = coordinated(join)
    places = fill(peer, topic, 4)
    first = member(topic, group, group_remote_assignor=assignor)
    assert sorted(read(40, first)) == places
    second = member(topic, group, group_remote_assignor=assignor)
    settle(lambda: sorted(map(len, parts(first, second))) == [2, 2], first, second)
    if assignor == "range":
        assert sorted(parts(first, second)) == [[0, 1], [2, 3]]
    more = fill(peer, topic, 4, first=10)
    assert sorted(read(40, first, second)) == more, "each once: what was consumed is committed before a partition is given back"
    second.stop()
    settle(lambda: parts(first) == [[0, 1, 2, 3]], first)
    last = fill(peer, topic, 4, first=20)
    assert sorted(read(40, first)) == last
    first.stop()
    assert peer.committed(group, topic, 4) == dict.fromkeys(range(4), 30)


ENDS = """
import os, sys
from gkafka import KafkaClient
client = KafkaClient(HOSTS, handler=HANDLER)
consumer = client.get_consumer(TOPIC, GROUP, auto_offset_reset="earliest", OPTIONS)
for message in consumer:
    print(message.offset, flush=True)
    sys.exit(0)
"""


@pytest.mark.parametrize(("protocol", "patched"), [("classic", False), ("classic", True), ("consumer", False)])
def test_a_program_that_ends_leaves_its_group_at_once_and_what_it_had_in_its_hands_comes_to_the_next(
    protocol: str,
    patched: bool,
    handler: str,
    kafka: KafkaCluster,
    client: KafkaClient,
    join: Join,
    peer: Peer,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    """Without a stop(). Its session would last for five minutes more, in the coordinator's own protocol as long as the broker says."""
    topic, group = new_topic(2), new_name("group")
    places = fill(peer, topic, 2)
    options = "session_timeout_ms=300_000" if protocol == "classic" else 'group_protocol="consumer"'
    program = with_values(ENDS.replace("OPTIONS", options), HOSTS=kafka.hosts, HANDLER=handler, TOPIC=topic, GROUP=group)
    assert play(program, patched=patched and handler == "gevent", alone=True) == Ended(0, "0\n", "")
    assert client.admin().describe_groups([group])[group].members == ()
    follower = (join if protocol == "classic" else coordinated(join))(topic, group, auto_offset_reset="earliest")
    assert sorted(read(20, follower)) == places


def test_a_group_of_the_coordinators_with_a_member_of_confluents_client(
    join: Join, kafka: KafkaCluster, peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    ours = coordinated(join)(topic, group)
    theirs = Theirs({"bootstrap.servers": kafka.hosts, "group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"})
    theirs.subscribe([topic])
    try:

        def half() -> bool:
            theirs.poll(0.05)
            return sorted([*parts(ours)[0], *(p.partition for p in theirs.assignment())]) == [0, 1, 2, 3] and len(parts(ours)[0]) == 2

        settle(half, ours)
    finally:
        theirs.close()
    settle(lambda: parts(ours) == [[0, 1, 2, 3]], ours)


@pytest.mark.parametrize("version", one_of("3.9.1", "2.8.2"))
def test_brokers_without_groups_of_kip_848_are_told(version: str, join: Join, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    with pytest.raises(UnsupportedVersion, match='group_protocol="classic"'):
        coordinated(join)(topic, "g").consume(10_000)
