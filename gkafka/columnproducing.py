"""Many records at once, as columns: straight into the open batches, without an object for any of them.

All that is not per record is the producer's as it was. A record that finds no open batch with room takes the way of a single one, which rolls
the full batch, waits for memory, opens the next, or says what is wrong with the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gkafka import records
from gkafka.checks import check_topic_name
from gkafka.exceptions import ConfigurationError, RecordTooLarge, SerializationError
from gkafka.records import RecordColumns
from gkafka.records.recordcolumns import NoSuchPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gkafka.records import Appender, Delivery

__all__ = ["ColumnRun"]


class ColumnRun:
    """One call of produce_columns(): the rows of a topic, appended in their order.

    row_numbers: what errors call the rows; None is 0, 1, ... topic: checked. Each way to append
    returns the deliveries of those records that began a batch.
    """

    def __init__(self, topic: Any, columns: Any, row_numbers: Sequence[int] | None) -> None:
        if not isinstance(columns, RecordColumns):
            raise ConfigurationError(
                f"columns is {type(columns).__name__}: must be gkafka.records.RecordColumns; RecordColumns.from_arrow() makes them"
            )
        self.topic = check_topic_name(topic)
        self._columns = columns
        self._numbers = range(columns.count) if row_numbers is None else row_numbers

    def append(self, appender: Appender, produce_slow: Callable[..., Delivery], count: int, timestamp: int) -> list[Delivery]:
        """Append the rows to open batches; produce_slow() takes those for which there is none with room.

        count: partitions of the topic.
        """
        begun: list[Delivery] = []
        targets = self._targets(self._columns, count, by_crc32=appender.crc32)
        row = 0
        while (row := records.encode_columns(appender, self.topic, self._columns, targets, row, timestamp)) < self._columns.count:
            begun.append(self._produce_row(produce_slow, targets[row], row, timestamp))
            row += 1
        return begun

    def produce_each(self, produce: Callable[..., Delivery], count: int, timestamp: int | None) -> list[Delivery]:
        """Call produce() for each row: only that knows what key a record goes out with, and so its partition.

        It gives the hub its turns, too.
        """
        begun: list[Delivery] = []
        given = RecordColumns(self._columns.count, partitions=self._columns.partitions)
        targets = self._targets(given, count, by_crc32=False)
        for row in range(self._columns.count):
            delivery = self._produce_row(produce, targets[row], row, timestamp)
            if delivery.index == 0:
                begun.append(delivery)
        return begun

    def _targets(self, columns: RecordColumns, count: int, *, by_crc32: bool) -> memoryview:
        """Return a partition for each row, -1 where it is chosen when the record is appended."""
        try:
            return records.choose_partitions(columns, count, by_crc32=by_crc32)
        except NoSuchPartition as exc:
            raise NoSuchPartition(f"row {self._numbers[exc.row]} for topic {self.topic!r}: {exc}", row=exc.row, topic=self.topic) from None

    def _produce_row(self, produce: Callable[..., Delivery], target: int, row: int, timestamp: int | None) -> Delivery:
        try:
            value, key, headers = self._columns.row(row)
            return produce(self.topic, value, key, None if target < 0 else target, timestamp, headers)
        except (RecordTooLarge, SerializationError) as exc:
            raise type(exc)(f"row {self._numbers[row]}: {exc}", topic=self.topic) from exc
