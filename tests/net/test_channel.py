"""The channel on good brokers: order, pipelining, leftovers, callbacks, closing; both handlers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.config import ClientConfig
from gkafka.exceptions import (
    ConfigurationError,
    ConnectionFailedError,
    KafkaException,
    KafkaTimeoutError,
    ProtocolError,
    SerializationError,
    SocketDisconnectedError,
    UnsupportedVersion,
)
from gkafka.handlers import GEventHandler, Handler
from gkafka.net.buffers import BufferPool
from gkafka.net.channel import Channel
from gkafka.net.requestsender import RequestSender
from gkafka.testing import Close, Corrupt, Delay, Drop, Error, MockCluster, Reply
from gkafka.wire.admin import CreateTopicsRequest
from gkafka.wire.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from gkafka.wire.metadata import MetadataRequest, MetadataResponse
from gkafka.wire.offsets import ListOffsetsRequest
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.hostile.test_lies import silent_port
from tests.kit.clock import PATIENCE_S, busy, during, now, soon
from tests.kit.ports import refused_port
from tests.net.channel_peers import Conversation, Pipelined, peer
from tests.net.servers import opened
from tests.public.aids import Held

WAIT_S = PATIENCE_S


def channel(
    handler: Handler, cluster: MockCluster, broker: int = 1, *, on_close: Any = None, buffers: Any = None, **options: Any
) -> Channel:
    host, port = cluster.brokers[broker]
    return Channel(handler, host, port, ClientConfig(**options), on_close=on_close, buffers=buffers)


def metadata(topics: Any = None) -> MetadataRequest:
    return MetadataRequest(topics=topics)


class Calls:
    """Records what on_done was called with, and waits for a number of calls."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.got: list[tuple[Any, Any, KafkaException | None]] = []
        self._more = handler.Event()

    def on(self, name: Any) -> Callable[[Any, KafkaException | None], None]:
        def done(response: Any, error: KafkaException | None) -> None:
            self.got.append((name, response, error))
            self._more.set()

        return done

    def wait(self, count: int) -> None:
        deadline = now() + WAIT_S
        while len(self.got) < count:
            self._more.clear()
            if len(self.got) >= count:
                return
            assert self._more.wait(max(0.0, deadline - now())), f"{len(self.got)} of {count} calls came"

    @property
    def errors(self) -> list[KafkaException | None]:
        return [error for _, _, error in self.got]


# -- opening
def test_a_request_queued_before_the_channel_is_open_is_answered(handler: Handler) -> None:
    with MockCluster(topics={"t": 3}) as cluster:
        made = channel(handler, cluster)
        assert not made.opened
        answer = made.request(metadata(), timeout_s=60).result(WAIT_S)
        assert [len(topic.partitions) for topic in answer.topics] == [3]
        assert made.opened
        assert made.versions is not None
        assert made.in_flight == 0
        made.close()


def test_wait_open_waits_and_raises_why_it_did_not_open(handler: Handler) -> None:
    with MockCluster() as cluster:
        made = channel(handler, cluster)
        made.wait_open(soon(60))
        assert made.opened
        made.close()
        with pytest.raises(SocketDisconnectedError, match="closed by the client"):
            made.wait_open(soon(60))
    refused = Channel(handler, "127.0.0.1", refused_port(), ClientConfig())
    with pytest.raises(ConnectionFailedError):
        refused.wait_open(soon(60))


def test_wait_open_ends_at_its_deadline(handler: Handler) -> None:
    with peer(Conversation.stay_silent) as server:
        made = Channel(handler, "127.0.0.1", server.port, ClientConfig())
        with pytest.raises(KafkaTimeoutError, match="not open yet"):
            made.wait_open(soon(0.1))
        made.close()
        assert made.join(60)


def test_a_peer_is_asked_nothing_more_for_who_is_gone(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client was dropped while it waited for an answer: there is another question, and nobody to ask it for."""
    monkeypatch.setattr("gkafka.core.connection.QUIET_S", 60.0)
    with peer(Conversation.stay_silent) as server:
        made = Channel(handler, "127.0.0.1", server.port, ClientConfig(connect_timeout_ms=300_000))
        made.start()
        for _ in during(60, pause=0):
            if "at step ApiVersions" in made.standing:
                break
            handler.sleep(0.01)
        made.abandon()
        assert made.join(60)
        assert str(made.error) == f"127.0.0.1:{server.port}: it was left open by who was done with it"
        assert server.connections == 1


def test_requests_sent_while_it_opens_keep_their_order(handler: Handler) -> None:
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Delay(0.2))
        made, calls = channel(handler, cluster), Calls(handler)
        for index in range(50):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        assert made.in_flight == 50
        made.wait_open(soon(60))
        for index in range(50, 100):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(100)
        assert [name for name, _, _ in calls.got] == list(range(100))
        ids = [request.correlation_id for request in cluster.requests("Metadata")]
        assert ids == sorted(ids)
        made.close()


def test_a_request_that_comes_while_it_opens_goes_behind_those_that_waited(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The channel is open as soon as the broker's versions are known, and what waited is not out yet."""
    send_frame, senders = RequestSender.send_frame, []

    def slowly(self: RequestSender, frame: Any, on_done: Any) -> None:
        if not senders:
            senders.append(handler.spawn(lambda: made.send(metadata([]), calls.on("newer"), timeout_s=60)))
            handler.sleep(0.05)
        send_frame(self, frame, on_done)

    monkeypatch.setattr(RequestSender, "send_frame", slowly)
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Delay(0.1))
        made, calls = channel(handler, cluster), Calls(handler)
        made._sender.order = handler.Lock()  # which may be held while somebody waits, as above
        for index in range(5):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(6)
        assert [name for name, _, _ in calls.got] == [0, 1, 2, 3, 4, "newer"]
        assert calls.errors == [None] * 6
        made.close()


