"""What a broker parks never shares a connection with what must not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.kit.clock import now

if TYPE_CHECKING:
    from gkafka import KafkaClient

LONG_POLL_MS = 120_000


@contextmanager
def at_once(what: str) -> Iterator[None]:
    began = now()
    yield
    took = now() - began
    assert took < 60, f"{what} took {took:.2f} s beside an idle long poll of {LONG_POLL_MS} ms"


def test_produce_metadata_offsets_and_commit_answer_beside_an_idle_long_poll(
    client: KafkaClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    idle, other, group = new_topic(), new_topic(), new_name("group")
    producer = client.get_producer()
    producer.produce(idle, b"the only one").result(60)
    producer.produce(other, b"opens the connection").result(60)
    consumer = client.topics[idle].get_simple_consumer(consumer_group=group, fetch_wait_max_ms=LONG_POLL_MS)
    assert consumer.consume_batch(10, timeout_ms=60_000)[0].value == b"the only one"
    consumer.commit_offsets()  # finds the coordinator, so that only the commit itself is timed below
    assert consumer.consume_batch(10, timeout_ms=300) == []  # by now the next fetch is parked at the broker
    with at_once("produce"):
        producer.produce(other, b"beside").result(60)
    with at_once("metadata"):
        client.update_cluster()
    with at_once("offset look-up"):
        assert client.topics[other].latest_available_offsets()[0].offset[0] == 2
    with at_once("commit"):
        consumer.commit_offsets()
    with at_once("produce to the topic that is polled"):
        producer.produce(idle, b"ends the poll").result(60)
    with at_once("the poll itself, once there is something"):
        assert consumer.consume_batch(10, timeout_ms=60_000)[0].value == b"ends the poll"
    consumer.stop()
    producer.close(60)


def test_stopping_a_consumer_does_not_wait_for_its_long_poll(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    consumer = client.topics[new_topic()].get_simple_consumer(fetch_wait_max_ms=LONG_POLL_MS)
    assert consumer.consume_batch(10, timeout_ms=300) == []
    with at_once("stop"):
        consumer.stop()


def test_producers_and_consumers_of_a_client_share_its_connections(client: KafkaClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producers = [client.get_producer() for _ in range(5)]
    for producer in producers:
        producer.produce(topic, b"value").result(60)
    with_five = open_connections(client)
    producers += [client.get_producer() for _ in range(5)]
    for producer in producers:
        producer.produce(topic, b"value").result(60)
    assert open_connections(client) <= with_five, "those of clients before may end meanwhile"
    for producer in producers:
        producer.close(60)


def open_connections(client: KafkaClient) -> int:
    """TCP connections of this process to the client's broker, as the kernel counts them."""
    port = next(iter(client.brokers.values())).port
    with open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
