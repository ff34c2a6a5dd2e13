"""Time, names and connections that do not keep still: clocks that jump, throttle times that lie, names that fail, connections that end early."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.handlers import Handler, resolve_handler
from gkafka.testing import Delay, Edit, MockCluster
from tests.hostile.life import QUICK, TOPIC, cluster_for_life, life, produce
from tests.kit.clock import during, epoch_ms, now, soon
from tests.kit.lacking import leave_out
from tests.kit.ports import refused_port
from tests.public.aids import error_of

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture(params=["threading", "gevent"])
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    made = resolve_handler(request.param)
    yield made
    made.stop(soon(60))


# -- F19 ---------------------------------------------------------------------------------------------------------------
class Clock:
    """The wall clock, `ahead` seconds wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr("time.time", lambda: epoch_ms() / 1000 + self.ahead)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
def test_f19_a_wall_clock_that_jumps_times_nothing_out_and_ends_no_session(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clock = Clock(monkeypatch)
    options: dict[str, Any] = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 50, "fetch_error_backoff_ms": 5}
    with MockCluster(topics={TOPIC: 1}) as cluster, KafkaClient(cluster.bootstrap, handler=handler, **QUICK) as client:
        produce(client)
        with (
            client.get_producer(linger_ms=150, delivery_timeout_ms=100_000) as producer,
            client.get_consumer([TOPIC], group="g", **options) as consumer,
        ):
            assert consumer.consume(timeout_ms=60_000) is not None
            generation = cluster.group("g").generation
            cluster.on("Produce", Delay(0.2))
            before = producer.produce(TOPIC, b"before", partition=0)
            clock.ahead = jump
            after = producer.produce(TOPIC, b"after", partition=0)
            assert after.result(60)
            assert before.result(60).offset + 1 == after.result(0).offset
            got = [consumer.consume(timeout_ms=60_000) for _ in range(2)]
            assert [message.value for message in got] == [b"before", b"after"]
            consumer.commit()
            handler.sleep(0.3)
            clock.ahead = 0.0
            assert consumer.consume(timeout_ms=200) is None
            assert cluster.group("g").generation == generation, "no rebalance"


# -- F19, for the whole process ----------------------------------------------------------------------------------------
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
JUMPING = """
    import os, sys
    from gkafka import KafkaClient
    from gkafka.testing import MockCluster
    from tests.kit.clock import epoch_s, now

    handler, clock = sys.argv[1:]

    def jump(to):
        with open(clock, "w") as file:
            file.write(to)
        true = started + (now() - since)
        assert abs(epoch_s() - true) > 1800, "the clock did not jump"

    started, since = epoch_s(), now()
    group = {"group": "g", "session_timeout_ms": 60000, "heartbeat_interval_ms": 50}
    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler=handler, broker_version="2.0") as client:
        with client.get_producer(linger_ms=50, delivery_timeout_ms=60000) as producer, client.get_consumer(["t"], **group) as consumer:
            for number, to in enumerate(("+0", "+1h", "-1h", "+1d", "-1d")):
                lingering = producer.produce("t", b"before")
                if number:
                    jump(to)
                begun = now()
                for delivery in (lingering, producer.produce("t", b"after")):
                    assert delivery.result(60).offset >= 2 * number
                read = [consumer.consume(timeout_ms=60000) for _ in range(2)]
                assert [message.value for message in read] == [b"before", b"after"]
                assert abs(read[1].timestamp / 1000 - epoch_s()) < 60, "a record's time is that of the clock"
                consumer.commit()
                client.update_cluster()
                assert now() - begun < 60, "nothing waited for the clock"
                if not number:
                    generation = cluster.group("g").generation
            assert cluster.group("g").generation == generation, "no rebalance"
    print("went on")
"""


