"""Plays a log through a way and holds what happens against the model."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from hypothesis import strategies as st

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.reading.damagedlogs import CODECS, Digits, Shape, one_more, written
from tests.reading.model import Entry, Reading, Record, Stop, read
from tests.reading.ways import CHEAP, Failure, Way, end_all

__all__ = ["Deviation", "Play", "Stage", "Told", "plays"]

LIMIT_S = 60.0
"""Longest time without a record and without an error; a good reader never takes that long."""


class Deviation(AssertionError):
    """A way that does not do what the model says."""


class SilentSkip(Deviation):
    """Records that were passed over without an error."""


class Play(NamedTuple):
    """Who reads what.

    start: so many offsets behind the log's first one. committed: reads only what is committed.
    """

    way: type[Way]
    handler: str
    form: str
    codec: str
    committed: bool
    start: int = 0

    def __str__(self) -> str:
        level = "read_committed" if self.committed else "read_uncommitted"
        return f"{self.way.name} on {self.handler}, {self.form} {self.codec}, {level}, from {self.start}"


def plays(ways: Sequence[type[Way]] = CHEAP) -> st.SearchStrategy[Play]:
    """One of the ways, and a format to read in."""

    def play(number: int) -> Play:
        digits = Digits(number)
        form = digits.pick(("v2", "v1", "v0", "v1, then v2", "v2"))
        codec = digits.pick([name for name in CODECS if form == "v2" or name != "zstd"])
        start = digits.pick((0, 0, 0, 1, 3, 7))
        way = digits.pick(ways)
        return Play(way, digits.pick(way.handlers), form, codec, digits.pick(way.levels), start)

    return st.integers(0, Digits.MOST).map(play)


class Told(NamedTuple):
    """What a stretch up to an error, or up to the log's end, was like.

    Offsets count from the log's first one.
    """

    records: tuple[int, ...]
    error: int | None
    position: int | None
    committed: int | None


class Stage:
    """One broker in this process, a client for each handler, and the readers, which are kept."""

    def __init__(self) -> None:
        self.cluster = MockCluster(auto_create=False, history=10)
        self._clients: dict[str, KafkaClient] = {}
        self._ways: dict[tuple[type[Way], str, bool], Way] = {}
        self._made = 0
        self.played: Counter[tuple[str, str, str, str]] = Counter()

    def play(self, shape: Shape, play: Play) -> list[Told]:
        """Write the log, and read it to its end in this way, seeking past each damage.

        Raises Deviation.
        """
        way = self._way(play)
        log = Served(self.cluster, way.topic, shape, play)
        self.played[play.way.name, play.handler, play.form, play.codec] += 1
        try:
            return _stretches(way, log, min(log.base + play.start, log.entries[-1].last + 1), play)
        except Deviation as error:
            self._drop(play)
            raise type(error)(f"{error}\n{shape}") from error
        except BaseException:
            self._drop(play)  # what it keeps may be anywhere
            raise

    def _way(self, play: Play) -> Way:
        key = play.way, play.handler, play.committed
        if key not in self._ways:
            self._made += 1
            topic = f"t{self._made}"
            self.cluster.create_topic(topic)
            if play.handler not in self._clients:
                self._clients[play.handler] = KafkaClient(self.cluster.bootstrap, handler=play.handler)
            self._ways[key] = play.way(self.cluster, self._clients[play.handler], play.handler, topic, play.committed)
        return self._ways[key]

    def _drop(self, play: Play) -> None:
        way = self._ways.pop((play.way, play.handler, play.committed))
        with contextlib.suppress(KafkaException):
            way.close()

    def turn(self) -> None:
        """Let the hub's greenlets run: those for heartbeats must not wait behind threads."""
        if "gevent" in self._clients:
            self._clients["gevent"].handler.sleep(0)

    def close(self) -> None:
        for way in self._ways.values():
            with contextlib.suppress(KafkaException):
                way.close()
        end_all()
        for client in self._clients.values():
            client.close(60)
        self.cluster.close()
        assert not self.cluster.errors, self.cluster.errors

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Served:
    """A log behind all that a topic's partition held before, from the offset `base` on."""

    def __init__(self, cluster: MockCluster, topic: str, shape: Shape, play: Play) -> None:
        self._cluster, self._topic, self._play = cluster, topic, play
        self.base = cluster.offsets(topic, 0)[1]
        log = written(shape, play.form, play.codec, self.base)
        self.entries: list[Entry] = list(log.entries)
        cluster.delete_records(topic, 0, self.base)
        cluster.set_transactions(topic, 0, aborted=list(log.aborted))
        cluster.append(topic, 0, log.data)

    def grow(self) -> None:
        """Somebody produces: whoever waits at the end of the log gets an answer at once."""
        more = one_more(self._play.form, self._play.codec, self.entries[-1].last + 1)
        self.entries += more.entries
        self._cluster.append(self._topic, 0, more.data)


