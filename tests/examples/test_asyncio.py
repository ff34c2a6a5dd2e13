"""What docs/recipes.md says to programs on asyncio: its two programs run as they stand, and keep what the page promises."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import AuthorizationError, DeliveryError
from gkafka.kafka import KafkaConsumer, KafkaProducer
from gkafka.testing import Error, MockCluster
from tests.kit.clock import PATIENCE_S
from tests.public.aids import Held

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "recipes.md"
SECTION = PAGE.read_text(encoding="utf-8").split("\n## asyncio\n")[1].split("\n## ")[0]
PRODUCER, CONSUMER = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
RUN = "asyncio.run(main())\n"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"orders": 1}) as running:
        yield running


def recipe(source: str, cluster: MockCluster) -> dict[str, Any]:
    """The names of a program of the page, all but its last line done."""
    assert source.endswith("\n" + RUN)
    names: dict[str, Any] = {}
    exec(source.removesuffix(RUN).replace("127.0.0.1:9092", cluster.bootstrap), names)
    return names


@pytest.fixture
def delivered(cluster: MockCluster) -> Callable[[Any], asyncio.Future[Any]]:
    """The function of the page."""
    function: Callable[[Any], asyncio.Future[Any]] = recipe(PRODUCER, cluster)["delivered"]
    return function


async def until(what: Callable[[], object]) -> None:
    async def look() -> None:
        while not what():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), PATIENCE_S)


# -- to produce --------------------------------------------------------------------------------------------------------------
def test_the_producer_of_the_page_awaits_its_deliveries(cluster: MockCluster, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(recipe(PRODUCER, cluster)["main"]())
    first, others = capsys.readouterr().out.splitlines()
    assert first.startswith("RecordMetadata(topic='orders', partition=0, offset=0, timestamp=")
    assert others == "99 others"
    assert [record.value for record in cluster.log("orders", 0)] == [b"%d" % number for number in range(100)]


def test_a_record_that_fails_raises_its_error_where_it_is_awaited_and_the_others_arrive(
    cluster: MockCluster, delivered: Callable[[Any], Any]
) -> None:
    async def main() -> None:
        with KafkaClient(cluster.bootstrap, handler="threading") as client:
            producer = client.get_producer(linger_ms=0)
            await delivered(await asyncio.to_thread(producer.produce, "orders", b"before"))
            cluster.on("Produce", Error(29))
            with pytest.raises(AuthorizationError, match="orders"):
                await delivered(producer.produce("orders", b"denied"))
            await delivered(producer.produce("orders", b"behind"))
            with pytest.raises(DeliveryError, match="1 record"):  # whoever awaits each record may pass over what close() raises
                await asyncio.to_thread(producer.close)

    asyncio.run(main())
    assert [record.value for record in cluster.log("orders", 0)] == [b"before", b"behind"]


def test_the_loop_goes_on_while_a_record_waits_and_a_waiter_may_be_cancelled(
    cluster: MockCluster, delivered: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer(linger_ms=0) as producer:
            await asyncio.to_thread(client.partitions, "orders")
            cluster.on("Produce", held := Held())
            delivery = producer.produce("orders", b"v")
            waiting, other = asyncio.ensure_future(delivered(delivery)), asyncio.ensure_future(delivered(delivery))
            await until(lambda: held.holds)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not delivery.done()
            held.released = True
            assert (await other).offset == 0
            await asyncio.to_thread(producer.flush)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert told == []
    assert caplog.text == ""
    assert [record.value for record in cluster.log("orders", 0)] == [b"v"]


def test_one_delivery_is_awaited_in_a_thread(cluster: MockCluster) -> None:
    async def main() -> None:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            delivery = await asyncio.to_thread(producer.produce, "orders", b"v")
            assert (await asyncio.to_thread(delivery.result)).offset == 0

    asyncio.run(main())


def test_what_asyncio_takes_for_no_future_is_said(cluster: MockCluster) -> None:
    async def main() -> None:
        with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
            delivery: Any = await asyncio.to_thread(producer.produce, "orders", b"v")
            with pytest.raises(TypeError, match=r"await asyncio\.to_thread\(delivery\.result\)"):
                asyncio.wrap_future(delivery)
            with pytest.raises(TypeError, match=r"await asyncio\.to_thread\(delivery\.result\)"):
                await delivery

    asyncio.run(main())


# -- in another skin ---------------------------------------------------------------------------------------------------------
def test_a_future_of_kafka_pythons_api_says_how_it_is_awaited(cluster: MockCluster) -> None:
    async def main() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler="threading", max_request_size=1000)
        try:
            futures = [await asyncio.to_thread(producer.send, "orders", value) for value in (b"v", b"x" * 2000)]
            for future in futures:
                with pytest.raises(TypeError, match=r"await asyncio\.to_thread\(future\.get\)"):
                    await future
            assert (await asyncio.to_thread(futures[0].get)).offset == 0
            with pytest.raises(Exception, match="max_request_size"):
                await asyncio.to_thread(futures[1].get)
        finally:
            await asyncio.to_thread(producer.close)

    asyncio.run(main())


def test_the_function_of_the_page_takes_a_future_of_kafka_pythons_api_as_the_page_says(cluster: MockCluster) -> None:
    changed = PRODUCER.replace("add_done_callback(", "add_both(").replace("delivery.result()", "delivery.get()")
    assert changed.count("add_both(") == changed.count("delivery.get()") == 1
    awaited = recipe(changed, cluster)["delivered"]

    async def main() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, handler="threading", linger_ms=0)
        try:
            found = await awaited(await asyncio.to_thread(producer.send, "orders", b"v"))
            assert (found.topic, found.partition, found.offset) == ("orders", 0, 0)
            cluster.on("Produce", Error(29))
            with pytest.raises(Exception, match="orders"):
                await awaited(producer.send("orders", b"denied"))
        finally:
            await asyncio.to_thread(producer.close)

    asyncio.run(main())


# -- to consume --------------------------------------------------------------------------------------------------------------
def produce(cluster: MockCluster, count: int) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client, client.get_producer() as producer:
        for number in range(count):
            producer.produce("orders", b"%d" % number)


def test_the_consumer_of_the_page_leaves_the_loop_to_others_while_it_waits(
    cluster: MockCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it waits for is written by another task of the same loop."""
    names = recipe(CONSUMER, cluster)
    printed: list[str] = []

    def count_printed() -> int:
        printed.extend(capsys.readouterr().out.splitlines())
        return len(printed)

    async def main() -> None:
        task = asyncio.create_task(names["main"]())
        await until(lambda: cluster.count("Fetch"))
        await asyncio.to_thread(produce, cluster, 3)
        await until(lambda: count_printed() == 3)
        await until(lambda: cluster.committed("billing").get(("orders", 0), (0,))[0] == 3)  # by its next call
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert printed == ["0 0 b'0'", "0 1 b'1'", "0 2 b'2'"]


