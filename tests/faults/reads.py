"""Consumers without a group whose callers and workers are cut off: what was handed out, against what a read_committed reader sees."""

from __future__ import annotations

import bisect
import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gkafka.exceptions import KafkaException
from tests.faults.child import Child
from tests.faults.consumed import Findings
from tests.faults.groups import GroupLine
from tests.faults.guns import CONSUMER
from tests.faults.inside import Inside
from tests.faults.ledger import Row
from tests.faults.load import Load, read_value
from tests.faults.loads import Call, Workload
from tests.faults.restarts import Restarts
from tests.faults.stage import PARTITIONS
from tests.kit import clock

__all__ = ["Reader", "Reads", "Span", "judge_shared", "judge_span"]

RATE = {"long": 600.0, "short": 400.0}
WAIT_MS = 50.0
MANY = 200
"""So many records at most are handed out one by one, or a few at a time, in one piece of work."""
DRAIN_S = 60.0
CHANGES = 0.2
"""Share of the calls that move or stop partitions."""
BACK = 300
"""How far behind what was handed out last a seek goes at most."""
PLAIN, DESERIALIZING, SHARING = 3, 2, 3
"""Readers with a consumer of their own, without and with a deserializer; readers that share one."""
Visible = Mapping[int, Sequence[Row]]
"""Partition -> what a read_committed reader sees of it, in the order of its offsets."""


@dataclasses.dataclass
class Span:
    """What one consumer handed out of a partition between two seeks. start: where it was sent; got: (offset, id), in order."""

    start: int
    got: list[tuple[int, int]] = dataclasses.field(default_factory=list)


def judge_span(found: Findings, span: Span, rows: Sequence[Row]) -> int:
    """Count what the consumer skipped, repeated or made up. Return how many of the rows lie before where it stands now."""
    offsets = [row.offset for row in rows]
    due = bisect.bisect_left(offsets, span.start)
    for offset, id in span.got:
        at = bisect.bisect_left(offsets, offset)
        if at == len(offsets) or offsets[at] != offset:
            found.strangers += 1
            continue
        found.read += 1
        found.damaged += rows[at].id != id
        found.repeats += at < due
        found.skips += max(0, at - due)
        due = at + 1
    return due


def judge_shared(found: Findings, got: Sequence[tuple[int, int]], rows: Sequence[Row]) -> None:
    """Count what several callers of one consumer together were not handed. They may have had some of it twice."""
    ids = {row.offset: row.id for row in rows}
    found.read += len(got)
    found.strangers += sum(offset not in ids for offset, _ in got)
    found.damaged += sum(ids.get(offset, id) != id for offset, id in got)
    seen = {offset for offset, _ in got}
    found.dup += len(got) - len(seen)
    found.lost += len(ids.keys() - seen)


