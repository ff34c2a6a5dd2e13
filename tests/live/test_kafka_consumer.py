"""gkafka.kafka's KafkaConsumer on real Kafka: groups, commits, patterns, times, internal topics, a group shared with kafka-python, old brokers."""

from __future__ import annotations

import gzip
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.kafka import (
    ConsumerRebalanceListener,
    KafkaClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from gkafka.kafka.errors import UnsupportedVersionError
from tests.kit.clock import now
from tests.live.facade import LIMIT_S, Make, Topic, read, turn
from tests.live.inside import log_file
from tests.live.kafka import VERSIONS, KafkaCluster
from tests.live.peer import Peer, Seen
from tests.records.handmade import message, wrapper


@pytest.fixture
def write(kafka: KafkaCluster, handler: str) -> Iterator[Callable[..., None]]:
    """Writes values, one after another: write(topic, partition, *values)."""
    producer = KafkaProducer(bootstrap_servers=kafka.hosts, handler=handler, api_version_auto_timeout_ms=60_000, acks="all", retries=10)

    def do(topic: str, partition: int, *values: bytes, **more: Any) -> None:
        for future in [producer.send(topic, value, partition=partition, **more) for value in values]:
            future.get(LIMIT_S)

    yield do
    producer.close(60)


class Told(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, set[int]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.heard.append(("revoked", {tp.partition for tp in revoked}))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.heard.append(("assigned", {tp.partition for tp in assigned}))


def test_two_members_share_and_commit_and_whoever_is_left_goes_on(
    consumer: Make, write: Any, new_topic: Topic, new_name: Callable[[str], str], peer: Peer
) -> None:
    """Behaviours 224, 225, 231, 255, 278, 281, 284, 299, 300."""
    topic, group = new_topic(4), new_name("group")
    everything = {TopicPartition(topic, n) for n in range(4)}
    told = Told()
    one = consumer(group_id=group)
    one.subscribe([topic], listener=told)
    turn(lambda: len(told.heard) == 2, one)
    assert told.heard == [("revoked", set()), ("assigned", {0, 1, 2, 3})]
    assert one.assignment() == everything
    two = consumer(topic, group_id=group)
    turn(lambda: len(one.assignment()) == len(two.assignment()) == 2 and len(told.heard) == 4, one, two)
    assert one.assignment() | two.assignment() == everything
    assert told.heard[-2:] == [("revoked", {0, 1, 2, 3}), ("assigned", {tp.partition for tp in one.assignment()})]
    for n in range(4):
        write(topic, n, b"a", b"b")
    got: list[Any] = []
    while len(got) < 8:
        got += [r for member in (one, two) for records in member.poll(100).values() for r in records]
    assert sorted((r.partition, r.offset, r.value) for r in got) == [
        (n, at, value) for n in range(4) for at, value in enumerate([b"a", b"b"])
    ]
    two.close()
    turn(lambda: one.assignment() == everything, one)
    write(topic, 0, b"c")
    assert [(r.partition, r.offset) for r in read(one, 1)] == [(0, 2)], "nothing twice, nothing lost"
    one.close()
    assert peer.committed(group, topic, 4) == {0: 3, 1: 2, 2: 2, 3: 2}


def test_commits_are_seen_by_others_and_theirs_by_us(
    consumer: Make, write: Any, new_topic: Topic, new_name: Callable[[str], str], peer: Peer
) -> None:
    """Behaviours 228, 282, 283, 284, 285, 286."""
    topic, group = new_topic(), new_name("group")
    tp = TopicPartition(topic, 0)
    write(topic, 0, b"0", b"1", b"2")
    reading = consumer(topic, group_id=group, enable_auto_commit=False)
    assert reading.committed(tp) is None
    assert len(read(reading, 2)) == 2
    reading.commit()
    assert peer.committed(group, topic) == {0: 2}
    told: list[Any] = []
    future = reading.commit_async({tp: OffsetAndMetadata(1, "note")}, lambda offsets, response: told.append((offsets, response)))
    response = future.get(LIMIT_S)
    assert told == [({tp: OffsetAndMetadata(1, "note")}, response)]
    assert peer.committed(group, topic) == {0: 1}
    assert reading.committed(tp, metadata=True) == OffsetAndMetadata(1, "note")
    reading.close()
    assert peer.committed(group, topic) == {0: 1}, "enable_auto_commit=False"
    peer.commit(group, topic, {0: 2})
    again = consumer(topic, group_id=group)
    assert again.committed(tp) == 2
    assert [r.value for r in read(again, 1)] == [b"2"]


def test_a_pattern_follows_topics_that_are_made_and_deleted(
    consumer: Make, write: Any, kafka: KafkaCluster, new_name: Callable[[str], str]
) -> None:
    """Behaviours 230, 275, 299, 301."""
    stem = new_name("awesome")
    first, second = f"{stem}-a", f"{stem}-b"
    kafka.create_topic(first, 1)
    reading = consumer(group_id=new_name("group"), metadata_max_age_ms=500)
    reading.subscribe(pattern=f"^{stem}-.*")
    turn(lambda: reading.assignment() == {TopicPartition(first, 0)}, reading)
    kafka.create_topic(second, 2)
    turn(lambda: len(reading.assignment()) == 3, reading)
    assert reading.subscription() == {first, second}
    write(second, 1, b"v")
    assert [(r.topic, r.partition) for r in read(reading, 1)] == [(second, 1)]


def test_internal_topics_are_read_by_name_only(consumer: Make, write: Any, new_topic: Topic, new_name: Callable[[str], str]) -> None:
    """Behaviour 273."""
    topic, group = new_topic(), new_name("group")
    write(topic, 0, b"v")
    reading = consumer(topic, group_id=group)
    read(reading, 1)
    reading.commit()
    matching = consumer(group_id=None)
    matching.subscribe(pattern=f"(__consumer.*|{topic}$)")
    assert {tp.topic for tp in matching.assignment()} == {topic}
    everything = consumer(exclude_internal_topics=False)
    everything.subscribe(pattern=f"(__consumer.*|{topic}$)")
    assert {tp.topic for tp in everything.assignment()} == {topic, "__consumer_offsets"}
    named = consumer("__consumer_offsets")
    seen: list[Any] = []
    deadline = now() + LIMIT_S
    while not any(group.encode() in (r.key or b"") for r in seen):
        assert now() < deadline
        seen += [r for records in named.poll(200).values() for r in records]


def test_look_ups_by_time_and_of_both_ends(consumer: Make, write: Any, new_topic: Topic) -> None:
    """Behaviours 279, 287, 289, 290, 291, 295, 296, 297."""
    topic = new_topic(2)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for at in (1000, 2000, 3000):
        write(topic, 0, b"v%d" % at, timestamp_ms=at)
    reading = consumer()
    assert reading.offsets_for_times({tp: 1500, empty: 1500}) == {tp: OffsetAndTimestamp(1, 2000), empty: None}
    assert reading.offsets_for_times({tp: 2000}) == {tp: OffsetAndTimestamp(1, 2000)}
    assert reading.offsets_for_times({tp: 3001}) == {tp: None}
    with pytest.raises(ValueError, match="0 or more"):
        reading.offsets_for_times({tp: -1})
    assert (reading.beginning_offsets([tp, empty]), reading.end_offsets([tp, empty])) == ({tp: 0, empty: 0}, {tp: 3, empty: 0})
    assert reading.partitions_for_topic(topic) == {0, 1}
    assert topic in reading.topics()
    reading.assign([tp])
    assert [r.timestamp for r in read(reading, 1)] == [1000]
    assert (reading.position(tp), reading.highwater(tp)) == (1, 3)
    reading.seek(tp, 2)
    assert [r.value for r in read(reading, 1)] == [b"v3000"]
    reading.seek_to_beginning()
    assert reading.position(tp) == 0
    reading.seek_to_end(tp)
    assert reading.position(tp) == 3


class OtherMember:
    """A process that consumes with kafka-python until its input ends; then it commits and leaves."""

    def __init__(self, hosts: str, group: str, topic: str) -> None:
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, hosts, group, topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/"
        )
        self.lines: list[Any] = []
        os.set_blocking(self.process.stdout.fileno(), False)  # type: ignore[union-attr]
        self._rest = b""

    def look(self) -> None:
        """Take in what it said since."""
        if self.process.stdout.closed:  # type: ignore[union-attr]
            return
        self._rest += os.read(self.process.stdout.fileno(), 1 << 16) if _readable(self.process.stdout) else b""  # type: ignore[union-attr]
        *whole, self._rest = self._rest.split(b"\n")
        self.lines += map(json.loads, whole)

    @property
    def assigned(self) -> set[int]:
        self.look()
        return set([[], *(line["assigned"] for line in self.lines if "assigned" in line)][-1])

    @property
    def read(self) -> list[tuple[int, int]]:
        self.look()
        return [tuple(line["read"]) for line in self.lines if "read" in line]

    def kill(self) -> None:
        """Without a word to anybody."""
        self.process.kill()
        self.process.wait(LIMIT_S)
        self.process.stdin.close()  # type: ignore[union-attr]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.stdin.close()  # type: ignore[union-attr]
            try:
                self.process.wait(LIMIT_S)
            finally:
                self.process.kill()
        self.look()
        self.process.stdout.close()  # type: ignore[union-attr]


def _readable(stream: Any) -> bool:
    return bool(select.select([stream], [], [], 0)[0])


SCRIPT = """
import json, os, signal, sys, threading
from kafka import ConsumerRebalanceListener, KafkaConsumer
hosts, group, topic = sys.argv[1:]
def say(**what):
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()
class Telling(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        say(assigned=[])
    def on_partitions_assigned(self, assigned):
        say(assigned=sorted(tp.partition for tp in assigned))
def end_with_input():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)
member = KafkaConsumer(bootstrap_servers=hosts, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=300, session_timeout_ms=6000)
member.subscribe([topic], listener=Telling())
threading.Thread(target=end_with_input, daemon=True).start()
try:
    while True:
        # Its poll() must not end in a rebalance: if that is between the coordinator's answer and what follows from it, kafka-python 3.0.12 takes itself
        # for joined and never has the partitions that it was assigned.
        for records in member.poll(1_000_000).values():
            for r in records:
                say(read=[r.partition, r.offset])
except KeyboardInterrupt:
    member.close()
"""


def test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one(
    kafka: KafkaCluster, consumer: Make, write: Any, new_topic: Topic, new_name: Callable[[str], str], peer: Peer
) -> None:
    """Behaviours 225, 231, 259, 283, 284, 299."""
    topic, group = new_topic(4), new_name("group")
    ours = consumer(topic, group_id=group)
    turn(lambda: len(ours.assignment()) == 4, ours)
    theirs = OtherMember(kafka.hosts, group, topic)
    try:
        turn(lambda: len(ours.assignment()) == 2 and len(theirs.assigned) == 2, ours)
        mine = {tp.partition for tp in ours.assignment()}
        assert mine | theirs.assigned == {0, 1, 2, 3}
        for n in range(4):
            write(topic, n, b"a", b"b", b"c")
        got = turn(lambda: len(theirs.read) == 6, ours)
        got += read(ours, 6 - len(got)) if len(got) < 6 else []
        assert sorted((r.partition, r.offset) for r in got) == [(p, o) for p in sorted(mine) for o in range(3)]
        assert sorted(theirs.read) == [(p, o) for p in sorted({0, 1, 2, 3} - mine) for o in range(3)]
        theirs.stop()
        turn(lambda: len(ours.assignment()) == 4, ours)
    finally:
        theirs.stop()
    for n in range(4):
        write(topic, n, b"d")
    assert sorted((r.partition, r.offset) for r in read(ours, 4)) == [(n, 3) for n in range(4)], "from where the other one has committed"
    ours.close()
    assert peer.committed(group, topic, 4) == dict.fromkeys(range(4), 4)


def test_a_group_that_a_kafka_python_process_leads_goes_on_when_members_leave_and_die(
    kafka: KafkaCluster, consumer: Make, write: Any, new_topic: Topic, new_name: Callable[[str], str], peer: Peer
) -> None:
    """Behaviour 262, and the other way round: theirs divides the partitions; ours leaves, and it goes on from our commits; it is killed, and ours goes on from its own."""
    topic, group = new_topic(4), new_name("group")
    everything = {0, 1, 2, 3}
    theirs = OtherMember(kafka.hosts, group, topic)
    try:
        wait_until(lambda: theirs.assigned == everything)
        ours = consumer(topic, group_id=group)
        turn(lambda: len(ours.assignment()) == 2 and len(theirs.assigned) == 2, ours)
        mine = {tp.partition for tp in ours.assignment()}
        assert mine | theirs.assigned == everything
        for n in everything:
            write(topic, n, b"a", b"b")
        got = turn(lambda: len(theirs.read) == 4, ours)
        got += read(ours, 4 - len(got)) if len(got) < 4 else []
        assert sorted((r.partition, r.offset) for r in got) == [(p, o) for p in sorted(mine) for o in range(2)]
        ours.close()
        wait_until(lambda: theirs.assigned == everything)
        for n in everything:
            write(topic, n, b"c")
        wait_until(lambda: len(theirs.read) >= 8)
        assert sorted(theirs.read) == sorted([(p, o) for p in everything - mine for o in range(3)] + [(p, 2) for p in mine])
        again = consumer(topic, group_id=group)
        turn(lambda: len(again.assignment()) == 2 and len(theirs.assigned) == 2, again)
        theirs.kill()
        for n in everything:
            write(topic, n, b"d")
        seen: set[tuple[int, int]] = set()
        turn_until_seen(again, seen, {(n, 3) for n in everything})
        assert {tp.partition for tp in again.assignment()} == everything
        assert min(offset for _, offset in seen) >= 2, "what was committed before is not read again"
        again.close()
    finally:
        theirs.stop()
    assert peer.committed(group, topic, 4) == dict.fromkeys(everything, 4)


def wait_until(ready: Callable[[], Any]) -> None:
    deadline = now() + LIMIT_S
    while not ready():
        assert now() < deadline
        time.sleep(0.02)


def turn_until_seen(member: KafkaConsumer, seen: set[tuple[int, int]], wanted: set[tuple[int, int]]) -> None:
    deadline = now() + LIMIT_S
    while not wanted <= seen:
        assert now() < deadline, wanted - seen
        for records in member.poll(20).values():
            seen |= {(r.partition, r.offset) for r in records}


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_brokers_before_the_group_apis_are_read_by_hand(
    version: str, kafka: KafkaCluster, consumer: Make, new_topic: Topic, new_name: Callable[[str], str], peer: Peer, handler: str
) -> None:
    """Behaviours 221, 222, 270, 280: 0.8.2 has commits and assign(), 0.9 has groups; both are found out without api_version."""
    topic, group = new_topic(), new_name("group")
    tp = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=kafka.hosts, handler=handler, api_version_auto_timeout_ms=60_000) as producer:
        producer.send(topic, b"v", partition=0).get(LIMIT_S)
    reading = consumer(group_id=group, enable_auto_commit=False)
    reading.assign([tp])
    assert [(r.offset, r.value, r.timestamp) for r in read(reading, 1)] == [(0, b"v", -1)]
    reading.commit()
    assert reading.committed(tp) == 1
    assert reading.end_offsets([tp]) == {tp: 1}
    with pytest.raises(UnsupportedVersionError):
        reading.offsets_for_times({tp: 0})
    joining = consumer(group_id=new_name("group"))
    if version == "0.8.2.2":
        with pytest.raises(UnsupportedVersionError):
            joining.subscribe([topic])
    else:
        joining.subscribe([topic])
        turn(lambda: joining.assignment() == {tp}, joining)


