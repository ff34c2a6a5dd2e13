"""What KafkaConsumer hands out (kafka.consumer.fetcher): records that behave as the documented namedtuple."""

from gkafka.records import Row
from gkafka.records._rows import ConsumerRecord

__all__ = ["ConsumerRecord", "Row"]