def test_a_consumer_that_is_cancelled_commits_nothing_of_the_batch_that_it_was_at(cluster: MockCluster) -> None:
    produce(cluster, 3)
    names = recipe(CONSUMER.replace(", 500, ", ", 2, "), cluster)
    handled: list[int] = []

    async def handle(message: Any) -> None:
        handled.append(message.offset)
        if message.offset == 2:
            await asyncio.Event().wait()

    names["handle"] = handle

    async def main() -> None:
        task = asyncio.create_task(names["main"]())
        await until(lambda: handled == [0, 1, 2])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    committed = cluster.committed("billing").get(("orders", 0))
    # What was finished is committed every few seconds; before that, where it began.
    assert committed is None or committed.offset in (0, 2)


def test_kafka_pythons_consumer_polls_in_a_thread(cluster: MockCluster) -> None:
    produce(cluster, 3)

    async def main() -> list[Any]:
        consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap, handler="threading", auto_offset_reset="earliest")
        try:
            found: list[Any] = []
            while len(found) < 3:
                for records in (await asyncio.to_thread(consumer.poll, timeout_ms=1000)).values():
                    found += (record.value for record in records)
            return found
        finally:
            await asyncio.to_thread(consumer.close)

    assert asyncio.run(main()) == [b"0", b"1", b"2"]
