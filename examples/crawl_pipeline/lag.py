#!/usr/bin/env python3
"""Show how far the streaming queries are behind: the lag of the groups to which stream.py commits, as any tool of Kafka's would see it.

A line whenever it has changed, and once a second: for each group what it has committed and what it has left. The groups' topics must be there.
With --until-caught-up it ends when there is something and none of it is left; else at Ctrl-C.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from names import ARCHIVE, INLINKS, WINDOWS, Names, parser_of

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

QUERIES = (ARCHIVE, INLINKS, WINDOWS)
EVERY_S = 0.4
HEARTBEAT_S = 1.0
EARLIEST, LATEST = -2, -1


@dataclass(frozen=True)
class Lag:
    """at: seconds since the epoch. done, left: records of each query's topics that its group has committed, and those that it has not."""

    at: float
    done: dict[str, int]
    left: dict[str, int]

    @property
    def caught_up(self) -> bool:
        return all(self.done.values()) and not any(self.left.values())


def look(client: Any, names: Names) -> Lag:
    """Raises KafkaException."""
    admin = client.admin()
    done, left = {}, {}
    for query in QUERIES:
        partitions = [(topic, number) for topic in names.read_by(query) for number in client.partitions(topic)]
        committed = admin.list_group_offsets(names.group(query), partitions)
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        at = {tp: max(committed[tp].offset, starts[tp]) for tp in ends}
        done[query] = sum(at[tp] - starts[tp] for tp in ends)
        left[query] = sum(ends[tp] - at[tp] for tp in ends)
    return Lag(time.time(), done, left)


def watch(client: Any, names: Names) -> Iterator[Lag]:
    """Each change, and one every HEARTBEAT_S without."""
    last: Lag | None = None
    while True:
        lag = look(client, names)
        if last is None or lag.at - last.at >= HEARTBEAT_S or (lag.done, lag.left) != (last.done, last.left):
            last = lag
            yield lag
        time.sleep(EVERY_S)


def as_text(done: dict[str, int], left: dict[str, int]) -> str:
    return "   ".join(f"{query} {left[query]:>9,} left of {done[query] + left[query]:,}" for query in left)


def main() -> int:
    args = arguments()
    try:
        with KafkaClient(args.hosts, handler="threading") as client:
            for lag in watch(client, Names(args.prefix)):
                print(json.dumps(asdict(lag)) if args.json else as_text(lag.done, lag.left), flush=True)
                if args.until_caught_up and lag.caught_up:
                    break
    except KafkaException as exc:
        print(f"lag.py: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--until-caught-up", action="store_true", help="end when all that there is has been committed")
    parser.add_argument("--json", action="store_true", help="lines of JSON: at, done, left")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
