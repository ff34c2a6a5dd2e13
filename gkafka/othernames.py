"""What pykafka, kafka-python and confluent-kafka call gkafka's calls and options, and what its own two APIs call those of each other: errors name ours.

CALLS has the calls that a class lacks, and what to write there: who asks for one gets an AttributeError that says so (`OfOneProcess`). SAME has options by
all their names; which of them a call takes tells what it is there. NO_OPTION has those that no option stands for.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["CALLS", "NO_OPTION", "SAME", "here", "lacks"]

BY_CLIENT = "client.get_consumer(topics, group=...)"
COMMITTED = "committed((topic, partition))"
ENDS = "client.list_offsets({(topic, partition): -1}), with -2 for the beginning"
ONE_BY_ONE = "consume(timeout_ms) for one message, consume_batch(max_messages, timeout_ms) for several"
NATIVE_ONLY = "a call of client.get_consumer()"
NOT_NEEDED = "it is not needed"

CALLS: dict[str, dict[str, str]] = {
    "gkafka.client.KafkaClient": {
        "producer": "get_producer()",
        "consumer": "get_consumer(), or topics[name].get_simple_consumer()",
        "get_simple_consumer": "topics[name].get_simple_consumer()",
        "get_balanced_consumer": "topics[name].get_balanced_consumer()",
        "get_sync_producer": "topics[name].get_sync_producer()",
        "produce": "get_producer().produce()",
        "send": "get_producer().produce()",
        "poll": "get_consumer().consume_batch()",
        "consume": "get_consumer().consume_batch()",
        "flush": "get_producer().flush()",
        "list_topics": "topics",
        "create_topics": "create_topic(), or admin().create_topics()",
        "delete_topics": "delete_topic(), or admin().delete_topics()",
    },
    "gkafka.topic.Topic": {
        "produce": "get_producer().produce()",
        "get_consumer": "get_simple_consumer(), or client.get_consumer(topic.name)",
        "consume": "get_simple_consumer().consume()",
    },
    "gkafka.nativeproducer.NativeProducer": {
        "stop": "close()",
        "start": f"{NOT_NEEDED}: it runs from the beginning to close()",
        "poll": f"{NOT_NEEDED}: a worker of the producer's calls callbacks, and flush() waits for all records",
        "get_delivery_report": "result() of what produce() returns, or get_producer(on_delivery=...)",
        "list_topics": "client.topics",
        "partitions_for": "client.partitions(topic)",
        "send_offsets_to_transaction": "send_offsets()",
    },
    "gkafka.consumer.Consumer": {
        "poll": ONE_BY_ONE,
        "subscribe": BY_CLIENT,
        "unsubscribe": "stop()",
        "subscription": "assignment()",
        "unassign": "assign([])",
        "start": f"{NOT_NEEDED}: it runs from the beginning to stop()",
        "fetch": "consume_batch()",
        "commit_offsets": "commit()",
        "commit_async": "commit()",
        "fetch_offsets": COMMITTED,
        "held_offsets": "positions()",
        "reset_offsets": "seek((topic, partition), offset)",
        "seek_to_beginning": "seek((topic, partition), -2)",
        "seek_to_end": "seek((topic, partition), -1)",
        "beginning_offsets": ENDS,
        "end_offsets": ENDS,
        "get_watermark_offsets": ENDS,
        "partitions": "assignment()",
        "partitions_for_topic": "client.partitions(topic)",
        "topics": "client.topics",
        "list_topics": "client.topics",
        "store_offsets": "commit(), with get_consumer(auto_commit=False)",
        "consumer_group_metadata": "group_metadata()",
    },
    "gkafka.producer.Producer": {
        "send": "produce(message, partition_key=...)",
        "close": "stop()",
        "flush": "stop(), or result() of what produce() returns; the producer of client.get_producer() has it",
        "poll": "get_delivery_report(), with get_producer(delivery_reports=True)",
    },
}
_OF_TOPICS = {
    "poll": "consume() for one message, consume_batch() for several",
    "close": "stop()",
    "subscribe": BY_CLIENT,
    "commit": "commit_offsets()",
    "committed": "fetch_offsets()",
    "seek": "reset_offsets([(partition, offset)])",
    "position": "held_offsets",
    "positions": "held_offsets",
    "assignment": "partitions",
    "assign": "get_simple_consumer(partitions=[...])",
    "pause": NATIVE_ONLY,
    "resume": NATIVE_ONLY,
    "consume_arrow": NATIVE_ONLY,
    "offsets_for_times": "topic.fetch_offset_limits(time), or client.list_offsets()",
}
"""pykafka's consumers."""
CALLS["gkafka.simpleconsumer.SimpleConsumer"] = _OF_TOPICS
CALLS["gkafka.balancing.Balancing"] = {name: ours for name, ours in _OF_TOPICS.items() if name not in ("close", "committed")}

