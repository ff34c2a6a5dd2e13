"""Objects that another process is to have: what is told at once. (tests/examples/test_processes.py plays the programs of docs/processes.md.)"""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka import KafkaClient, kafka
from gkafka.kafka import legacy
from gkafka.testing import MockCluster

TOLD = r"a {} cannot be pickled or copied, it belongs to the process that created it: create the client in the process that uses it"
OUTCOME = r"a {} cannot be pickled or copied, it belongs to the process that created it: send what {} returns"


@pytest.fixture(scope="module")
def things() -> Iterator[dict[str, Any]]:
    """Of each kind of object that has connections or workers."""
    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap) as client:
        hosts = cluster.bootstrap
        topic = client.topics["t"]
        partition, broker = topic.partitions[0], client.brokers[1]
        old = legacy.KafkaClient(hosts)
        with (
            client.get_producer() as producer,
            topic.get_producer() as documented,
            client.get_consumer("t") as consumer,
            topic.get_simple_consumer() as simple,
            topic.get_balanced_consumer("g", managed=True) as balanced,
        ):
            held = [
                *(client, client.handler, client.cluster, client.admin(), topic, partition, broker, client.topics, client.brokers),
                *(producer, documented, consumer, simple, balanced),
                *(kafka.KafkaProducer(bootstrap_servers=hosts), kafka.KafkaConsumer("t", bootstrap_servers=hosts)),
                *(kafka.KafkaAdminClient(bootstrap_servers=hosts), kafka.KafkaClient(bootstrap_servers=hosts)),
                *(
                    old,
                    legacy.SimpleProducer(old),
                    legacy.SimpleConsumer(old, "g", "t"),
                    legacy.KafkaConsumer("t", bootstrap_servers=hosts),
                ),
            ]
            yield {f"{type(thing).__module__}.{type(thing).__name__}": thing for thing in held}
            for thing in reversed(held[14:]):
                thing.close() if hasattr(thing, "close") else thing.stop()


def test_each_kind_of_object_says_that_it_belongs_to_its_process(things: dict[str, Any]) -> None:
    """In whatever it lies: the first word names it, the last ones say what to do."""
    calls: list[Callable[[Any], object]] = [pickle.dumps, copy.deepcopy, lambda thing: pickle.dumps({"mine": [thing]})]
    others = []
    for name, thing in things.items():
        kind = r"\w+" if isinstance(thing, dict) else type(thing).__name__
        for call in calls:
            try:
                call(thing)
                others.append(f"{name}: nothing")
            except TypeError as error:
                if not re.match(TOLD.format(kind), str(error)):
                    others.append(f"{name}: {error}")
            except Exception as error:
                others.append(f"{name}: {error!r}")
    assert not others


def test_topics_are_copied_as_what_they_show(things: dict[str, Any]) -> None:
    """A dict's own copy knows nothing of those that were not asked for yet."""
    topics = things["gkafka.topicdict.TopicDict"]
    assert topics.copy() == dict(topics.items())
    assert list(topics.copy()) == ["t"]
    with pytest.raises(TypeError, match=TOLD.format("TopicDict")):
        copy.copy(topics)


def test_a_delivery_says_what_can_be_sent_and_that_can(things: dict[str, Any]) -> None:
    native = things["gkafka.nativeproducer.NativeProducer"].produce("t", b"x")
    future = things["gkafka.kafka.producer.kafka.KafkaProducer"].send("t", b"x")
    with pytest.raises(TypeError, match=OUTCOME.format("Delivery", r"result\(\)")):
        pickle.dumps(native)
    with pytest.raises(TypeError, match=OUTCOME.format("FutureRecordMetadata", r"get\(\)")):
        pickle.dumps(future)
    for outcome in (native.result(60), future.get(60)):
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_messages_can_be_sent(things: dict[str, Any]) -> None:
    things["gkafka.nativeproducer.NativeProducer"].produce("t", b"x", b"k").result(60)
    message = things["gkafka.consumer.Consumer"].consume(60_000)
    assert pickle.loads(pickle.dumps(message)).value == message.value == b"x"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_is_given_a_producer_does_not_start(method: str, things: dict[str, Any]) -> None:
    context: Any = multiprocessing.get_context(method)
    producer = things["gkafka.nativeproducer.NativeProducer"]
    with pytest.raises(TypeError, match=TOLD.format("NativeProducer")):
        context.Process(target=print, args=(producer,)).start()
    with pytest.raises(TypeError, match=TOLD.format("(producer|NativeProducer)")):
        context.Process(target=producer.produce, args=("t", b"x")).start()
