"""Objects that another process is to have (docs/processes.md): what is told at once, and the programs that work."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient, kafka
from gkafka.kafka import legacy
from gkafka.testing import MockCluster
from tests.effort import one_of

ROOT = Path(__file__).resolve().parent.parent.parent
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


PROGRAM = (ROOT / "docs" / "processes.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
REMAINDER = """
    client = KafkaClient(HOSTS)
    with ProcessPoolExecutor(1, multiprocessing.get_context(METHOD), initializer=begin) as pool:
        for call in (pool.submit(id, client), pool.submit(give_back)):
            try:
                call.result(100)
            except Exception as error:
                print(type(error).__name__, error)
    child = multiprocessing.get_context(METHOD).Process(target=leave)
    child.start()
    child.join(100)
"""
MORE = """
def give_back():
    return producer

def leave():
    begin()
    producer.produce("orders", b"not waited for")
"""


@pytest.mark.parametrize("method", one_of("spawn", "forkserver", "fork"))
def test_the_program_of_the_page_works_with_each_way_to_start_processes(method: str, tmp_path: Path) -> None:
    """Its tasks are delivered by producers of the processes, results come back; what cannot, is told to who waits for the task."""
    assert "if __name__" in PROGRAM
    with MockCluster(topics={"orders": 1}) as cluster:
        page = PROGRAM.replace('"127.0.0.1:9092"', repr(cluster.bootstrap)).replace('"spawn"', "METHOD")
        program = tmp_path / "program.py"
        main = page.index("if __name__")
        program.write_text(f"METHOD = {method!r}\n{page[:main]}{MORE}\n{page[main:]}{REMAINDER}")
        command = [sys.executable, str(program)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
        values = [record.value for record in cluster.log("orders", 0)]
    assert ended.returncode == 0, ended.stderr
    delivered, client, producer = ended.stdout.splitlines()
    assert delivered == "100 records are delivered"
    assert re.match("TypeError " + TOLD.format("KafkaClient"), client)
    assert re.search(TOLD.format("NativeProducer"), producer)
    assert sorted(values) == sorted([*(b"%d" % number for number in range(100)), b"not waited for"])