# -- negotiation on real sockets (KIP-35, KIP-511, F31)
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Silence is an answer after 0.2 s, or after so many seconds."""

    def impatient(seconds: float) -> None:
        monkeypatch.setattr("gkafka.core.connection.QUIET_S", seconds)

    impatient(0.2)
    return impatient


def opening(handler: Handler, cluster: MockCluster) -> Channel:
    """It has time for several questions."""
    return channel(handler, cluster, reconnect_backoff_ms=5, connect_timeout_ms=300_000)


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda frame: struct.pack(">i", 6) + frame[4:8] + struct.pack(">h", 35),
        lambda frame: struct.pack(">i", 17) + frame[4:8] + bytes.fromhex("00230112000000020000000000"),
    ],
    ids=["the code alone", "librdkafka's mock cluster"],
)
def test_error_35_in_a_strange_shape_is_asked_again_at_v0(handler: Handler, corrupt: Callable[[bytes], bytes]) -> None:
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Corrupt(corrupt))
        made = channel(handler, cluster)
        made.wait_open(soon(60))
        assert [request.version for request in cluster.requests("ApiVersions")] == [4, 0]
        assert cluster.connections() == 1
        made.close()


@pytest.mark.parametrize("limit", [(0, 0), (0, 2), (0, 3)])
def test_a_broker_with_an_older_apiversions_is_asked_at_v0(handler: Handler, limit: tuple[int, int]) -> None:
    with MockCluster(limits={"ApiVersions": limit}) as cluster:
        made = channel(handler, cluster)
        made.wait_open(soon(60))
        assert made.request(metadata(), timeout_s=60).result(WAIT_S).brokers
        made.close()


def test_a_broker_that_always_says_35_is_a_named_error_and_no_loop(handler: Handler) -> None:
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Error(35), times=None)
        made = channel(handler, cluster)
        error = made.request(metadata(), timeout_s=60).exception(WAIT_S)
        assert isinstance(error, UnsupportedVersion)
        assert cluster.count("ApiVersions") == 2


@pytest.mark.parametrize(("release", "produce"), [("0.9.0", (0, 1)), ("0.8.2", (0, 0))])
@pytest.mark.usefixtures("impatient")
def test_a_broker_without_apiversions_is_found_out(handler: Handler, release: str, produce: tuple[int, int]) -> None:
    with MockCluster(topics={"t": 1}, versions=release) as cluster:
        made = opening(handler, cluster)
        answer = made.request(metadata(), timeout_s=60).result(WAIT_S)
        assert [topic.name for topic in answer.topics] == ["t"]
        assert made.versions is not None
        assert made.versions.ranges[0] == produce
        made.close()
        assert made.join(60)


def test_a_broker_that_was_found_out_once_is_not_asked_again_until_it_fails(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}, versions="0.8.2") as cluster:
        first = opening(handler, cluster)
        first.wait_open(soon(60))
        asked = len(cluster.requests())
        second = channel(handler, cluster)
        second.request(metadata(), timeout_s=60).result(WAIT_S)
        assert second.versions is not None
        assert second.versions.ranges == first.versions.ranges  # type: ignore[union-attr]
        assert cluster.count("ListOffsets") == 1, "the question to which 0.8.2 answers was put once"
        assert [request.api for request in cluster.requests()[asked:]] == ["Metadata"], "and no other, for whose answer it would wait"
        cluster.close_connections()
        assert second.join(60)
        third = opening(handler, cluster)
        third.wait_open(soon(60))
        assert cluster.count("ListOffsets") == 2
        for made in (first, second, third):
            made.close()


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_only_slow_is_not_taken_for_an_old_one(handler: Handler) -> None:
    """Paused for longer than an answer may take; then it answers whatever is asked."""
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Drop(before=True))
        made = opening(handler, cluster)
        cluster.on("DescribeGroups", Drop(), when=lambda _: setattr(made._connection, "_quiet_s", 60.0))
        made.wait_open(soon(60))
        assert made.versions is not None
        assert made.versions.ranges[0][1] >= 13
        made.close()


def test_a_broker_that_stood_still_when_it_was_asked_is_asked_again_before_a_request_is_refused(
    handler: Handler, impatient: Callable[[float], None]
) -> None:
    """Twice no answer to ApiVersions, and one between them: so does a 0.9.0. But the first CreateTopics does not take that for an answer."""
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("ApiVersions", Drop(before=True), times=2)
        first = opening(handler, cluster)
        first.wait_open(soon(60))
        impatient(60.0)
        bystander = opening(handler, cluster)
        bystander.request(metadata(), timeout_s=60).result(WAIT_S)
        with pytest.raises(SocketDisconnectedError, match=r"did not answer ApiVersions and was taken for one that has no CreateTopics"):
            first.request(CreateTopicsRequest(topics=[]), timeout_s=60).result(WAIT_S)
        assert first.join(60)
        assert cluster.count("ApiVersions") == 2
        second = opening(handler, cluster)
        second.request(CreateTopicsRequest(topics=[]), timeout_s=60).result(WAIT_S)
        assert cluster.count("ApiVersions") == 3
        assert bystander.join(60), "what went by the guess is given up, too, when nothing is under way"
        second.close()


@pytest.mark.usefixtures("impatient")
def test_what_is_under_way_is_answered_before_a_doubted_connection_is_given_up(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("ApiVersions", Drop(before=True), times=2)
        cluster.on("Metadata", Delay(0.3))
        made = opening(handler, cluster)
        made.wait_open(soon(60))
        before = made.request(metadata(), timeout_s=60)
        with pytest.raises(SocketDisconnectedError, match="asked again"):
            made.request(CreateTopicsRequest(topics=[]), timeout_s=60).result(WAIT_S)
        assert [topic.name for topic in before.result(WAIT_S).topics] == ["t"]
        assert made.join(60)


@pytest.mark.usefixtures("impatient")
def test_an_old_broker_is_asked_once_more_and_then_believed(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}, versions="0.9.0") as cluster:
        with pytest.raises(SocketDisconnectedError, match="asked again"):
            request_topic(handler, cluster)
        asked = cluster.count("DescribeGroups")
        for _ in range(3):
            with pytest.raises(UnsupportedVersion, match=r"is taken for Kafka 0.9.0\) does not have CreateTopics"):
                request_topic(handler, cluster)
        assert cluster.count("DescribeGroups") == asked + 1


def request_topic(handler: Handler, cluster: MockCluster) -> None:
    made = opening(handler, cluster)
    try:
        made.request(CreateTopicsRequest(topics=[]), timeout_s=60).result(WAIT_S)
    finally:
        made.close()


def test_a_told_old_version_is_spoken_at_once(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}, versions="0.8.2") as cluster:
        made = channel(handler, cluster, broker_version="0.8.2")
        made.request(metadata(), timeout_s=60).result(WAIT_S)
        assert [request.api for request in cluster.requests()] == ["Metadata"]
        made.close()


def test_a_broker_that_hangs_up_once_is_not_taken_for_an_old_one(handler: Handler) -> None:
    """It was being restarted: ApiVersions is asked again before anything is guessed."""
    with MockCluster() as cluster:
        cluster.on("ApiVersions", Close(before=True))
        made = channel(handler, cluster, reconnect_backoff_ms=5)
        made.wait_open(soon(60))
        assert made.versions is not None
        assert made.versions.ranges[0][1] >= 13
        made.close()


def test_an_unknown_broker_version_is_refused_at_once(handler: Handler) -> None:
    with MockCluster() as cluster, pytest.raises(ConfigurationError, match="broker_version='7'"):
        channel(handler, cluster, broker_version="7")


# -- pipelining
def test_pipelined_requests_are_answered_in_order(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        made.wait_open(soon(60))
        for index in range(500):
            request = metadata() if index % 2 else ListOffsetsRequest(replica_id=-1, topics=[])
            made.send(request, calls.on((index, request.API.name)), timeout_s=60)
        calls.wait(500)
        assert [name[0] for name, _, _ in calls.got] == list(range(500))
        assert all(type(response).__name__ == f"{name[1]}Response" for name, response, _ in calls.got)
        assert calls.errors == [None] * 500
        made.close()


@pytest.mark.parametrize(("bound", "most"), [(1, 1), (3, 3), (None, 10)])
def test_max_in_flight_per_connection_bounds_what_is_under_way_and_keeps_the_order(handler: Handler, bound: int | None, most: int) -> None:
    with MockCluster() as cluster:
        seen = Pipelined(0.03, most)
        cluster.on("Metadata", seen, times=None)
        made, calls = channel(handler, cluster, max_in_flight_per_connection=bound), Calls(handler)
        for index in range(5):  # before it is open
            made.send(metadata([]), calls.on(index), timeout_s=60)
        made.wait_open(soon(60))
        for index in range(5, 10):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(10)
        assert [name for name, _, _ in calls.got] == list(range(10))
        assert calls.errors == [None] * 10
        assert seen.most == most
        assert made.in_flight == 0
        made.close()


def test_a_request_for_which_there_is_no_room_is_told_so_in_time(handler: Handler) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster, max_in_flight_per_connection=1), Calls(handler)
        made.wait_open(soon(60))
        slow = Held()
        cluster.on("Metadata", slow, times=1)
        made.send(metadata([]), calls.on("slow"), timeout_s=60)
        made.send(metadata([]), calls.on("late"), timeout_s=0.2)
        made.send(metadata([]), calls.on("next"), timeout_s=60)
        calls.wait(1)
        slow.released = True
        calls.wait(3)
        assert [name for name, _, _ in calls.got] == ["late", "slow", "next"]
        error = calls.got[0][2]
        assert isinstance(error, KafkaTimeoutError)
        assert "within 0.2 s: max_in_flight_per_connection=1 requests before it were not answered" in str(error)
        assert not made.closed
        made.close()


def test_what_waits_for_room_fails_with_the_connection(handler: Handler) -> None:
    with MockCluster() as cluster:
        cluster.on("Metadata", Close(), times=1)
        made, calls = channel(handler, cluster, max_in_flight_per_connection=1), Calls(handler)
        made.wait_open(soon(60))
        for index in range(3):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(3)
        assert [type(error) for error in calls.errors] == [SocketDisconnectedError] * 3
        assert cluster.count("Metadata") == 1


def test_many_senders_share_a_channel(handler: Handler) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster), Calls(handler)

        def worker(number: int) -> None:
            for index in range(50):
                made.send(metadata([]), calls.on((number, index)), timeout_s=60)
                handler.yield_now()

        workers = [handler.spawn(worker, number) for number in range(8)]
        calls.wait(400)
        assert all(worker.join(60) for worker in workers)
        assert calls.errors == [None] * 400
        for number in range(8):
            assert [name[1] for name, _, _ in calls.got if name[0] == number] == list(range(50))
        made.close()


def test_an_error_code_is_an_answer(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("ListOffsets", Error(6))
        made = channel(handler, cluster)
        assert made.request(ListOffsetsRequest(replica_id=-1, topics=[]), timeout_s=60).result(WAIT_S).topics == []
        made.close()


def test_a_version_that_cannot_say_it_fails_through_on_done_and_not_from_send(handler: Handler) -> None:
    with MockCluster(limits={"Metadata": (0, 3), "Fetch": None}) as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        made.wait_open(soon(60))
        made.send(FetchRequest(max_wait_ms=1, min_bytes=1), calls.on("f"), timeout_s=60)
        made.send(metadata(), calls.on("m"), timeout_s=60)
        calls.wait(2)
        errors = {name: error for name, _, error in calls.got}
        assert isinstance(errors["f"], UnsupportedVersion)
        assert "Fetch" in str(errors["f"])
        assert errors["m"] is None
        made.close()


@pytest.mark.parametrize("queued", [True, False])
def test_a_request_that_cannot_be_encoded_fails_alone(handler: Handler, queued: bool) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        if not queued:
            made.wait_open(soon(60))
        made.send(MetadataRequest(topics=[5]), calls.on("bad"), timeout_s=60)
        made.send(metadata(), calls.on("good"), timeout_s=60)
        calls.wait(2)
        errors = {name: error for name, _, error in calls.got}
        assert isinstance(errors["bad"], SerializationError)
        assert errors["good"] is None
        made.close()


# -- sending more than the socket takes
def produce(*payloads: bytes, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=payload) for index, payload in enumerate(payloads)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def test_leftovers_larger_than_the_socket_buffer_go_out_whole_and_in_order(handler: Handler) -> None:
    """The peer does not read until everything was handed over: 24 MiB wait in the writer, small requests behind large ones."""
    go = threading.Event()
    seen: list[tuple[str, str]] = []

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (3, 0, 1), (0, 3, 8))
        assert go.wait(60)
        for _ in range(7):
            request = talk.read()
            if request.api.name == "Produce":
                records = request.message.topic_data[0].partition_data[0].records
                seen.append(("Produce", hashlib.sha256(records).hexdigest()))
                talk.answer(request, ProduceResponse())
            else:
                seen.append(("Metadata", ""))
                talk.answer(request, MetadataResponse())
        talk.stay_silent()

    payloads = [os.urandom(8 << 20) for _ in range(3)]
    with peer(serve) as server:
        made, calls = Channel(handler, "127.0.0.1", server.port, ClientConfig()), Calls(handler)
        made.wait_open(soon(60))
        expected = []
        for index, payload in enumerate(payloads):
            made.send(produce(payload), calls.on(f"p{index}"), timeout_s=60)
            made.send(metadata(), calls.on(f"m{index}"), timeout_s=60)
            expected += [("Produce", hashlib.sha256(payload).hexdigest()), ("Metadata", "")]
        assert made.in_flight == 6
        go.set()
        calls.wait(6)
        assert calls.errors == [None] * 6
        assert [name for name, _, _ in calls.got] == ["p0", "m0", "p1", "m1", "p2", "m2"]
        made.send(metadata(), calls.on("after"), timeout_s=60)
        calls.wait(7)
        assert seen == [*expected, ("Metadata", "")]
        made.close()
        assert made.join(60)


def test_b07_a_payload_is_kept_until_the_kernel_has_it(handler: Handler) -> None:
    """Nobody else holds the buffer that waits in the writer; what arrives is what was given."""
    go, got = threading.Event(), []

    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (0, 3, 8))
        assert go.wait(60)
        request = talk.read()
        got.append(bytes(request.message.topic_data[0].partition_data[0].records))
        talk.answer(request, ProduceResponse())

    with peer(serve) as server:
        made = Channel(handler, "127.0.0.1", server.port, ClientConfig())
        made.wait_open(soon(60))
        future = made.request(produce(b"\xab" * (12 << 20)), timeout_s=60)
        junk = [bytearray(b"\xcd" * (12 << 20)) for _ in range(3)]
        go.set()
        future.result(WAIT_S)
        assert got == [b"\xab" * (12 << 20)]
        del junk
        made.close()


def test_a_peer_that_stops_reading_is_given_up_at_the_request_timeout(handler: Handler) -> None:
    def serve(talk: Conversation) -> None:
        talk.negotiate((18, 0, 4), (0, 3, 8))
        talk.stay_silent()

    with peer(serve) as server:
        made, calls = Channel(handler, "127.0.0.1", server.port, ClientConfig(socket_timeout_ms=1000)), Calls(handler)
        made.wait_open(soon(60))
        began = now()
        made.send(produce(bytes(16 << 20)), calls.on("p"), timeout_s=1.0)
        made.send(produce(b"x", acks=0), calls.on("behind"), timeout_s=1.0, expects_response=False)
        calls.wait(2)
        assert now() - began < 30
        assert isinstance(calls.errors[0], KafkaTimeoutError)
        assert isinstance(calls.errors[1], KafkaException)
        assert made.join(60)


def test_acks_0_is_done_when_the_kernel_has_it(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        for opened in (False, True):
            if opened:
                made.wait_open(soon(60))
            made.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), calls.on(opened), timeout_s=60, expects_response=False)
        calls.wait(2)
        assert [(response, error) for _, response, error in calls.got] == [(None, None)] * 2
        assert made.request(metadata(), timeout_s=60).result(WAIT_S).brokers, "no answer was taken for another"
        made.close()


# -- callbacks
def test_a_callback_that_raises_is_logged_and_the_channel_goes_on(handler: Handler, caplog: pytest.LogCaptureFixture) -> None:
    with MockCluster() as cluster:
        made = channel(handler, cluster)

        def bad(response: Any, error: KafkaException | None) -> None:
            raise ZeroDivisionError("mine")

        made.send(metadata([]), bad, timeout_s=60)
        assert made.request(metadata([]), timeout_s=60).result(WAIT_S) is not None
        assert "ZeroDivisionError: mine" in caplog.text
        made.close()


class Kill(BaseException):
    """As GreenletExit, gevent.Timeout or KeyboardInterrupt, which come at any point."""


def killed(response: Any, error: KafkaException | None) -> None:
    raise Kill


def test_f24_a_killed_reader_fails_everything_that_waits(handler: Handler) -> None:
    with MockCluster() as cluster:
        closed: list[KafkaException | None] = []
        made, calls = channel(handler, cluster, on_close=lambda _, error: closed.append(error)), Calls(handler)
        made.wait_open(soon(60))
        cluster.on("Metadata", Delay(0.1))
        made.send(metadata([]), killed, timeout_s=60)
        for index in range(3):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(3)
        assert all("stopped by Kill" in str(error) for error in calls.errors)
        assert made.join(60)
        assert len(closed) == 1


def test_f24_a_kill_in_one_callback_does_not_keep_the_others_from_being_told(handler: Handler) -> None:
    with MockCluster() as cluster:
        closed: list[KafkaException | None] = []
        made, calls = channel(handler, cluster, on_close=lambda _, error: closed.append(error)), Calls(handler)
        made.wait_open(soon(60))
        cluster.on("Metadata", Drop())
        for index in range(4):
            made.send(metadata([]), killed if index == 1 else calls.on(index), timeout_s=60)
        with pytest.raises(Kill):
            made.close()
        assert [name for name, _, _ in calls.got] == [0, 2, 3]
        assert closed == [None]
        assert made.join(60)


def test_close_from_a_callback(handler: Handler) -> None:
    with MockCluster() as cluster:
        closed: list[KafkaException | None] = []
        made, calls = channel(handler, cluster, on_close=lambda _, error: closed.append(error)), Calls(handler)
        made.wait_open(soon(60))
        cluster.on("Metadata", Delay(0.1))

        def first(response: Any, error: KafkaException | None) -> None:
            made.close()
            calls.on("first")(response, error)

        made.send(metadata([]), first, timeout_s=60)
        for index in range(3):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(4)
        assert {name: type(error) for name, _, error in calls.got} == {
            "first": type(None),
            0: SocketDisconnectedError,
            1: SocketDisconnectedError,
            2: SocketDisconnectedError,
        }
        assert made.join(60)
        assert closed == [None]


def test_send_from_a_callback(handler: Handler) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster), Calls(handler)

        def first(response: Any, error: KafkaException | None) -> None:
            made.send(metadata([]), calls.on("second"), timeout_s=60)

        made.send(metadata([]), first, timeout_s=60)
        calls.wait(1)
        assert calls.errors == [None]
        made.close()


def test_on_done_is_never_called_inside_send(handler: Handler) -> None:
    with MockCluster() as cluster:
        made = channel(handler, cluster)
        made.wait_open(soon(60))
        made.close()
        assert made.join(60)
        calls, me, workers = Calls(handler), handler.current_id(), []

        def done(response: Any, error: KafkaException | None) -> None:
            workers.append(handler.current_id())
            calls.on("late")(response, error)

        made.send(metadata([]), done, timeout_s=60)
        calls.wait(1)
        assert isinstance(calls.errors[0], SocketDisconnectedError)
        assert workers
        assert workers[0] != me


# -- closing
def test_close_fails_everything_once_with_the_given_error(handler: Handler) -> None:
    with MockCluster() as cluster:
        closed: list[tuple[Channel, KafkaException | None]] = []
        made, calls = channel(handler, cluster, on_close=lambda *about: closed.append(about)), Calls(handler)
        made.wait_open(soon(60))
        cluster.on("Metadata", Drop())
        for index in range(5):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        why = SocketDisconnectedError("the cluster moved")
        made.close(why)
        made.close(ProtocolError("a second close"))
        assert calls.errors == [why] * 5
        assert [name for name, _, _ in calls.got] == list(range(5))
        assert closed == [(made, why)]
        assert made.error is why
        assert made.join(60)


def test_close_before_it_ever_opened(handler: Handler) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        cluster.on("ApiVersions", Drop(before=True))
        made.send(metadata([]), calls.on(0), timeout_s=60)
        made.close()
        calls.wait(1)
        assert isinstance(calls.errors[0], SocketDisconnectedError)
        assert made.join(60)
        untouched = channel(handler, cluster)
        untouched.close()
        assert untouched.join(60)
        assert untouched.closed


@pytest.mark.parametrize("reset", [False, True])
def test_a_broker_that_goes_away_fails_what_is_in_flight(handler: Handler, reset: bool) -> None:
    with MockCluster() as cluster:
        made, calls = channel(handler, cluster), Calls(handler)
        made.wait_open(soon(60))
        cluster.on("Metadata", Close(before=True, reset=reset))
        for index in range(3):
            made.send(metadata([]), calls.on(index), timeout_s=60)
        calls.wait(3)
        assert all(isinstance(error, SocketDisconnectedError) and error.retriable for error in calls.errors)
        assert made.join(60)
        assert made.closed


def test_an_idle_connection_that_the_broker_closes_is_noticed(handler: Handler) -> None:
    with MockCluster() as cluster:
        gone = handler.Event()
        made = channel(handler, cluster, on_close=lambda *_: gone.set())
        made.wait_open(soon(60))
        cluster.close_connections()
        assert gone.wait(60)
        assert made.closed


def test_a_hundred_openings_leave_nothing_behind(handler: Handler) -> None:
    def open_and_close() -> None:
        made = channel(handler, cluster)
        made.request(metadata([]), timeout_s=60).result(WAIT_S)
        made.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), lambda *_: None, timeout_s=60, expects_response=False)
        made.close()
        assert made.join(60)

    def until(ready: Callable[[], bool]) -> None:
        deadline = now() + WAIT_S
        while not ready() and now() < deadline:
            handler.sleep(0.01)

    def held() -> set[object]:
        return {*opened(), *threading.enumerate()}

    def is_no_more_than_before() -> bool:  # what other tests have left may go meanwhile
        return held() <= before

    with MockCluster() as cluster:
        open_and_close()
        cluster.wait_for(lambda: cluster.connections() == 0)
        until(lambda: not handler.workers())
        before = held()
        for _ in range(100):
            open_and_close()
        until(lambda: not handler.workers())
        cluster.wait_for(lambda: cluster.connections() == 0)
        assert handler.workers() == []
        until(is_no_more_than_before)
        assert is_no_more_than_before(), held() - before


# -- large answers
def pattern(size: int) -> bytes:
    return bytes(range(253)) * (size // 253 + 1)


def big_answer(size: int) -> Reply:
    data = PartitionData(partition_index=0, records=pattern(size), aborted_transactions=None)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    return Reply(lambda request: answer)


def fetch() -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])])


@pytest.mark.parametrize("size", [10_000, 100_000, 1 << 20, 6 << 20])
def test_large_answers_are_whole_and_stay_so_while_they_are_held(handler: Handler, size: int) -> None:
    with MockCluster() as cluster:
        cluster.on("Fetch", big_answer(size), times=None)
        made = channel(handler, cluster)
        expected = pattern(size)
        held = []
        for _ in range(6):
            answer = made.request(fetch(), timeout_s=60, max_version=12).result(WAIT_S)
            held.append(answer.responses[0].partitions[0].records)
        assert all(records == expected for records in held)
        assert all(isinstance(records, memoryview) and records.readonly for records in held)
        made.close()


def test_the_memory_of_an_answer_is_used_again_when_it_was_dropped(handler: Handler) -> None:
    with MockCluster() as cluster:
        cluster.on("Fetch", big_answer(1 << 20), times=None)
        memory = BufferPool(handler.Lock(), 16 << 20)
        made = channel(handler, cluster, buffers=memory)
        for _ in range(12):
            made.request(fetch(), timeout_s=60, max_version=12).result(WAIT_S)
        assert memory.pooled_bytes <= 3 * (2 << 20), "one that is being read, one that is just being dropped"
        made.close()


def test_an_answer_over_max_response_bytes_is_refused(handler: Handler) -> None:
    with MockCluster() as cluster:
        cluster.on("Fetch", big_answer(200_000))
        made = channel(handler, cluster, max_response_bytes=100_000)
        error = made.request(fetch(), timeout_s=60, max_version=12).exception(WAIT_S)
        assert isinstance(error, ProtocolError)
        assert "max_response_bytes" in str(error)


# -- fork
FORK_SCRIPT = """
    import json, os, sys
    from gkafka.config import ClientConfig
    from gkafka.exceptions import ForkedClientError
    from gkafka.handlers import resolve_handler
    from gkafka.net.channel import Channel
    from gkafka.testing import MockCluster
    from gkafka.wire.metadata import MetadataRequest

    handler = resolve_handler(sys.argv[1])
    with MockCluster() as cluster:
        channel = Channel(handler, *cluster.brokers[1], ClientConfig())
        ask = lambda: channel.request(MetadataRequest(topics=[]), timeout_s=60)
        ask().result(60)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                ask()
                os.write(write, b"no error")
            except ForkedClientError as exc:
                os.write(write, str(exc).encode())
            handler.sleep(1.5)                     # the inherited worker wakes up: it must not touch the parent's connection
            os._exit(0)
        os.close(write)
        said = os.read(read, 1000).decode()
        answers = [ask().result(60) is not None for _ in range(100)]
        os.waitpid(pid, 0)
        answers.append(ask().result(60) is not None)
        print(json.dumps([said, all(answers), channel.closed, cluster.connections()]))
        channel.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", ["threading", "gevent"])
