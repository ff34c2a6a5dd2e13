#!/usr/bin/env python3
"""The most linked pages, live: a gkafka consumer group on the compacted topic that stream.py keeps.

Each record of `inlinks` says how many links lead to a path by now; the newest counts. On a terminal the table is drawn anew whenever it has
changed, elsewhere its first three are a line. SIGTERM: what the topic still has is taken in, the table is printed, and the program ends.

Only committed records are read (read_committed). The table is in memory alone, so the group commits nothing: each start reads the topic, which
compaction keeps small, from its beginning. A path's counts only grow, so one that is not larger than that before it would be a duplicate:
they are counted, too.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from names import Names, parser_of, positive

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

SHOWN_EVERY_S = 1.0
CAUGHT_UP_WITHIN_S = 60
LATEST = -1
CLEAR = "\x1b[H\x1b[2J"


class Table:
    """The newest count of each path."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.records = 0
        self.repeats = 0  # records that did not say more than the one before

    def take(self, path: str, count: int) -> None:
        self.records += 1
        if count <= self.counts.get(path, 0):
            self.repeats += 1
        self.counts[path] = count

    def top(self, rows: int) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:rows]


def as_table(table: Table, rows: int) -> str:
    lines = [f"{count:>9,}  {path}" for path, count in table.top(rows)]
    return "\n".join([f"{sum(table.counts.values()):,} links to {len(table.counts):,} paths; {table.records:,} records read", *lines])


def as_line(table: Table) -> str:
    return f"{sum(table.counts.values()):>9,} links: " + ", ".join(f"{path} {count:,}" for path, count in table.top(3))


class Top:
    def __init__(self, consumer: Any, rows: int) -> None:
        self.table = Table()
        self.asked_to_end = False
        self._consumer = consumer
        self._rows = rows

    def run(self, client: Any, topic: str) -> bool:
        """Until SIGTERM. True if the end of the topic was reached then."""
        shown_at, shown = 0.0, 0
        while not self.asked_to_end:
            self._take(timeout_ms=200)
            if self.table.records != shown and time.monotonic() - shown_at >= SHOWN_EVERY_S:
                shown_at, shown = time.monotonic(), self.table.records
                print(CLEAR + as_table(self.table, self._rows) if sys.stdout.isatty() else as_line(self.table), flush=True)
        ends = client.list_offsets({(topic, number): LATEST for number in client.partitions(topic)})
        deadline = time.monotonic() + CAUGHT_UP_WITHIN_S
        while not self._is_at(ends) and time.monotonic() < deadline:
            self._take(timeout_ms=200)
        print(as_table(self.table, self._rows), flush=True)
        return self._is_at(ends)

    def _take(self, timeout_ms: int) -> None:
        for message in self._consumer.consume_batch(10_000, timeout_ms=timeout_ms):
            self.table.take(bytes(message.partition_key).decode(), int(message.value))

    def _is_at(self, ends: dict[Any, int]) -> bool:
        positions = self._consumer.positions()
        return all(positions.get(tp, 0) >= end for tp, end in ends.items())

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_end = True


def main() -> int:
    args = arguments()
    names = Names(args.prefix)
    try:
        with (
            KafkaClient(args.hosts, handler="threading") as client,
            client.get_consumer(names.inlinks, group=names.top, isolation_level="read_committed", auto_commit=False) as consumer,
        ):
            top = Top(consumer, args.rows)
            signal.signal(signal.SIGTERM, top.on_signal)
            whole = top.run(client, names.inlinks)
    except KafkaException as exc:
        print(f"top.py: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    if args.write:
        told = {"inlinks": top.table.counts, "top": top.table.top(args.rows), "records": top.table.records, "repeats": top.table.repeats}
        args.write.write_text(json.dumps(told, indent=1, ensure_ascii=False), encoding="utf-8")
    if not whole:
        print(f"top.py: the end of {names.inlinks} was not reached within {CAUGHT_UP_WITHIN_S} s", file=sys.stderr)
    return 0 if whole else 1


def arguments() -> Any:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--rows", type=positive, default=20, help="of the table (default: %(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="at the end, write all counts as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
