"""Many records at once, as columns: straight into the open batches, without an object for any of them.

All that is not per record is the producer's as it was. A record that finds no open batch with room takes the way of a single one, which rolls
the full batch, waits for memory, opens the next, or says what is wrong with the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from gkafka import records
from gkafka.checks import check_topic_name
from gkafka.exceptions import ConfigurationError, RecordTooLarge, SerializationError
from gkafka.records import RecordColumns
from gkafka.records.recordcolumns import NoSuchPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gkafka.handlers import Handler
    from gkafka.records import Appender, Delivery

__all__ = ["ColumnCalls"]


class ColumnCalls:
    """The part of a producer that takes columns."""

    if TYPE_CHECKING:
        _appender: Appender
        _handler: Handler
        _hash: Callable[[bytes], int] | None

        produce: Callable[..., Delivery]

        @property
        def takes_lanes(self) -> bool: ...

        def produce_slow(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery: ...
        def check_process(self) -> None: ...
        def _check_open(self) -> None: ...
        def know_topic(self, topic: str) -> int: ...
        def _timestamp(self, timestamp: Any) -> int: ...

    def produce_columns(
        self, topic: str, columns: RecordColumns, *, timestamp: int | None = None, row_numbers: Sequence[int] | None = None
    ) -> list[Delivery]:
        """Accept many records, in order, as `produce()` would one after another; waits for room in the buffer up to max_block_ms each time.

        timestamp: ms since the epoch, of all of them; None is now. row_numbers: what errors call the rows; None is 0, 1, ... Returns the deliveries of
        those that began a batch; each one's `batch` tells what becomes of all in it (`done`, `error`, `base_offset`, `count`). Raises what
        `produce()` raises, with the number of the row where it is the row's fault; the rows before it were accepted, but for a partition
        column that names one that the topic does not have: that is found before any is. With interceptors, serializers or a partitioner
        of your own each record goes by itself, through `produce()`.
        """
        if not isinstance(columns, RecordColumns):
            raise ConfigurationError(
                f"columns is {type(columns).__name__}: must be gkafka.records.RecordColumns; RecordColumns.from_arrow() makes them"
            )
        topic = check_topic_name(topic)
        self.check_process()
        self._check_open()
        stamp = self._timestamp(timestamp)
        numbers = range(columns.count) if row_numbers is None else row_numbers
        try:
            targets = self._targets(columns, self.know_topic(topic))
        except NoSuchPartition as exc:
            raise NoSuchPartition(f"row {numbers[exc.row]} for topic {topic!r}: {exc}", row=exc.row, topic=topic) from None
        begun: list[Delivery] = []
        if not self.takes_lanes:
            # Only produce() knows what key a record goes out with, and so its partition. It gives the hub its turns, too.
            for row in range(columns.count):
                delivery = self._produce_row(self.produce, topic, columns, targets[row], row, numbers, timestamp)
                if delivery.index == 0:
                    begun.append(delivery)
            return begun
        row = 0
        while (row := records.encode_columns(self._appender, topic, columns, targets, row, stamp)) < columns.count:
            begun.append(self._produce_row(self.produce_slow, topic, columns, targets[row], row, numbers, stamp))
            row += 1
        return begun

    def _targets(self, columns: RecordColumns, count: int) -> memoryview:
        """A partition for each row, -1 where it is chosen when the record is appended. Keys choose only if they go out as they are here."""
        if not self.takes_lanes:
            columns = RecordColumns(columns.count, partitions=columns.partitions)
        return records.choose_partitions(columns, count, by_crc32=self._hash is crc32)

    @staticmethod
    def _produce_row(
        produce: Callable[..., Delivery],
        topic: str,
        columns: RecordColumns,
        target: int,
        row: int,
        numbers: Sequence[int],
        stamp: int | None,
    ) -> Delivery:
        try:
            value, key, headers = columns.row(row)
            return produce(topic, value, key, None if target < 0 else target, stamp, headers)
        except (RecordTooLarge, SerializationError) as exc:
            raise type(exc)(f"row {numbers[row]}: {exc}", topic=topic) from exc