class Reader:
    """One caller of a consumer.

    Whatever ends a call, what it handed out stands in `_kept`: the call and the step that keeps its
    result have no other one between them at which Python looks for signals. A change that was cut
    off may have taken place or not: it is made again before anything else.
    """

    def __init__(self, consumer: Any, topic: str, chance: random.Random, calls: Sequence[str]) -> None:
        self.consumer, self._topic, self._chance, self._calls = consumer, topic, chance, calls
        self.spans: dict[int, list[Span]] = {p: [Span(0)] for p in range(PARTITIONS)}
        self.read = 0
        self.odd: list[str] = []
        self._kept: list[Any] = []
        self._paused: set[int] = set()
        self._change: tuple[Callable[[], None], Callable[[], None]] | None = None

    def step(self, call: Call) -> None:
        """Make one call, and keep what it hands out."""
        if self._change is None and self._calls is not SHARED and self._chance.random() < CHANGES:
            self._change = self._chance.choice([self._seek, self._pause, self._resume, self._assign])()
        try:
            if self._change is not None:
                self._make(call)
            else:
                call(getattr(self, self._chance.choice(self._calls)))
        finally:
            self._settle()

    def _make(self, call: Call) -> None:
        assert self._change is not None
        change, is_made = self._change
        call(change)
        self._change = None
        is_made()

    def _settle(self) -> None:
        kept, self._kept = self._kept, []
        for thing in kept:
            for partition, offset, value in _records(thing):
                if partition in self._paused:
                    self.odd.append(f"offset {offset} of partition {partition} was handed out while that was paused")
                self.spans[partition][-1].got.append((offset, read_value(value)[0]))
                self.read += 1

    # -- calls that hand out -----------------------------------------------------------------------
    def one(self) -> None:
        for _ in range(self._chance.randrange(1, MANY)):
            self._kept.append(self.consumer.consume(WAIT_MS))
            if self._kept[-1] is None:
                return

    def few(self) -> None:
        most = self._chance.randrange(2, 20)
        for _ in range(self._chance.randrange(1, MANY // most)):
            self._kept.append(self.consumer.consume_batch(most, WAIT_MS))
            if not self._kept[-1]:
                return

    def many(self) -> None:
        self._kept.append(self.consumer.consume_batch(500, WAIT_MS))

    def columns(self) -> None:
        self._kept.append(self.consumer.consume_arrow(self._chance.choice([7, 500]), WAIT_MS))

    def iteration(self) -> None:
        if len(self._paused) == PARTITIONS:
            return
        most = self._chance.randrange(1, 20)
        for message in self.consumer:
            self._kept.append(message)
            if len(self._kept) >= most:
                break

    # -- calls that move and stop partitions: what to call, and what holds then --------------------
    def _seek(self) -> Any:
        partition = self._chance.randrange(PARTITIONS)
        offset = self._place(partition)
        return lambda: self.consumer.seek((self._topic, partition), offset), lambda: self.spans[partition].append(Span(offset))

    def _assign(self) -> Any:
        places = {partition: self._place(partition) for partition in range(PARTITIONS)}

        def is_made() -> None:
            self._paused.clear()
            for partition, offset in places.items():
                self.spans[partition].append(Span(offset))

        return lambda: self.consumer.assign({(self._topic, p): offset for p, offset in places.items()}), is_made

    def _place(self, partition: int) -> int:
        span = self.spans[partition][-1]
        last = span.got[-1][0] if span.got else span.start
        return max(0, last - self._chance.randrange(-1, BACK))

    def _pause(self) -> Any:
        partition = self._chance.randrange(PARTITIONS)
        return lambda: self.consumer.pause([(self._topic, partition)]), lambda: self._paused.add(partition)

    def _resume(self) -> Any:
        partitions = sorted(self._paused)
        self._paused.clear()
        return lambda: self.consumer.resume([(self._topic, p) for p in partitions]), lambda: None

    # -- the end -----------------------------------------------------------------------------------
    def finish(self) -> None:
        """Make what was cut off, and pause nothing any more."""
        for change in (self._change, self._resume()):
            if change is not None:
                self._change = change
                self._make(_plainly)

    def drain(self) -> None:
        """Read what is there."""
        self._kept.append(self.consumer.consume_batch(1000, WAIT_MS))
        self._settle()

    def stands_behind(self, ends: Mapping[int, int]) -> bool:
        """Was it handed the last record of each partition?"""
        return all(spans[-1].got and spans[-1].got[-1][0] >= ends[p] for p, spans in self.spans.items() if p in ends)


OWN = ("one", "few", "many", "iteration")
WITH_COLUMNS = (*OWN, "columns")
SHARED = ("one", "few", "many")


def _plainly(function: Callable[[], Any]) -> Any:
    return function()


def _records(thing: Any) -> list[tuple[int, int, Any]]:
    """(partition, offset, value) of what a call handed out: a message, a list of them, columns or nothing."""
    if thing is None:
        return []
    if hasattr(thing, "to_pydict"):
        columns = thing.to_pydict()
        return list(zip(columns["partition"], columns["offset"], columns["value"], strict=True))
    messages = thing if isinstance(thing, list) else [thing]
    return [(m.partition_id, m.offset, m.value) for m in messages]


class Reads(Workload):
    """Each piece of work is one call of a consumer that no other caller has at that time.

    The consumers of most readers are their own. Some readers share one consumer; there, only that
    nothing is skipped is promised.
    """

    slow = 4.0
    steady = 2
    aim = CONSUMER

    def __init__(self, inside: Inside, client: Any, chance: random.Random) -> None:
        super().__init__(inside, client, chance)
        form, topic = inside.form, inside.topic
        self._load = Child("tests.faults.load", Load(inside.stage.direct, {topic: PARTITIONS}, RATE[form.name]))
        self._shared = self._consumer()
        self._own = [Reader(self._consumer(), topic, chance, WITH_COLUMNS) for _ in range(PLAIN)]
        self._own += [Reader(self._consumer(value_deserializer=bytes), topic, chance, OWN) for _ in range(DESERIALIZING)]
        self._sharing = [Reader(self._shared, topic, chance, SHARED) for _ in range(SHARING)]
        self._beside = [Reader(self._shared, topic, chance, SHARED) for _ in range(self.steady)]
        self._free = [*self._own, *self._sharing]
        self.began = clock.now()

    def _consumer(self, **options: Any) -> Any:
        consumer = self.client.get_consumer(fetch_wait_max_ms=50, fetch_message_max_bytes=20_000, **options)
        consumer.assign(dict.fromkeys([(self.inside.topic, p) for p in range(PARTITIONS)], 0))
        return consumer

    def release(self) -> None:
        self._load.end()

    @property
    def _readers(self) -> list[Reader]:
        return [*self._own, *self._sharing, *self._beside]

    def done(self) -> int:
        return sum(reader.read for reader in self._readers)

    def once(self, lane: int, call: Call) -> None:
        if not self._free:
            return  # a caller that was killed has not given its reader back yet
        reader = self._free.pop(self.chance.randrange(len(self._free)))
        try:
            reader.step(call)
        finally:
            self._free.append(reader)

    def beside(self, lane: int) -> None:
        self._beside[lane % len(self._beside)].step(_plainly)

    def end(self) -> None:
        """Every consumer reads on to the end of the topic."""
        self._load.tell("")
        self._load.wait(60)
        rows = self.inside.stage.dump([self.inside.topic], "read_committed")
        self._visible: Visible = {p: [row for row in rows if row.partition == p] for p in range(PARTITIONS)}
        ends = {p: rows[-1].offset for p, rows in self._visible.items() if rows}
        for reader in self._own:
            reader.finish()
            self._drain(lambda r=reader: r.stands_behind(ends), reader)  # type: ignore[misc]
        self._drain(lambda: self._are_all_seen(), self._sharing[0])
        consumers = [self._shared, *(reader.consumer for reader in self._own)]
        self.close_client(lambda: [consumer.stop(5) for consumer in consumers])

    def _drain(self, is_done: Callable[[], bool], reader: Reader) -> None:
        deadline = clock.now() + DRAIN_S
        while not is_done() and clock.now() < deadline:
            try:
                reader.drain()
            except KafkaException:
                continue  # a deserializer's error, say, is told once

    def _are_all_seen(self) -> bool:
        found = Findings()
        self._judge_shared(found)
        return not found.lost

    def _judge_shared(self, found: Findings) -> None:
        got: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for reader in (*self._sharing, *self._beside):
            for partition, (span,) in reader.spans.items():
                got[partition] += span.got
        for partition, rows in self._visible.items():
            judge_shared(found, got[partition], rows)

    def line(self, fault: str, played: Mapping[str, int], restarts: Restarts, is_hit: bool) -> GroupLine:
        """The end: what was handed out against the log. is_hit: the engine was, and has begun anew."""
        inside = self.inside
        found = Findings(visible=sum(map(len, self._visible.values())))
        for reader in self._own:
            for partition, spans in reader.spans.items():
                rows = self._visible[partition]
                places = [judge_span(found, span, rows) for span in spans]
                found.stuck += places[-1] < len(rows)
            inside.blame += reader.odd[:3]
        self._judge_shared(found)
        evidence = {**played, "disconnects": inside.disconnects, **({"restarts": restarts.count} if is_hit else {})}
        inside.blame += [f"{count:g} {name}" for name, count in found.wrong.items()]
        inside.blame += [f"no {name}: the fault disturbed nothing" for name, count in evidence.items() if not count]
        inside.expect(found.read >= inside.form.acked, f"too few read: {found.read:,} of {inside.form.acked:,}")
        told = ", ".join(f"{count:,} {name}" for name, count in played.items())
        figures = {"restarts": float(restarts.count), **{state: float(count) for state, count in sorted(restarts.hit.items())}}
        about = (inside.handler, inside.seed, inside.form.name, told, found, figures, evidence)
        return GroupLine(fault, *about, clock.figure(clock.now() - self.began), inside.blame)