def test_f22_a_forked_child_is_told_and_the_parents_connection_lives(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(FORK_SCRIPT), kind],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, answered, closed, connections = json.loads(done.stdout.splitlines()[-1])
    assert "create the client after the fork" in said
    assert (answered, closed, connections) == (True, False, 1)


@pytest.mark.parametrize(("now", "at"), [(5.0, 6.0), (5.3, 6.0), (5.97, 6.0), (5.99, 7.0)])
def test_idle_readers_wake_together_where_one_hub_turns_for_all(handler: Handler, now: float, at: float) -> None:
    assert handler.looks_at(now, 1.0) == pytest.approx(at if handler.cooperative else now + 1.0)
    assert handler.looks_at(now, 2.0) == pytest.approx((at + at % 2) if handler.cooperative else now + 2.0)
    assert handler.looks_at(now, 0.1) == pytest.approx(now + 0.1), "a request that is soon over is looked at sooner"


def test_an_idle_reader_looks_around_no_more_often_once_its_first_requests_time_is_over(handler: Handler) -> None:
    """Fifty times a second, without end."""
    looks: list[float] = []
    handler.looks_at = lambda now, seconds: looks.append(seconds) or now + seconds  # type: ignore[func-returns-value,method-assign]
    with MockCluster(topics={"t": 1}) as cluster:
        made = channel(handler, cluster)
        made.request(metadata(), timeout_s=2.0).result(60)  # queued: it is not open yet
        handler.sleep(2.2)
        looks.clear()
        handler.sleep(1.5)
        made.close()
    assert all(seconds >= 1.0 for seconds in looks)
    assert len(looks) < 30


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(30_000, 1.0), (2000, 1.0), (1000, 0.5)])
def test_a_reader_looks_around_before_a_requests_time_is_over(handler: Handler, timeout_ms: int, seconds: float) -> None:
    asked: list[float] = []
    handler.looks_at = lambda now, seconds: asked.append(seconds) or now + seconds  # type: ignore[func-returns-value,method-assign]
    with MockCluster(topics={"t": 1}) as cluster:
        made = channel(handler, cluster, socket_timeout_ms=timeout_ms)
        made.wait_open(soon(60))
        made.request(metadata(), timeout_s=timeout_ms / 1000).exception(60)  # on a busy machine the answer may come too late
        made.close()
    if handler.cooperative and timeout_ms == 30_000:
        seconds = 2.0
    assert set(asked[1:]) == {seconds}


