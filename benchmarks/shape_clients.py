"""The clients that benchmarks/shapes.py plays its shapes with, in the same words for all."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

VALUE = b"x" * 100
PATIENCE_S = 60.0

Options = Mapping[str, Any]


class Client:
    """producer(options) gives it send(topic, value, key, partition, headers) and flush(); with a transactional_id also transaction(), a context, and
    send_offsets(), of what its consumer has handed out. consumer(topic, partitions, options) gives it one(): a message, many(n): takes some and says how
    many, take(n): their values, iterate(), and commit(). with_callback(done) sends a record and has its outcome told; wait(partition) sends one and waits.
    """

    def __init__(self, bootstrap: str, handler: str) -> None:
        self.bootstrap, self.handler = bootstrap, handler

    send: Callable[..., Any]
    flush: Callable[[], object]
    one: Callable[[], Any]
    many: Callable[[int], int]
    take: Callable[[int], list[Any]]
    commit: Callable[[], object]
    transaction: Callable[[], Any]
    send_offsets: Callable[[], object]
    iterate: Callable[[], Iterator[Any]]
    producer: Callable[[Options], None]
    consumer: Callable[[str, int, Options], None]
    with_callback: Callable[[Callable[[Any], object]], None]
    wait: Callable[[int], None]


class Gkafka(Client):
    """The native API."""

    def producer(self, options: Options) -> None:
        producer = self._client().get_producer(**options)
        if "transactional_id" in options:
            producer.init_transactions()
        self.send, self.flush = producer.produce, lambda: producer.flush(PATIENCE_S)
        self.transaction, self._producer = producer.transaction, producer

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._client().get_consumer(topic, **options)
        self.take = lambda count: [message.value for message in consumer.consume_batch(count, 5000)]
        self.commit = consumer.commit
        self.send_offsets = lambda: self._producer.send_offsets(consumer.positions(), consumer.group_metadata())
        self.one, self.many = lambda: consumer.consume(5000), lambda count: len(consumer.consume_batch(count, 5000))
        self.iterate = lambda: iter(consumer)

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.send("t12", VALUE, partition=0).add_done_callback(done)

    def wait(self, partition: int) -> None:
        self.send("t12", VALUE, partition=partition).result(PATIENCE_S)

    def _client(self) -> Any:
        from gkafka import KafkaClient

        return KafkaClient(self.bootstrap, handler=self.handler)


class Confluent(Client):
    """options: those of the native API, as far as confluent-kafka has them; callables are called by the loop that sends or reads, as its users do."""

    def producer(self, options: Options) -> None:
        import confluent_kafka

        conf = {"bootstrap.servers": self.bootstrap, "linger.ms": options.get("linger_ms", 5), "queue.buffering.max.messages": 1_000_000}
        conf |= {"acks": options.get("acks", "all"), "enable.idempotence": options.get("acks", "all") == "all"}
        conf |= {"compression.type": options["compression"]} if "compression" in options else {}
        conf |= {"transactional.id": options["transactional_id"]} if "transactional_id" in options else {}
        self.inner = producer = confluent_kafka.Producer(conf)
        if "transactional_id" in options:
            producer.init_transactions()
        produce, poll, sent = producer.produce, producer.poll, itertools.count(1)

        def send(topic: str, value: Any, **given: Any) -> None:
            while True:
                try:
                    produce(topic, value, **given)
                    break
                except BufferError:
                    poll(0.05)
            if not next(sent) % 1000:
                poll(0)

        serialized, key_serialized = options.get("value_serializer"), options.get("key_serializer")
        partitioner = options.get("partitioner") if callable(options.get("partitioner")) else None
        told = {"on_delivery": options["on_delivery"]} if "on_delivery" in options else {}
        numbers = list(range(12))

        def send_with_own_code(topic: str, value: Any, key: Any = None, **given: Any) -> None:
            if serialized is not None:
                value = serialized(value)
            if key_serialized is not None:
                key = key_serialized(key)
            if partitioner is not None:
                given["partition"] = partitioner(numbers, key)
            send(topic, value, key=key, **told, **given)

        def flush() -> None:
            while producer.flush(30):
                pass

        own_code = serialized is not None or key_serialized is not None or partitioner is not None or told
        self.send, self.flush = send_with_own_code if own_code else send, flush

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        import confluent_kafka

        conf = {"bootstrap.servers": self.bootstrap, "group.id": options.get("group") or "none", "auto.offset.reset": "earliest"}
        conf |= {"enable.auto.commit": bool(options.get("auto_commit")), "queued.min.messages": 1_000_000}
        consumer = confluent_kafka.Consumer({**conf, "fetch.message.max.bytes": 4 << 20, "check.crcs": options.get("check_crcs", True)})
        if options.get("group"):
            consumer.subscribe([topic])
        else:
            consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        deserialized, key_deserialized = options.get("value_deserializer"), options.get("key_deserializer")

        def read(message: Any) -> Any:
            if deserialized is not None:
                deserialized(message.value())
            if key_deserialized is not None:
                key_deserialized(message.key())
            return message

        deserializes = deserialized is not None or key_deserialized is not None
        self.one = (lambda: read(consumer.poll(5))) if deserializes else lambda: consumer.poll(5)
        self.many = (
            (lambda count: len([read(m) for m in consumer.consume(count, 5)]))
            if deserializes
            else lambda count: len(consumer.consume(count, 5))
        )
        self.iterate = lambda: iter(self.one, None)
        self.take = lambda count: [message.value() for message in consumer.consume(count, 5)]
        self.commit = lambda: consumer.commit(asynchronous=False)
        self.send_offsets = lambda: self.inner.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.inner.begin_transaction()
        yield
        self.inner.commit_transaction()

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.send("t12", VALUE, partition=0, on_delivery=lambda error, message: done(message))

    def wait(self, partition: int) -> None:
        done: list[Any] = []
        self.inner.produce("t12", VALUE, partition=partition, on_delivery=lambda *_: done.append(1))
        while not done:
            self.inner.poll(1)


class Facade(Client):
    """gkafka.kafka: KafkaProducer and KafkaConsumer."""

    def producer(self, options: Options) -> None:
        from gkafka.kafka import KafkaProducer

        self.inner = producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, handler=self.handler, linger_ms=5, batch_size=1 << 17, **options
        )
        self.send = producer.send
        self.flush = lambda: producer.flush(PATIENCE_S)

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        from gkafka.kafka import KafkaConsumer

        given = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 5000, "handler": self.handler, **options}
        consumer = KafkaConsumer(topic, bootstrap_servers=self.bootstrap, **given)
        self.many = lambda count: sum(map(len, consumer.poll(5000, max_records=count).values()))
        self.iterate = lambda: iter(consumer)

    def with_callback(self, done: Callable[[Any], object]) -> None:
        self.inner.send("t12", VALUE, partition=0).add_callback(done)


class Pykafka(Client):
    """pykafka's Producer and SimpleConsumer."""

    def producer(self, options: Options) -> None:
        topic = self._topic("t12")
        producer = topic.get_producer(linger_ms=5, **options)
        self.send = lambda topic, value, key=None, partition=None: producer.produce(value, key)
        if options.get("delivery_reports"):  # as its users do: they are taken out now and then
            sent = itertools.count(1)

            def send(topic: str, value: Any, key: Any = None, partition: Any = None) -> None:
                producer.produce(value, key)
                if not next(sent) % 1000:
                    self._take_reports(producer)

            self.send = send
        self.flush = producer.stop

    @staticmethod
    def _take_reports(producer: Any) -> None:
        import queue

        while True:
            try:
                producer.get_delivery_report(block=False)
            except queue.Empty:
                return

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._topic(topic).get_simple_consumer(consumer_timeout_ms=5000, **options)
        self.one, self.iterate = consumer.consume, lambda: iter(consumer)

    def _topic(self, name: str) -> Any:
        from gkafka import KafkaClient

        self.client = KafkaClient(self.bootstrap, handler=self.handler)
        return self.client.topics[name.encode()]


class Member(Pykafka):
    """pykafka's BalancedConsumer."""

    def consumer(self, topic: str, partitions: int, options: Options) -> None:
        consumer = self._topic(topic).get_balanced_consumer("shapes", managed=True, consumer_timeout_ms=PATIENCE_S * 1000, **options)
        self.one, self.many = consumer.consume, lambda count: len(consumer.consume_batch(count, PATIENCE_S * 1000))
        self.iterate = lambda: iter(consumer)


CLIENTS: dict[str, type[Client]] = {"gkafka": Gkafka, "confluent": Confluent, "facade": Facade, "pykafka": Pykafka, "member": Member}
