"""What the tests of the writing half share: an owner that remembers, and short ways to a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

SLOW = object()  # what the owner answers for a record that the fast path did not take

Row = tuple[int, "bytes | None", "bytes | None", "list[tuple[str, bytes | None]] | None"]  # timestamp, key, value, headers


class Owner:
    """Stands for the producer: counts what reaches it."""

    def __init__(self) -> None:
        self.slow: list[tuple[Any, ...]] = []
        self.waits: list[tuple[Any, float | None]] = []
        self.checkpoints = 0
        self.on_wait: Callable[[Any], object] = lambda batch: None
        self.on_checkpoint: Callable[[], object] = lambda: None

    def produce_slow(self, *record: Any) -> object:
        self.slow.append(record)
        return SLOW

    def wait(self, batch: Any, timeout: float | None, index: int) -> None:
        self.waits.append((batch, timeout))
        self.on_wait(batch)

    def checkpoint(self) -> None:
        self.checkpoints += 1
        self.on_checkpoint()


def make_appender(impl: Any, owner: Any = None, **options: Any) -> Any:
    """An appender with small sizes and the topic "t" of 4 partitions, 2 the sticky one."""
    sizes = {"batch_bytes": 16384, "buffer_bytes": 1 << 20, "max_record_bytes": 1 << 20, "initial_bytes": 256}
    appender = impl.Appender(Owner() if owner is None else owner, **{**sizes, **options})
    appender.set_topic("t", 4, 2)
    return appender


def fill(impl: Any, rows: Iterable[Row], *, partition: int = 1, appender: Any = None, **options: Any) -> Any:
    """A batch of the rows, rolled and not sealed. Its appender stands in batch.extra."""
    rows = list(rows)
    appender = appender or make_appender(impl, **{"batch_bytes": 1 << 20, "buffer_bytes": 1 << 26, "max_record_bytes": 1 << 30, **options})
    appender.open("t", partition, 1.0)
    for timestamp, key, value, headers in rows:
        assert appender.append("t", partition, value, key, timestamp, headers) is not None
    batch = appender.take("t", partition)
    batch.extra = appender
    return batch


def some_rows(n: int = 20, *, headers: bool = True) -> list[Row]:
    """Rows with everything that a record may have: tombstones, empty values, no keys, repeated and null headers."""
    rows: list[Row] = []
    for i in range(n):
        key = (None, b"", b"key-%d" % i)[i % 3]
        value = (b"value %d " % i * 10, None, b"", b"\x00\xff" * (i % 100))[i % 4]
        some = [("a", b"1"), ("a", None), ("ümlaut", b"")] if headers and i % 5 == 0 else None
        rows.append((1_700_000_000_000 + i // 3 * 7, key, value, some))
    return rows