def test_a_reader_that_sleeps_for_long_is_told_of_a_request_with_less_time(handler: Handler) -> None:
    """With greenlets; a thread in the kernel looks each second."""
    if handler.cooperative:  # here by itself it would look in some minutes
        handler.looks_at = lambda now, seconds: now + (seconds if seconds < 1 else 200)  # type: ignore[method-assign]
    with MockCluster(topics={"t": 1}) as cluster:
        made = channel(handler, cluster, socket_timeout_ms=30_000)
        made.wait_open(soon(60))
        made.request(metadata(), timeout_s=60).result(60)
        handler.sleep(0.05)  # it has looked, and sleeps
        cluster.on("Metadata", Drop())
        with pytest.raises(KafkaTimeoutError, match=r"no answer to Metadata v\d+ within 0.3 s"):
            made.request(metadata(), timeout_s=0.3).result(60)
        made.close()


@contextlib.contextmanager
def unanswered_port() -> Iterator[int]:
    """To connect to it takes for ever: its listener has no room for one more."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            other = sockets.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a full listener answers no more on Linux")
@pytest.mark.parametrize("security_protocol", ["PLAINTEXT", "SSL"])
def test_a_request_gives_up_in_time_while_its_connection_connects(handler: Handler, security_protocol: str) -> None:
    """It was told when the connection gave up: that of the longest one, or of connect_timeout_ms."""
    with unanswered_port() as full, silent_port() as silent:
        port = full if security_protocol == "PLAINTEXT" else silent
        made = Channel(handler, "127.0.0.1", port, ClientConfig(connect_timeout_ms=120_000, security_protocol=security_protocol))
        long = made.request(metadata(), timeout_s=120)
        handler.sleep(0.1)  # it connects, and for so long
        began = now()
        with pytest.raises(KafkaTimeoutError, match=r"Metadata could not be sent within 0.3 s: the connection did not open"):
            made.request(metadata(), timeout_s=0.3).result(60)
        assert 0.3 <= now() - began < 60
        assert not long.done()
        made.close()
        assert made.join(60)
        deadline = now() + WAIT_S
        while made._place._openings._is_looked_after and now() < deadline:
            handler.sleep(0.01)
        assert not made._place._openings._is_looked_after, "whoever looked after it has ended"


# -- a hub that stood still
def test_what_came_while_the_hub_stood_still_is_read_before_it_counts_as_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the reader's limit comes first, or that of who waits for the result."""
    monkeypatch.setattr("gkafka.net.looks.LONGEST_GREENLET_WAIT_S", 100.0)
    handler = GEventHandler()
    answers: list[Any] = []
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("Metadata", held := Held(), times=2)
        made = [channel(handler, cluster) for _ in range(2)]
        waiting = []
        for each, limit_s, wait_s in zip(made, (5.0, 5.1), (5.1, 5.0), strict=True):
            each.wait_open(soon(60))
            future = each.request(metadata(), timeout_s=limit_s)
            waiting.append(handler.spawn(lambda future=future, wait_s=wait_s: answers.append(future.result(wait_s))))
        handler.sleep(0)  # now all limits are set, and have not passed
        held.released = True
        deadline = now() + WAIT_S
        for each in made:
            while not select.select([each._link.stream.fileno()], [], [], 0)[0]:  # type: ignore[union-attr]
                assert now() < deadline, "the answer does not come"
        busy(6)
        assert [worker.join(60) for worker in waiting] == [True, True]
        assert [type(answer) for answer in answers] == [MetadataResponse] * 2
        for each in made:
            assert not each.closed
            each.close()


def test_a_silent_broker_is_given_up_soon_after_the_hub_stood_still() -> None:
    handler = GEventHandler()
    with MockCluster(topics={"t": 1}) as cluster:
        cluster.on("Metadata", Drop(before=True), times=None)
        made = channel(handler, cluster)
        made.wait_open(soon(60))
        future = made.request(metadata(), timeout_s=0.3)
        handler.sleep(0)
        busy(1.0)
        times = 0
        while times < 20 and not future.done():  # and goes on to stand still, again and again
            handler.sleep(0.01)
            busy(0.6)
            times += 1
        assert times <= 3
        with pytest.raises(KafkaTimeoutError, match=r"no answer to Metadata v\d+ within 0.3 s"):
            future.result(0)
        assert made.closed


def test_max_broker_version_bounds_what_is_spoken(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        bounded, free = channel(handler, cluster, max_broker_version="0.10.1"), channel(handler, cluster)
        for made in (bounded, free):
            made.request(metadata(), timeout_s=60).result(WAIT_S)
            made.close()
        assert [request.version for request in cluster.requests("Metadata")] == [2, 13]
