#!/usr/bin/env python3
"""A topic in polars: records and bytes per partition and minute, with no Python object for any record.

    pip install 'gkafka[arrow]' polars

consume_arrow() hands out columns, which polars takes without a copy. What is there at the start is read, and what comes meanwhile, until nothing is
left. With --group the next run goes on where this one has ended, and several programs of one group share the partitions among them.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from recipe import complain, kafka_is_there, needs, parser_of, positive

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

COLUMNS = ("value", "partition", "timestamp")


def frames(consumer: Any) -> Iterator[pl.DataFrame]:
    """What the topic holds, until this consumer has it all."""
    import polars as pl

    while True:
        batch = consumer.consume_arrow(timeout_ms=500, columns=COLUMNS)
        if batch.num_rows:
            yield pl.DataFrame(batch)
        elif (lag := consumer.lag()) and not any(lag.values()):  # no partitions yet, or -1 for "not known yet", are no end
            return


def summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Per partition and minute: records and bytes."""
    import polars as pl

    minute = pl.col("timestamp").dt.truncate("1m").alias("minute")
    return frame.group_by("partition", minute).agg(records=pl.len(), bytes=pl.col("value").bin.size().sum())


def main() -> int:
    args = arguments()
    needs("polars", "pyarrow")
    if not kafka_is_there(args):
        return 1
    import polars as pl

    began = time.perf_counter()
    try:
        with KafkaClient(args.hosts) as client, client.get_consumer(args.topic, args.group) as consumer:
            parts = [summary(frame) for frame in frames(consumer)]
    except KafkaException as exc:
        complain(exc)
        return 1
    if not parts:
        print(f"{args.topic}: nothing to read")
        return 0
    whole = pl.concat(parts).group_by("partition", "minute").agg(pl.col("records", "bytes").sum()).sort("partition", "minute")
    print(f"{whole['records'].sum()} records, {whole['bytes'].sum()} bytes in {time.perf_counter() - began:.2f} s")
    for row in whole.tail(args.top).iter_rows(named=True):
        print(f"{args.topic}-{row['partition']}  {row['minute']:%F %H:%M}  {row['records']:>10} {row['bytes']:>12}")
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "", "lines")
    parser.add_argument("--group", help="go on where this group has committed (default: read everything)")
    parser.add_argument("--top", type=positive, default=20, help="of the last rows that are shown (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