def _stretches(way: Way, log: Served, start: int, play: Play) -> list[Told]:
    found: list[Told] = []
    while True:
        if not found and _is_empty(read(log.entries, start, committed=play.committed)):
            return found
        if found or not way.stays or way.position() != start:
            way.seek(start)
        if found:
            log.grow()
        expected = read(log.entries, start, committed=play.committed)
        failure = _read(way, log, expected, play)
        found.append(_told(way, log, expected, failure))
        if expected.stop is None:
            return found
        start = _goes_on(failure, expected.stop, play)


def _is_empty(reading: Reading) -> bool:
    return not reading.records and reading.stop is None


def _read(way: Way, log: Served, expected: Reading, play: Play) -> Failure | None:
    """Read until all has come, or an error.

    Then the same error must come again, and reader and group must stand before the damage.
    """
    got = 0
    until = now() + LIMIT_S
    failure: Failure | None = None
    while failure is None and (expected.stop is not None or got < len(expected.records)):
        taken, failure = _call(way)
        _compare(taken, expected, got, play)
        got += len(taken)
        _check_stands("it stands at", way.position(), expected, got, play)
        if now() > until:
            raise Deviation(f"{play}: nothing came for {LIMIT_S:g} s behind {got} records of {expected}")
        if taken:
            until = now() + LIMIT_S
    if failure is not None:
        _check_failure(failure, expected, got, play)
        log.grow()
        again, repeated = _call(way)
        if again or repeated is None or repeated.next_offset != failure.next_offset:
            raise Deviation(f"{play}: {failure}, and the next call gave {again or repeated}: {expected}")
        _check_failure(repeated, expected, got, play)
        _check_stands("it stands at", way.position(), expected, got, play)
    if way.group is not None:
        way.commit()
        _check_stands("the group has committed", _committed(way), expected, got, play, low=bool(got))
    return failure


def _call(way: Way) -> tuple[list[Record], Failure | None]:
    try:
        return way.read(), None
    except KafkaException as error:
        return [], way.failure(error)


def _compare(taken: list[Record], expected: Reading, got: int, play: Play) -> None:
    wanted = list(expected.records[got : got + len(taken)])
    if taken == wanted:
        return
    offsets, missing = [r.offset for r in taken], [r.offset for r in expected.records[got:]]
    skipped = len(taken) > len(wanted) or any(a > b for a, b in zip(offsets, missing, strict=False))
    kind = SilentSkip if skipped else Deviation
    word = "SILENT SKIP" if skipped else "other records"
    raise kind(f"{play}: {word}: {offsets} where {missing} and then {expected.stop or 'the end'} had to come; {taken}, {wanted}")


def _check_failure(failure: Failure, expected: Reading, got: int, play: Play) -> None:
    stop = expected.stop
    if stop is None or got != len(expected.records):
        missing = [r.offset for r in expected.records[got:]]
        raise Deviation(f"{play}: {failure} where {missing} and then {stop or 'the end'} had to come")
    if failure.unsupported != stop.unsupported or failure.offset is None or not stop.named[0] <= failure.offset <= stop.named[1]:
        raise Deviation(f"{play}: {failure} where {stop} had to be told")


def _check_stands(what: str, offset: int | None, expected: Reading, got: int, play: Play, *, low: bool = True) -> None:
    lowest, highest = expected.allowed(got)
    if offset is not None and not (lowest if low else -1) <= offset <= highest:
        kind = SilentSkip if offset > highest else Deviation
        raise kind(f"{play}: {what} {offset} behind {got} records of {expected}, where {lowest} to {highest} is right")


def _goes_on(failure: Failure | None, stop: Stop, play: Play) -> int:
    assert failure is not None
    told = stop.goes_on if stop.knows and not stop.unsupported else None
    if play.way.tells_where_to_go_on and failure.next_offset != told:
        raise Deviation(f"{play}: {failure} says where to go on, and {stop} is right")
    return stop.goes_on


def _committed(way: Way) -> int | None:
    assert way.group is not None
    entry = way.cluster.committed(way.group).get((way.topic, 0))
    return None if entry is None else entry.offset


def _told(way: Way, log: Served, expected: Reading, failure: Failure | None) -> Told:
    base = log.base
    position, committed = way.position(), None if way.group is None else _committed(way)
    return Told(
        tuple(record.offset - base for record in expected.records),
        None if failure is None or failure.offset is None else failure.offset - base,
        None if position is None else position - base,
        None if committed is None or committed < base else committed - base,
    )