@pytest.mark.parametrize("name", ["threading", "gevent"])
def test_f19_a_process_whose_clock_jumps_goes_on(name: str, tmp_path: Path) -> None:
    """All clocks of C, too, by libfaketime: the interpreter's, the loop's of gevent. The monotonic one is left alone, as when somebody sets the clock."""
    if FAKETIME is None:
        leave_out(("libfaketime", "apt-get install libfaketime"))
    clock = tmp_path / "clock"
    clock.write_text("+0")
    fake = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    command = [sys.executable, "-c", textwrap.dedent(JUMPING), name, str(clock)]
    done = subprocess.run(command, env={**os.environ, **fake}, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "went on\n", done.stderr


# -- F31 ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lie", [-1, -(2**31), 60_000, 2**31 - 1])
def test_f31_a_throttle_time_that_lies_stops_nothing_that_is_not_produced_or_fetched(handler: Handler, lie: int) -> None:
    """For Produce and Fetch it is obeyed, up to 30 s: tests/core. No other answer makes anybody wait."""

    def throttle(_request: Any, answer: Any) -> Any:
        if "throttle_time_ms" in answer.__slots__ if hasattr(answer, "__slots__") else hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = lie
        return answer

    with cluster_for_life() as cluster, KafkaClient(cluster.bootstrap, handler=handler, **QUICK) as client:
        for api in (
            "Metadata",
            "ListOffsets",
            "FindCoordinator",
            "OffsetFetch",
            "OffsetCommit",
            "JoinGroup",
            "SyncGroup",
            "Heartbeat",
            "InitProducerId",
        ):
            cluster.on(api, Edit(throttle), times=None)
        if lie < 0:
            for api in ("Produce", "Fetch"):
                cluster.on(api, Edit(throttle), times=None)
        for step in list(life(client, session_timeout_ms=30_000))[:6]:
            began = now()
            step()
            assert now() - began < 25


# -- F12 ---------------------------------------------------------------------------------------------------------------
class Names:
    """A resolver with one name of its own. addresses: what it stands for, None while it does not exist."""

    def __init__(self, handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[tuple[str, int]] | None = None
        self.asked = 0
        resolve = handler.getaddrinfo

        def resolved(host: str, port: int, deadline: float | None = None) -> Any:
            if host != "kafka.test":
                return resolve(host, port, deadline)
            self.asked += 1
            if self.addresses is None:
                return resolve("no-such-name.invalid", port, deadline)
            return [(socket.AF_INET, address) for address in self.addresses]

        monkeypatch.setattr(handler, "getaddrinfo", resolved)


def test_f12_a_name_that_does_not_exist_for_a_while_is_found_when_it_does(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(handler, monkeypatch)
    with MockCluster(topics={TOPIC: 1}) as cluster, KafkaClient("kafka.test:9092", handler=handler, **QUICK) as client:
        assert "kafka.test:9092" in str(error_of(client.connect, 1))
        names.addresses = [cluster.brokers[1]]
        deadline = now() + 60
        while True:
            try:
                client.connect(60)
                break
            except KafkaException:
                assert now() < deadline
                handler.sleep(0.05)


def test_f12_of_several_addresses_the_one_that_lives_is_found(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(handler, monkeypatch)
    with MockCluster(topics={TOPIC: 1}) as cluster, KafkaClient("kafka.test:9092", handler=handler, **QUICK) as client:
        names.addresses = [("127.0.0.1", refused_port()), ("127.0.0.1", refused_port(1)), cluster.brokers[1]]
        client.connect(60)
        produce(client)


def test_a_broker_that_tells_to_begin_anew_sends_the_client_back_to_its_hosts(handler: Handler) -> None:
    """KIP-1102: the addresses are those of another cluster by now."""

    def rebootstrap(_request: Any, answer: Any) -> Any:
        answer.error_code = 129
        return answer

    with (
        MockCluster(topics={TOPIC: 1}) as here,
        MockCluster(topics={TOPIC: 1}) as elsewhere,
        KafkaClient(here.bootstrap, handler=handler, **QUICK) as client,
    ):
        here.on("Metadata", Edit(lambda _request, answer: _moved(answer, elsewhere)))
        client.connect(60)
        asked = here.count("Metadata")
        elsewhere.on("Metadata", Edit(rebootstrap), times=None)
        client.update_cluster()
        assert elsewhere.count("Metadata") >= 1
        assert here.count("Metadata") > asked
        assert [(b.host, b.port) for b in client.brokers.values()] == [here.brokers[1]]
        produce(client)
        assert len(here.log(TOPIC, 0)) == 1


def _moved(answer: Any, where: MockCluster) -> Any:
    for broker in answer.brokers:
        broker.host, broker.port = where.brokers[1]
    return answer


# -- F07, F10 ----------------------------------------------------------------------------------------------------------
def test_f07_connections_that_live_shortly_lose_double_and_reorder_nothing(handler: Handler) -> None:
    """Each connection ends after 50 to 150 ms, with or without a word, for three seconds (`make faults` does it for long, under load)."""
    chance, over = random.Random(7), threading.Event()
    with (
        MockCluster(topics={TOPIC: 1}) as cluster,
        KafkaClient(cluster.bootstrap, handler=handler, **{**QUICK, "api_timeout_ms": 60_000}) as client,
    ):

        def cut() -> None:
            while not over.wait(chance.uniform(0.05, 0.15)):
                cluster.close_connections(reset=chance.random() < 0.5)

        cutter = threading.Thread(target=cut, daemon=True)
        cutter.start()
        values: list[bytes] = []
        got: list[bytes] = []
        try:
            with (
                client.get_producer(retry_backoff_ms=5, retry_backoff_max_ms=20, linger_ms=1) as producer,
                client.get_consumer([TOPIC], fetch_error_backoff_ms=5) as consumer,
            ):
                for _ in during(3, pause=0):
                    values.append(b"%d" % len(values))
                    producer.produce(TOPIC, values[-1], partition=0)
                    got += [m.value for m in consumer.consume_batch(100, timeout_ms=5)]
                producer.flush(60)
                over.set()
                deadline = now() + 60
                while len(got) < len(values) and now() < deadline:
                    got += [m.value for m in consumer.consume_batch(100, timeout_ms=100)]
        finally:
            over.set()
            cutter.join(60)
        assert got == values
        assert [record.value for record in cluster.log(TOPIC, 0)] == values


def test_f10_a_half_open_connection_is_found_at_the_request_timeout(handler: Handler) -> None:
    """G16: the broker's end is gone without a word. What was asked is asked again on a new connection, within the timeout and a second."""
    frozen = Frozen()
    with MockCluster(topics={TOPIC: 1}) as cluster, frozen.before(cluster) as hosts:
        options: dict[str, Any] = {**QUICK, "socket_timeout_ms": 800}
        with KafkaClient(hosts, handler=handler, **options) as client, client.get_producer(request_timeout_ms=800) as producer:
            cluster.on("Metadata", Edit(lambda _request, answer: _at(answer, hosts)), times=None)
            client.connect(60)
            producer.produce(TOPIC, b"1").result(60)
            frozen.freeze()
            began = now()
            delivery = producer.produce(TOPIC, b"2")
            assert delivery.result(60).offset == 1
            assert 0.7 <= now() - began < 30


def _at(answer: Any, hosts: str) -> Any:
    for broker in answer.brokers:
        broker.host, broker.port = hosts.split(":")[0], int(hosts.split(":")[1])
    return answer


class Frozen:
    """A relay whose connections can be frozen: nothing is passed on any more, nothing is closed. New ones work."""

    def __init__(self) -> None:
        self._flags: list[threading.Event] = []
        self._over = threading.Event()

    def freeze(self) -> None:
        for flag in self._flags:
            flag.set()
        self._flags = []

    def before(self, cluster: MockCluster) -> Any:
        from contextlib import contextmanager

        from tests.net.servers import serve

        target = cluster.brokers[1]

        def talk(conn: socket.socket) -> None:
            flag = threading.Event()
            self._flags.append(flag)
            with socket.create_connection(target) as behind:
                back = threading.Thread(target=_pass_on, args=(behind, conn, flag), daemon=True)
                back.start()
                _pass_on(conn, behind, flag)
                if flag.is_set():
                    self._over.wait(60)
                behind.close()

        @contextmanager
        def running() -> Iterator[str]:
            with serve(talk) as port:
                yield f"127.0.0.1:{port}"
                self._over.set()

        return running()


def _pass_on(source: socket.socket, target: socket.socket, frozen: threading.Event) -> None:
    try:
        while data := source.recv(65536):
            if frozen.is_set():
                return
            target.sendall(data)
    except OSError:
        return
