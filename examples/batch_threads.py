#!/usr/bin/env python3
"""A batch job on OS threads: each line of the files becomes a record, a few threads work on the files, all share one producer.

It needs nothing but gkafka.

The producer is told about by one exception: leaving its block waits until everything is delivered, or raises a DeliveryError that names each
record that is not and says whether it may be in the log all the same. The job ends with status 1 then. A line is acknowledged by all
in-sync replicas and is there once, however often the client had to send it.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recipe import complain, kafka_is_there, parser_of, positive, run

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "auto")
SHOWN = 5


def send(producer: Any, topic: str, path: Path) -> int:
    """The lines of a file, its name the key: they keep their order. Returns how many."""
    count = 0
    with path.open("rb") as lines:
        for line in lines:
            producer.produce(topic, line.rstrip(b"\r\n"), key=path.name.encode())
            count += 1
    return count


def main() -> int:
    args = arguments()
    if not kafka_is_there(args):
        return 1
    began = time.perf_counter()
    try:
        with (
            ThreadPoolExecutor(args.threads) as pool,  # outermost: on Ctrl-C its threads end as they find the producer closed
            KafkaClient(args.hosts, handler="threading") as client,
            client.get_producer(acks="all", compression=args.compression) as producer,
        ):
            counts = list(pool.map(lambda path: send(producer, args.topic, path), args.files))
    except DeliveryError as exc:
        for record in exc.records[:SHOWN]:
            print(f"not delivered (in the log: {record.persisted}): {record.error}", file=sys.stderr)
        print(f"{len(exc.records)} records were not delivered", file=sys.stderr)
        return 1
    except (KafkaException, OSError) as exc:
        complain(exc)
        return 1
    took = time.perf_counter() - began
    print(f"{sum(counts)} lines of {len(args.files)} files delivered by {args.threads} threads in {took:.2f} s")
    return 0


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__ or "", "lines")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="text, a record for each line")
    parser.add_argument("--threads", type=positive, default=4, help="(default: %(default)s)")
    parser.add_argument("--compression", choices=CODECS, default="lz4", help="(default: %(default)s)")
    args = parser.parse_args()
    for path in args.files:
        if not path.is_file():
            parser.error(f"{path}: no such file")
    return args


if __name__ == "__main__":
    run(main)
