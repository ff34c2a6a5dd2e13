"""The same calls on kafka-python 3 and on gkafka.kafka, on the same broker: equal values, types and exceptions, but for what is listed here."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from tests.kit.clock import now
from tests.live.differential import Said, Script, check, plain
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer, Seen

LIMIT_S = 60.0
DIFFERENT = {
    "assign a number": "`assign()` of what is no TopicPartition",
    "bootstrap_connected": "`bootstrap_connected()`",
    "fields of a record": "`ConsumerRecord.leader_epoch`",
    "leader_epoch of a record": "`ConsumerRecord.leader_epoch`",
    "an OffsetAndMetadata as a tuple": "`OffsetAndMetadata`",
    "an OffsetAndTimestamp as a tuple": "`OffsetAndTimestamp`",
    "an OffsetAndTimestamp equals a pair": "`OffsetAndTimestamp`",
}
"""Step -> the row of docs/kafka-python.md that says why it differs."""


class Play(Script):
    """One run of the script with one library."""

    def __init__(self, library: str, hosts: str, topic: str, group: str, **options: Any) -> None:
        super().__init__(rename={topic: "the topic"})
        self.k = importlib.import_module(library)
        self.hosts, self.topic, self.group = hosts, topic, group
        self.options = {"bootstrap_servers": hosts, "auto_offset_reset": "earliest", "session_timeout_ms": 6000, **options}
        self.tps = [self.k.TopicPartition(topic, n) for n in range(3)]

    def consumer(self, *topics: str, **options: Any) -> Any:
        return self.k.KafkaConsumer(*topics, **{**self.options, **options})

    def collect(self, consumer: Any, count: int, **options: Any) -> list[Any]:
        got: list[Any] = []
        deadline = now() + LIMIT_S
        while len(got) < count and now() < deadline:
            for records in consumer.poll(200, **options).values():
                got += records
        return sorted(got, key=lambda r: (r.partition, r.offset))

    def run(self) -> dict[str, Said]:
        for part in (self.of_arguments, self.by_hand, self.by_iteration, self.with_deserializers, self.as_a_member, self.when_closed):
            part()
        return self.said

    def of_arguments(self) -> None:
        k, step, topic = self.k, self.step, self.topic
        step("unknown option", lambda: self.consumer(auto_offset_rest="x"))
        c = self.consumer()
        step("subscription before", c.subscription)
        step("assignment before", c.assignment)
        step("paused before", c.paused)
        step("poll before", lambda: c.poll(50))
        step("position unassigned", lambda: c.position(self.tps[0]))
        step("highwater unassigned", lambda: c.highwater(self.tps[0]))
        step("seek unassigned", lambda: c.seek(self.tps[0], 0))
        step("seek_to_beginning of nothing", c.seek_to_beginning)
        step("seek_to_end of nothing", c.seek_to_end)
        step("subscribe to nothing", c.subscribe)
        step("subscribe to both", lambda: c.subscribe([topic], pattern="x"))
        step("subscribe to a string", lambda: c.subscribe(topic))
        step("subscribe to a number", lambda: c.subscribe([5]))
        step("subscribe with a listener that is none", lambda: c.subscribe([topic], listener=5))
        step("close", c.close)
        c = self.consumer()
        step("assign a number", lambda: c.assign([5]))
        c.close()
        c = self.consumer()
        step("commit without a group", c.commit)
        step("commit_async without a group", c.commit_async)
        step("committed without a group", lambda: c.committed(self.tps[0]))
        step("poll for less than nothing", lambda: c.poll(-1))
        step("poll no records", lambda: c.poll(0, max_records=0))
        step("poll a text of records", lambda: c.poll(0, max_records="5"))
        step("partitions_for_topic", lambda: c.partitions_for_topic(topic))
        step("partitions_for_topic unknown", lambda: c.partitions_for_topic(f"{topic}-not"))
        step("topics", lambda: topic in c.topics())
        step("topics is a", lambda: type(c.topics()).__name__)
        step("beginning_offsets", lambda: c.beginning_offsets(self.tps))
        step("end_offsets", lambda: c.end_offsets(self.tps))
        found = c.offsets_for_times({self.tps[0]: 1500})[self.tps[0]]
        step("an OffsetAndTimestamp as a tuple", lambda: tuple(found))
        step("an OffsetAndTimestamp equals a pair", lambda: found == (1, 2000))
        step("end_offsets of nothing", lambda: c.end_offsets([]))
        step("offsets_for_times", lambda: c.offsets_for_times({self.tps[0]: 1500, self.tps[1]: 9999, self.tps[2]: 0}))
        step("offsets_for_times negative", lambda: c.offsets_for_times({self.tps[0]: -1}))
        step("bootstrap_connected", c.bootstrap_connected)
        step("metrics is a", lambda: type(c.metrics()).__name__)
        c.close()
        group = {"group_id": f"{self.group}-slow"}
        step("heartbeats as far apart as sessions", lambda: self.consumer(topic, **group, heartbeat_interval_ms=6000).close())
        step("heartbeats half a session apart", lambda: self.consumer(topic, **group, heartbeat_interval_ms=3000).close())
        step("subscribe without a place", lambda: self.without_a_place([topic]))
        step("subscribe to a pattern without a place", lambda: self.without_a_place((), topic))
        step("names", lambda: [n for n in ("KafkaConsumer", "KafkaProducer", "TopicPartition", "OffsetAndMetadata") if not hasattr(k, n)])

    def without_a_place(self, topics: Any, pattern: str | None = None) -> Any:
        """What seek() gives, once poll() has said that it is needed."""
        c = self.consumer(auto_offset_reset="none")
        c.subscribe(topics, pattern)
        missing = self.k.errors.NoOffsetForPartitionError
        for _ in range(2):
            try:
                return self.collect(c, 1)
            except missing:
                pass
        for tp, offset in zip(self.tps, (1, 1, 0), strict=True):  # the last one is empty
            c.seek(tp, offset)
        offsets = [r.offset for r in self.collect(c, 3, max_records=1)]
        c.close()
        return min(offsets)

    def committed_first(self) -> Any:
        """Partitions have no place yet: they begin where the group stands then."""
        first, second = self.tps[:2]
        c = self.consumer(group_id=f"{self.group}-first", auto_offset_reset="latest")
        c.assign([first, second])
        c.commit({first: self.k.OffsetAndMetadata(2, "", -1)})
        placed = c.position(first)
        c.commit({first: self.k.OffsetAndMetadata(1, "", -1)})
        return placed, c.position(first), c.position(second) > 0, [r.offset for r in self.collect(c, 1)][:1]

    def by_hand(self) -> None:
        k, step, tp = self.k, self.step, self.tps[0]
        c = self.consumer(client_id="by-hand")
        step("assign", lambda: c.assign(self.tps))
        step("assignment", c.assignment)
        step("subscription after assign", c.subscription)
        step("subscribe after assign", lambda: c.subscribe([self.topic]))
        step("highwater before", lambda: c.highwater(tp) in (None, 4))
        step("records", lambda: self.collect(c, 7))
        seen = self.collect(self.again(c), 1)[0]
        step(
            "a record is a ConsumerRecord",
            lambda: isinstance(seen, importlib.import_module(f"{k.__name__}.consumer.fetcher").ConsumerRecord),
        )
        step("a record's first fields", lambda: (*seen[:2], seen._fields[:2]))
        step("a record's other fields", lambda: (*seen[-10:], seen._fields[-10:], seen._asdict()["offset"]))
        step("fields of a record", lambda: seen._fields)
        step("a record is a tuple", lambda: isinstance(seen, tuple))
        step("a record and a tuple", lambda: (operator.add(seen, ("x",))[-2:], operator.add(("x",), seen)[:3], (seen * 2)[0]))
        step("a number of a time's type", lambda: repr(seen.timestamp_type))
        step("a record with another value", lambda: seen._replace(value=b"other"))
        step("leader_epoch of a record", lambda: seen.leader_epoch)
        step("a commit before the first poll", lambda: self.committed_first())
        step("keys of a poll", lambda: [type(key).__name__ for key in c.poll(0)])
        step("position", lambda: [c.position(one) for one in self.tps])
        step("highwater", lambda: [c.highwater(one) for one in self.tps])
        step("seek", lambda: c.seek(tp, 1))
        step("position after seek", lambda: c.position(tp))
        step("seek to less than nothing", lambda: c.seek(tp, -1))
        step("seek to a text", lambda: c.seek(tp, "1"))
        step("seek in nothing", lambda: c.seek(5, 1))
        step("max_records", lambda: [r.offset for r in self.collect(c, 1, max_records=1)])
        step("pause", lambda: c.pause(*self.tps))
        step("paused", c.paused)
        step("poll while paused", lambda: c.poll(300))
        step("resume", lambda: c.resume(*self.tps))
        step("paused after resume", c.paused)
        step("poll after resume", lambda: [r.offset for r in self.collect(c, 2)])
        step("pause a number", lambda: c.pause(5))
        step("seek_to_beginning", lambda: (c.seek_to_beginning(), c.position(tp)))
        step("seek_to_end", lambda: (c.seek_to_end(tp), c.position(tp)))
        step("seek_to_end of another", lambda: c.seek_to_end(self.k.TopicPartition(self.topic, 9)))
        step("assign less", lambda: (c.assign(self.tps[:1]), c.assignment()))
        step("unsubscribe", lambda: (c.unsubscribe(), c.assignment(), c.subscription()))
        step("subscribe after unsubscribe", lambda: (c.subscribe([self.topic]), c.subscription()))
        step("assign after subscribe", lambda: c.assign(self.tps))
        step("subscribe again", lambda: (c.subscribe((self.topic,)), c.subscription()))
        c.close()

    def again(self, consumer: Any) -> Any:
        consumer.seek(self.tps[0], 0)
        return consumer

    def by_iteration(self) -> None:
        step = self.step
        c = self.consumer(self.topic, consumer_timeout_ms=1000 * LIMIT_S)
        step("iteration", lambda: sorted(map(plain, islice(c, 7)), key=lambda r: (r[2], r[3])))
        c.close()
        c = self.consumer(consumer_timeout_ms=300)
        c.assign(self.tps)
        c.seek_to_end()
        step("next at the end", lambda: next(c))
        step("iter of it", lambda: iter(c) is not None)
        c.close()
        c = self.consumer(consumer_timeout_ms=1000 * LIMIT_S)
        c.subscribe(pattern=f"^{self.topic}$")
        step("by pattern", lambda: len(list(islice(c, 7))))
        step("subscription of a pattern", c.subscription)
        c.close()

    def with_deserializers(self) -> None:
        step = self.step

        class Upper(self.k.serializer.Deserializer if hasattr(self.k, "serializer") else object):  # type: ignore[misc]
            def deserialize(self, topic: str, *given: Any) -> Any:
                return None if given[-1] is None else given[-1].upper()

        c = self.consumer(self.topic, value_deserializer=lambda v: v and v.decode(), key_deserializer=Upper())
        step("deserialized", lambda: self.collect(c, 7))
        c.close()
        c = self.consumer(self.topic, value_deserializer=repr, key_deserializer=repr)
        step("deserialized, with what is not there", lambda: self.collect(c, 7))
        c.close()
        c = self.consumer(f"{self.topic}-not-yet", allow_auto_create_topics=False)
        step("poll of a topic that is not there", lambda: c.poll(300))  # there the broker is still asked to make it
        step("subscription to it", lambda: c.subscription() == {f"{self.topic}-not-yet"})
        c.close()

    def as_a_member(self) -> None:
        k, step, tp = self.k, self.step, self.tps[0]
        told: list[Any] = []

        class Listener(k.ConsumerRebalanceListener):  # type: ignore[misc,name-defined]
            def on_partitions_revoked(self, revoked: Any) -> None:
                told.append(("revoked", plain(revoked)))

            def on_partitions_assigned(self, assigned: Any) -> None:
                told.append(("assigned", plain(assigned)))

        c = self.consumer(group_id=self.group, enable_auto_commit=False)
        step("committed before", lambda: c.committed(tp))
        c.subscribe([self.topic], listener=Listener())
        step("read as a member", lambda: self.collect(c, 7))
        step("assignment of a member", c.assignment)
        step("listener", lambda: [one for one in told if one[1] != ("set", [])])
        step("commit", c.commit)
        step("committed", lambda: c.committed(tp))
        step("committed with metadata", lambda: c.committed(tp, metadata=True))
        step("an OffsetAndMetadata as a tuple", lambda: tuple(k.OffsetAndMetadata(2, "note", -1)))
        step("OffsetAndMetadata of a pair", lambda: k.OffsetAndMetadata(2, "note"))
        step("commit one", lambda: c.commit({tp: k.OffsetAndMetadata(2, "note", -1)}))
        step("committed with a note", lambda: c.committed(tp, metadata=True))
        heard: list[Any] = []
        future = step("commit_async", lambda: type(c.commit_async({tp: k.OffsetAndMetadata(1, "", -1)}, lambda *what: None)).__name__)
        assert future == "Future"
        done = c.commit_async({tp: k.OffsetAndMetadata(3, "n", -1)}, lambda offsets, response: heard.append((offsets, response)))
        deadline = now() + LIMIT_S
        while not (done.is_done and heard) and now() < deadline:  # there poll() calls back
            c.poll(50)
        step("future", lambda: (done.is_done, done.succeeded(), done.failed(), done.exception))
        step("callback", lambda: [(plain(offsets), isinstance(response, Exception)) for offsets, response in heard if offsets])
        step("committed after", lambda: c.committed(tp))
        step("commit of a number", lambda: c.commit(5))
        step("position of a member", lambda: c.position(tp))
        step("close as a member", c.close)
        again = self.consumer(self.topic, group_id=self.group, enable_auto_commit=True)
        step("goes on", lambda: [(r.partition, r.offset) for r in self.collect(again, 1)])
        step("close with autocommit", lambda: again.close(autocommit=True))
        looking = self.consumer(group_id=self.group)
        step("committed by close", lambda: [looking.committed(one) for one in self.tps])
        looking.close()

    def when_closed(self) -> None:
        step = self.step
        c = self.consumer(self.topic)
        c.close()
        step("close twice", c.close)
        step("poll closed", lambda: c.poll(0))
        step("next closed", lambda: next(c))


THEIRS: dict[str, dict[str, Said]] = {}
"""Broker -> what kafka-python said there: once for both handlers."""


@pytest.fixture
def play(kafka: KafkaCluster, new_topic: Any, new_name: Any, peer: Peer) -> Callable[..., dict[str, Said]]:
    """Plays the script on a topic of its own, with the same records."""

    def with_(library: str, **options: Any) -> dict[str, Said]:
        topic = new_topic(3)
        peer.write(topic, [Seen(0, n, b"k%d" % n, b"v%d" % n, [("h", b"1")] if n == 1 else [], 1000 * (n + 1)) for n in range(4)])
        peer.write(topic, [Seen(1, 0, None, b"x", [], 5), Seen(1, 1, b"k", None, [], 6), Seen(1, 2, b"", b"", [], 7)])
        return Play(library, kafka.hosts, topic, new_name("group"), **options).run()

    return with_


@pytest.mark.usefixtures("quiet")
def test_a_script_of_consumer_calls_gives_what_kafka_python_gives(
    kafka: KafkaCluster, play: Callable[..., dict[str, Said]], handler: str
) -> None:
    """Behaviours 224, 226, 227, 229, 230, 276, 279, 283, 285, 286, 287, 289, 290, 291, 292, 293, 295, 296, 297, 298, 301."""
    if kafka.hosts not in THEIRS:
        THEIRS[kafka.hosts] = play("kafka")
    ours = play("gkafka.kafka", handler=handler)
    try:
        check(THEIRS[kafka.hosts], ours, DIFFERENT)
    except AssertionError:
        THEIRS[kafka.hosts] = play("kafka")  # on a busy machine its heartbeats may come late, and it is not what is tested here
        check(THEIRS[kafka.hosts], ours, DIFFERENT)
