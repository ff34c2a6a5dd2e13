"""Many records at once, as columns: straight into the open batches, without an object for any of them.

All that is not per record is the producer's as it was. A record that finds no open batch with room takes the way of a single one, which rolls
the full batch, waits for memory, opens the next, or says what is wrong with the record.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gkafka import records
from gkafka.checks import check_topic_name
from gkafka.exceptions import ConfigurationError, RecordTooLarge, SerializationError
from gkafka.intake import chosen_by
from gkafka.records import RecordColumns
from gkafka.records.recordcolumns import NoSuchPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gkafka.config import ProducerConfig
    from gkafka.handlers import Handler
    from gkafka.records import Appender, Delivery

__all__ = ["ColumnCalls"]


class ColumnCalls:
    """The part of a producer that takes columns."""

    if TYPE_CHECKING:
        _appender: Appender
        _handler: Handler
        _hash: Callable[[bytes], int] | None

        config: ProducerConfig
        produce: Callable[..., Delivery]

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
        that the topic does not have: that is found before any is. With serializers or interceptors each record goes by itself.
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
            targets = self._targets(topic, columns, self.know_topic(topic))
        except NoSuchPartition as exc:
            raise NoSuchPartition(f"row {numbers[exc.row]} for topic {topic!r}: {exc}", row=exc.row, topic=topic) from None
        config = self.config
        if config.interceptors or config.value_serializer is not None or config.key_serializer is not None:
            return [self._produce_row(self.produce, topic, columns, targets[row], row, numbers, stamp) for row in range(columns.count)]
        begun: list[Delivery] = []
        row = 0
        while (row := records.encode_columns(self._appender, topic, columns, targets, row, stamp)) < columns.count:
            begun.append(self._produce_row(self.produce_slow, topic, columns, targets[row], row, numbers, stamp))
            row += 1
        return begun

    def _targets(self, topic: str, columns: RecordColumns, count: int) -> memoryview:
        if self._hash is not None:
            return records.choose_partitions(columns, count, by_crc32=self._hash is crc32)
        chosen = records.choose_partitions(RecordColumns(columns.count, partitions=columns.partitions), count)
        return memoryview(
            array(
                "i",
                [n if n >= 0 else chosen_by(self.config.partitioner, topic, count, columns.row(row)[1]) for row, n in enumerate(chosen)],
            )
        )

    @staticmethod
    def _produce_row(
        produce: Callable[..., Delivery], topic: str, columns: RecordColumns, target: int, row: int, numbers: Sequence[int], stamp: int
    ) -> Delivery:
        try:
            value, key, headers = columns.row(row)
            return produce(topic, value, key, None if target < 0 else target, stamp, headers)
        except (RecordTooLarge, SerializationError) as exc:
            raise type(exc)(f"row {numbers[row]}: {exc}", topic=topic) from exc