SAME = (
    ("hosts", "bootstrap_servers", "bootstrap.servers", "metadata.broker.list"),
    ("acks", "required_acks", "request.required.acks"),
    ("retries", "message.send.max.retries"),
    ("compression", "compression_type", "compression.codec"),
    ("max_request_bytes", "max_request_size", "message.max.bytes"),
    ("buffer_bytes", "buffer_memory"),
    ("batch_bytes", "batch_size"),
    ("linger_ms", "queue.buffering.max.ms"),
    ("max_in_flight", "max_in_flight_requests_per_connection", "max.in.flight"),
    ("delivery_timeout_ms", "message.timeout.ms"),
    ("on_delivery", "dr_cb", "dr_msg_cb"),
    ("group", "consumer_group", "group_id", "group.id"),
    ("auto_commit", "auto_commit_enable", "enable_auto_commit", "enable.auto.commit"),
    ("consume_timeout_ms", "consumer_timeout_ms"),
    ("fetch_wait_max_ms", "fetch_max_wait_ms"),
    ("fetch_message_max_bytes", "max_partition_fetch_bytes"),
    ("assignors", "partition_assignment_strategy", "partition.assignment.strategy"),
    ("auto_create_topics", "allow_auto_create_topics"),
)
"""Options by all their names, of which a call takes one."""
OF_SERIALIZER = "give serializer=, a callable (message, partition_key) -> (message, partition_key)"
OF_DESERIALIZER = "give deserializer=, a callable (value, partition_key) -> (value, partition_key)"
NO_OPTION = {
    "delivery_reports": "on_delivery=callable gets each outcome, and so does who calls result() of what produce() returns",
    "callback": "on_delivery=callable gets each outcome",
    "sync": "result() of what produce() returns waits for the record",
    "max_retries": "retries are the tries after the first; without it records are tried for delivery_timeout_ms",
    "max_queued_messages": "buffer_bytes bounds what waits",
    "min_queued_messages": "batch_bytes says when a batch is sent before linger_ms is over",
    "block_on_queue_full": "with max_block_ms=0 a full buffer raises BufferFull at once",
    "pending_timeout_ms": "delivery_timeout_ms bounds each record, and close(timeout) the end",
    "serializer": "give key_serializer and value_serializer, each with one argument",
    "deserializer": "give key_deserializer and value_deserializer, each with one argument",
    "key_serializer": OF_SERIALIZER,
    "value_serializer": OF_SERIALIZER,
    "key_deserializer": OF_DESERIALIZER,
    "value_deserializer": OF_DESERIALIZER,
    "auto_start": "it runs from the beginning",
    "use_rdkafka": "librdkafka is never used",
    "managed": "with group=... the group's coordinator keeps the members",
    "max_poll_records": "each call says so: consume_batch(max_messages)",
    "reset_offset_on_start": "call seek((topic, partition), -2) for the beginning, -1 for the end",
    "api_version": "give KafkaClient broker_version=..., if the brokers cannot be asked",
}
"""What to do in place of an option that a call lacks."""


def here(name: str, known: Collection[str]) -> str | None:
    """Return what to say of an option that a call lacks, if another client has it. known: the options of the call."""
    for names in SAME:
        ours = next((ours for ours in names if ours in known), None)
        if name in names and ours is not None:
            return f"; it is {ours} here"
    if name in SAME[0]:
        return "; KafkaClient(hosts=...) names the brokers"
    return f"; {NO_OPTION[name]}" if name in NO_OPTION else None


def lacks(thing: object, name: str) -> str:
    """Return what to say of a name that an object lacks."""
    for cls in type(thing).__mro__:
        ours = CALLS.get(f"{cls.__module__}.{cls.__qualname__}", {}).get(name)
        if ours is not None:
            return f"{cls.__name__} has no {name}(): {ours if ours.startswith(NOT_NEEDED) else f'here it is {ours}'}"
    return f"{type(thing).__name__!r} object has no attribute {name!r}"
