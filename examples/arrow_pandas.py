#!/usr/bin/env python3
"""A topic in pandas: per key how many records, how many bytes and from when to when, with no Python object for any record.

    pip install 'gkafka[arrow]' pandas

consume_arrow() hands out columns; pandas works on them as they are (ArrowDtype). What is there at the start is read, and what comes meanwhile, until
nothing is left. With --group the next run goes on where this one has ended: the block commits what it was given when it is left in order.
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

    import pandas as pd
    import pyarrow as pa

COLUMNS = ("key", "value", "timestamp")
SUMS = {"records": "sum", "bytes": "sum", "first": "min", "last": "max"}


def batches(consumer: Any) -> Iterator[pa.RecordBatch]:
    """What the topic holds, until this consumer has it all."""
    while True:
        batch = consumer.consume_arrow(timeout_ms=500, columns=COLUMNS)
        if batch.num_rows:
            yield batch
        elif (lag := consumer.lag()) and not any(lag.values()):  # no partitions yet, or -1 for "not known yet", are no end
            return


def summary(batch: pa.RecordBatch) -> pd.DataFrame:
    """Per key: records, bytes, first and last."""
    import pandas as pd
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.binary_length(batch["value"]), 0)
    frame = batch.select(["key", "timestamp"]).append_column("bytes", lengths).to_pandas(types_mapper=pd.ArrowDtype)
    by_key = frame.groupby("key", dropna=False)
    found: pd.DataFrame = by_key.agg(
        records=("bytes", "size"), bytes=("bytes", "sum"), first=("timestamp", "min"), last=("timestamp", "max")
    )
    return found


def main() -> int:
    args = arguments()
    needs("pandas", "pyarrow")
    if not kafka_is_there(args):
        return 1
    import pandas as pd

    began = time.perf_counter()
    try:
        with KafkaClient(args.hosts) as client, client.get_consumer(args.topic, args.group) as consumer:
            parts = [summary(batch) for batch in batches(consumer)]
    except KafkaException as exc:
        complain(exc)
        return 1
    if not parts:
        print(f"{args.topic}: nothing to read")
        return 0
    whole = pd.concat(parts).groupby(level="key", dropna=False).agg(SUMS).sort_values("records", ascending=False)
    print(f"{whole['records'].sum()} records, {whole['bytes'].sum()} bytes, {len(whole)} keys in {time.perf_counter() - began:.2f} s")
    for key, row in whole.head(args.top).iterrows():
        name = key.decode(errors="replace") if isinstance(key, bytes) else "(no key)"
        print(f"{row['records']:>10} {row['bytes']:>12}  {row['first']:%F %T} to {row['last']:%F %T}  {name}")
    return 0


def arguments() -> Any:
    parser = parser_of(__doc__ or "", "lines")
    parser.add_argument("--group", help="go on where this group has committed (default: read everything)")
    parser.add_argument("--top", type=positive, default=10, help="keys that are shown (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