@pytest.mark.parametrize("version", ["0.10.2.2"])
def test_a_message_that_is_compressed_twice_is_left_as_a_blob_or_skipped(
    version: str, kafka: KafkaCluster, consumer: Make, new_topic: Topic, peer: Peer
) -> None:
    """Behaviour 265. No broker takes such a message from a producer any more: it is put in the place of another one on the broker's disk."""
    topic = new_topic()
    blob = gzip.compress(b"".join(message(n, b"inner %d" % n) for n in range(3)))
    double = wrapper([message(0, blob, b"key", attributes=1)], 0)
    peer.write(topic, [Seen(0, 0, None, b"x" * (len(double) - len(message(0, b""))), [], 5)])
    peer.write(topic, [Seen(0, 1, None, b"good", [], 5)])
    file = log_file(kafka, topic)
    assert file.read_bytes()[: len(double)].endswith(b"xxx")
    with file.open("r+b") as log:
        log.write(double)
    assert [(r.offset, r.key, r.value) for r in read(consumer(topic), 2)] == [(0, b"key", blob), (1, None, b"good")]
    assert [(r.offset, r.value) for r in read(consumer(topic, skip_double_compressed_messages=True), 1)] == [(1, b"good")]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "4.2.0"])
def test_check_version_names_older_releases(version: str, kafka: KafkaCluster, handler: str, new_topic: Topic) -> None:
    """Behaviour 240: those before 0.10 do not say what they are, and are taken for what api_version says or for the oldest."""
    new_topic()  # before that a broker of 0.8 tells of no brokers
    told = {} if kafka.release.asks_versions else {"api_version": kafka.release.number[:3] if version == "0.8.2.2" else (0, 9)}
    with KafkaClient(bootstrap_servers=kafka.hosts, handler=handler, **told) as client:
        found = client.check_version(timeout=60)
    assert found == kafka.release.number[: len(found)]
