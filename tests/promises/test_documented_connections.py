"""BrokerConnection, RequestHandler, ResponseFuture and a broker's own request handlers: behaviours 65 to 68, 86 to 88, 110, 111 and 118 to 120."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gkafka.broker import Broker
from gkafka.connection import BrokerConnection, SslConfig
from gkafka.exceptions import (
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    ProtocolError,
    SocketDisconnectedError,
    TlsError,
    UnsupportedVersion,
)
from gkafka.handlers import Handler, RequestHandler, ResponseFuture, ThreadingHandler
from gkafka.protocol import (
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    FetchRequest,
    FetchResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetRequest,
    OffsetResponse,
    PartitionFetchRequest,
    PartitionOffsetFetchRequest,
    PartitionOffsetRequest,
    ProduceRequest,
    ProduceResponse,
)
from gkafka.testing import Delay, Drop, MockCluster
from tests.kit.clock import PATIENCE_S, now
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.servers import serve

LIMIT_S = PATIENCE_S
Talk = Callable[[socket.socket], object]


def old_cluster(**options: Any) -> MockCluster:
    """A broker that takes the documented versions."""
    return MockCluster(topics={"t": 2}, versions="0.9.0", **options)


def connection_to(cluster: MockCluster, handler: Handler, **options: Any) -> BrokerConnection:
    ((_, (host, port)),) = cluster.brokers.items()
    return BrokerConnection(host, port, handler, **options)


def take(conn: socket.socket) -> bytes:
    """One whole request, without its size."""
    head = conn.recv(4, socket.MSG_WAITALL)
    return conn.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if len(head) == 4 else b""


def answer(body: bytes, correlation_id: int = 0) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


# -- BrokerConnection ------------------------------------------------------------------------------------------------------
def test_behaviour_86_connect_disconnect_reconnect_and_connected(handler: Handler) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler)
        assert (connection.connected, cluster.connections()) == (False, 0)
        with pytest.raises(SocketDisconnectedError, match="call connect"):
            connection.request(MetadataRequest())
        with pytest.raises(SocketDisconnectedError, match="call connect"):
            connection.response()
        connection.connect(5000)
        assert connection.connected
        cluster.wait_for(lambda: cluster.connections() == 1)
        connection.reconnect()
        assert connection.connected
        connection.request(MetadataRequest())
        assert b"t" in MetadataResponse(connection.response()).topics
        cluster.wait_for(lambda: cluster.connections() == 1)
        connection.disconnect()
        connection.disconnect()
        assert not connection.connected
        cluster.wait_for(lambda: cluster.connections() == 0)


def test_behaviour_87_requests_are_sent_and_answers_come_in_their_order(handler: Handler) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler)
        connection.connect(5000)
        produce = ProduceRequest(compression_type=1)
        for n in range(3):
            produce.add_message(Message(b"v%d" % n, b"k"), b"t", 1)
        connection.request(produce)
        assert ProduceResponse(connection.response()).topics == {b"t": {1: (0, 0)}}
        connection.request(FetchRequest([PartitionFetchRequest(b"t", 1, 0)], min_bytes=1))
        connection.request(OffsetRequest([PartitionOffsetRequest(b"t", 1, -1, 1)]))
        connection.request(ConsumerMetadataRequest(b"g"))
        fetched = FetchResponse(connection.response()).topics[b"t"][1]
        assert [(m.offset, m.key, m.value) for m in fetched.messages] == [(n, b"k", b"v%d" % n) for n in range(3)]
        assert (fetched.max_offset, fetched.err) == (3, 0)
        assert OffsetResponse(connection.response()).topics == {b"t": {1: ([3], 0)}}
        assert ConsumerMetadataResponse(connection.response()).coordinator_port == connection.port
        connection.disconnect()
        assert {r.client_id for r in cluster.requests()} == {"gkafka"}


def test_a_request_without_an_answer_leaves_none_to_wait_for(handler: Handler) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler)
        connection.connect(5000)
        produce = ProduceRequest(required_acks=0)
        produce.add_message(Message(b"v"), b"t", 0)
        produce.correlation_id = 7
        connection.request(produce)
        connection.request(MetadataRequest())
        assert MetadataResponse(connection.response()).brokers
        assert cluster.wait_for(lambda: cluster.log("t", 0))[0].value == b"v"
        connection.disconnect()


def test_a_newer_broker_is_spoken_to_in_its_versions(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        connection = connection_to(cluster, handler)
        connection.connect(5000)
        connection.request(MetadataRequest([b"t"], api_version=12))
        assert b"t" in MetadataResponse(connection.response(), api_version=12).topics
        produce = ProduceRequest(required_acks=-1, compression_type=3, api_version=9)
        produce.add_message(Message(b"v"), "t", 0)
        connection.request(produce)
        assert ProduceResponse(connection.response(), api_version=9).topics == {b"t": {0: (0, 0)}}
        assert cluster.log("t", 0)[0].value == b"v"
        connection.disconnect()


def test_behaviour_88_a_connection_that_is_deleted_closes_its_socket(handler: Handler) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler)
        connection.connect(5000)
        connection.request(MetadataRequest())
        held = connection.response()
        cluster.wait_for(lambda: cluster.connections() == 1)
        gc.disable()  # the last reference is enough
        try:
            del connection
            deadline = now() + LIMIT_S
            while cluster.connections():
                assert now() < deadline
                handler.sleep(0.005)
        finally:
            gc.enable()
        assert MetadataResponse(held).topics


@pytest.mark.parametrize("size", [4, 100, 1 << 20])
def test_answers_larger_than_the_buffer_are_received_whole(handler: Handler, size: int) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler, buffer_size=size)
        connection.connect(5000)
        for length in (0, 10, 5000, 300_000):
            produce = ProduceRequest()
            produce.add_message(Message(b"x" * length), b"t", 0)
            connection.request(produce)
            offset = ProduceResponse(connection.response()).topics[b"t"][0].offset
            connection.request(FetchRequest([PartitionFetchRequest(b"t", 0, offset)], min_bytes=1))
            assert [m.value for m in FetchResponse(connection.response()).topics[b"t"][0].messages] == [b"x" * length]
        connection.disconnect()


def test_a_connection_comes_from_its_source_address(handler: Handler) -> None:
    seen: list[str] = []
    with serve(lambda conn: seen.append(conn.getpeername()[0])) as port:
        for made in (
            BrokerConnection("127.0.0.1", port, handler, source_host="127.0.0.3"),
            BrokerConnection("127.0.0.1", port, 65536, "127.0.0.3"),  # type: ignore[arg-type]  # the order of pykafka 2.0.4
        ):
            made.connect(5000)
            with pytest.raises(SocketDisconnectedError, match="closed the connection"):
                made.response()
            assert not made.connected
    assert seen == ["127.0.0.3", "127.0.0.3"]


def test_without_a_handler_it_works_on_threads() -> None:
    connection = BrokerConnection(b"localhost", 9092, 1024)  # type: ignore[arg-type]
    assert isinstance(connection._handler, ThreadingHandler)
    assert (connection._buffer_size, connection.host) == (1024, "localhost")


def test_where_nobody_listens_each_attempt_is_made(handler: Handler) -> None:
    port = refused_port()
    connection = BrokerConnection("127.0.0.1", port, handler)
    started = now()
    with pytest.raises(ConnectionFailedError, match=str(port)):
        connection.connect(5000, attempts=3)
    assert 0.55 < now() - started < 30
    assert not connection.connected


# -- peers that misbehave
def exchange(handler: Handler, talk: Talk, timeout: float = 5000, requests: int = 1) -> BrokerConnection:
    """A connection on which a peer that talks so was asked, and answered."""
    with serve(talk) as port:
        connection = BrokerConnection("127.0.0.1", port, handler)
        connection.connect(timeout)
        try:
            for _ in range(requests):
                connection.request(MetadataRequest())
            connection.response()
        except BaseException:
            assert not connection.connected, "what comes next could be the rest of this answer"
            raise
        return connection


def test_an_answer_that_does_not_come_in_time_disconnects(handler: Handler) -> None:
    def silent(conn: socket.socket) -> None:
        while conn.recv(4096):  # until the other side has closed it
            pass

    started = now()
    with pytest.raises(SocketDisconnectedError) as caught:
        exchange(handler, silent, timeout=300)
    assert isinstance(caught.value.__cause__, KafkaTimeoutError)
    assert 0.25 < now() - started < 30


@pytest.mark.parametrize("sent", [b"", b"\0\0", answer(b"cut")[:6]])
def test_a_peer_that_hangs_up_disconnects(handler: Handler, sent: bytes) -> None:
    def talk(conn: socket.socket) -> None:
        take(conn)
        conn.sendall(sent)

    with pytest.raises(SocketDisconnectedError, match="closed the connection"):
        exchange(handler, talk)


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_a_size_that_no_answer_has_is_a_protocol_error(handler: Handler, size: int) -> None:
    def talk(conn: socket.socket) -> None:
        take(conn)
        conn.sendall(struct.pack(">i", size) + bytes(20))
        conn.recv(1)

    with pytest.raises(ProtocolError, match=f"claims {size} bytes"):
        exchange(handler, talk)


def test_an_answer_to_another_request_is_a_protocol_error(handler: Handler) -> None:
    def talk(conn: socket.socket) -> None:
        take(conn)
        conn.sendall(answer(b"", correlation_id=9))
        conn.recv(1)

    with pytest.raises(ProtocolError, match="request 9 where that to 0"):
        exchange(handler, talk)


@pytest.mark.parametrize(
    "options",
    [
        {"port": 0},
        {"port": 70_000},
        {"port": "9092"},
        {"handler": "threading"},
        {"buffer_size": 3},
        {"buffer_size": "1"},
    ],
)
def test_what_no_connection_can_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        BrokerConnection(**{"host": "localhost", "port": 9092, **options})


def test_timeouts_and_attempts_that_are_none_are_refused(handler: Handler) -> None:
    connection = BrokerConnection("localhost", 1, handler)
    for timeout, attempts in ((-1, 1), ("1", 1), (float("nan"), 1), (1000, 0), (1000, None)):
        with pytest.raises(ConfigurationError, match=r"timeout=|attempts="):
            connection.connect(timeout, attempts)  # type: ignore[arg-type]


# -- TLS
@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(Path(tmp_path_factory.mktemp("certificates")))


def test_a_connection_with_tls_checks_certificate_and_host(handler: Handler, certificates: Certificates) -> None:
    for name in ("good", "wrong_host", "unknown_ca"):
        context = certificates.server(name)

        def talk(conn: socket.socket) -> None:
            take(conn)
            conn.sendall(answer(b"ok"))

        def wrap(conn: socket.socket, context: Any = context) -> socket.socket:
            secured: socket.socket = context.wrap_socket(conn, server_side=True)
            return secured

        with serve(talk_tls if name == "good" else talk, wrap=wrap) as port:
            connection = BrokerConnection("127.0.0.1", port, handler, ssl_config=SslConfig(certificates.ca))
            if name == "good":
                connection.connect(5000)
                connection.request(MetadataRequest())
                assert connection.response() == b"ok"
                connection.disconnect()
            else:
                with pytest.raises(TlsError):
                    connection.connect(5000, attempts=5)


def talk_tls(conn: socket.socket) -> None:
    size = int.from_bytes(conn.recv(4), "big")
    while size:
        size -= len(conn.recv(size))
    conn.sendall(answer(b"ok"))


@pytest.mark.parametrize(
    ("name", "host", "fine"),
    [
        ("good", None, True),
        ("good", "localhost", True),
        ("wrong_host", None, True),
        ("wrong_host", "localhost", False),
        ("unknown_ca", None, False),
    ],
)
def test_a_socket_of_ones_own_is_wrapped(certificates: Certificates, name: str, host: str | None, fine: bool) -> None:
    context = certificates.server(name)
    config = SslConfig(certificates.ca)
    with (
        serve(talk_tls, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port,
        socket.create_connection(("127.0.0.1", port), 5) as plain,
    ):
        if not fine:
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                config.wrap_socket(plain, host)
            return
        with config.wrap_socket(plain, host) as secured:
            secured.sendall(MetadataRequest().get_bytes())
            assert secured.recv(100) == answer(b"ok")


def test_a_file_that_is_not_there_is_told() -> None:
    with socket.socket() as plain, pytest.raises(ConfigurationError, match="no such file"):
        SslConfig("/no/such/file.pem").wrap_socket(plain)


# -- ResponseFuture ----------------------------------------------------------------------------------------------------------
def test_behaviours_110_111_get_waits_for_the_answer_and_parses_it(handler: Handler) -> None:
    future = ResponseFuture(handler)

    def later() -> None:
        handler.sleep(0.05)
        future.set_response(b"12")

    handler.spawn(later)
    assert future.get(timeout=LIMIT_S) == b"12"
    assert future.get(int) == 12
    assert future.get(int, base=16) == 18
    assert future.get(response_cls=bytearray, timeout=0) == bytearray(b"12")
    future.set_error(OffsetOutOfRangeError("too late"))
    assert future.get() == b"12"


def test_behaviours_110_111_get_raises_what_was_set(handler: Handler) -> None:
    future = ResponseFuture(handler)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            future.get()
        except OffsetOutOfRangeError as exc:
            raised.append(exc)

    waiter = handler.spawn(wait)
    handler.sleep(0.02)
    error = OffsetOutOfRangeError("so it is")
    future.set_error(error)
    assert waiter.join(LIMIT_S)
    assert raised == [error]


def test_get_waits_no_longer_than_its_timeout(handler: Handler) -> None:
    with pytest.raises(KafkaTimeoutError):
        ResponseFuture(handler).get(timeout=0.05)
    with pytest.raises(ConfigurationError, match="timeout='x'"):
        ResponseFuture(handler).get(timeout="x")  # type: ignore[arg-type]


# -- RequestHandler ------------------------------------------------------------------------------------------------------------
class Echo:
    """A connection that answers each request with itself, in order; `closed` fails the next one."""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.sent, self.waiting = handler, [], []  # type: ignore[var-annotated]
        self.closed = False
        self.gate = handler.Event()
        self.gate.set()

    def request(self, request: Any) -> None:
        assert self.gate.wait(LIMIT_S)
        if self.closed:
            raise SocketDisconnectedError("closed")
        self.sent.append(request)
        self.waiting.append(request)

    def response(self) -> Any:
        return self.waiting.pop(0)


def test_behaviour_118_a_request_is_queued_and_gives_a_future(handler: Handler) -> None:
    echo = Echo(handler)
    requests = RequestHandler(handler, echo)
    early = requests.request(b"0")
    handler.sleep(0.02)
    assert echo.sent == [], "nothing is sent before start()"
    requests.start()
    requests.start()
    later = requests.request(b"1")
    assert isinstance(early, ResponseFuture)
    assert isinstance(later, ResponseFuture)
    assert (early.get(int, LIMIT_S), later.get(timeout=LIMIT_S)) == (0, b"1")
    assert requests.request(b"2", has_response=False) is None
    requests.stop()
    assert (echo.sent, echo.waiting) == ([b"0", b"1", b"2"], [b"2"])


def test_what_a_request_meets_is_the_error_of_its_future_alone(handler: Handler) -> None:
    echo = Echo(handler)
    requests = RequestHandler(handler, echo)
    requests.start()
    echo.closed = True
    failed = requests.request(b"1")
    assert requests.request(b"x", has_response=False) is None
    assert failed is not None
    with pytest.raises(SocketDisconnectedError):
        failed.get(timeout=LIMIT_S)
    echo.closed = False
    fine = requests.request(b"2")
    assert fine is not None
    assert fine.get(timeout=LIMIT_S) == b"2"
    requests.stop()


def test_behaviour_119_stop_sends_what_is_queued_and_ends_the_worker(handler: Handler) -> None:
    echo = Echo(handler)
    requests = RequestHandler(handler, echo)
    requests.start()
    echo.gate.clear()
    futures = [requests.request(b"%d" % n) for n in range(5)]
    handler.spawn(lambda: (handler.sleep(0.1), echo.gate.set()))
    requests.stop()
    requests.stop()
    assert [f.get(timeout=0) for f in futures if f is not None] == [b"%d" % n for n in range(5)]
    assert handler.workers() == [] or all(w.join(LIMIT_S) for w in handler.workers())
    assert requests.shared.ending.is_set()
    with pytest.raises(ClientClosedError, match="stopped"):
        requests.request(b"late")


def test_requests_that_were_never_started_are_told_so(handler: Handler) -> None:
    requests = RequestHandler(handler, Echo(handler))
    future = requests.request(b"1")
    requests.stop()
    requests.start()
    assert future is not None
    with pytest.raises(ClientClosedError, match="before this request was sent"):
        future.get(timeout=LIMIT_S)


def test_a_request_handler_that_is_dropped_ends_its_worker(handler: Handler) -> None:
    requests = RequestHandler(handler, Echo(handler))
    requests.start()
    (worker,) = handler.workers()
    del requests
    gc.collect()
    assert worker.join(LIMIT_S)


def test_behaviour_120_shared_and_task_are_named_tuples(handler: Handler) -> None:
    assert RequestHandler.Shared._fields == ("connection", "requests", "ending")
    assert RequestHandler.Task._fields == ("request", "future")
    assert issubclass(RequestHandler.Shared, tuple)
    assert issubclass(RequestHandler.Task, tuple)
    echo = Echo(handler)
    requests = RequestHandler(handler, echo)
    assert requests.shared.connection is echo
    future = requests.request(b"1")
    assert requests.shared.requests.get_nowait() == (b"1", future)
    with pytest.raises(ConfigurationError, match="handler="):
        RequestHandler(None, echo)  # type: ignore[arg-type]


def test_a_request_handler_drives_a_connection(handler: Handler) -> None:
    with old_cluster() as cluster:
        connection = connection_to(cluster, handler)
        connection.connect(5000)
        requests = RequestHandler(handler, connection)
        requests.start()
        futures = [requests.request(MetadataRequest([b"t"])) for _ in range(20)]
        assert all(list(f.get(MetadataResponse, LIMIT_S).topics) == [b"t"] for f in futures if f is not None)
        cluster.on("Metadata", Drop())
        lost = requests.request(MetadataRequest())
        deadline = now() + LIMIT_S
        while cluster.count("Metadata") < 21:
            assert now() < deadline
            handler.sleep(0.005)
        cluster.close_connections()
        assert lost is not None
        with pytest.raises(SocketDisconnectedError):
            lost.get(timeout=LIMIT_S)
        requests.stop()
        assert not connection.connected


# -- a broker's own (65 to 68) -------------------------------------------------------------------------------------------------
def test_behaviours_65_66_68_a_brokers_handlers_send_on_its_two_connections(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        ((id_, (host, port)),) = cluster.brokers.items()
        broker = Broker(id_, host, port, handler, 10_000, 10_000)
        asked = broker.handler.request(MetadataRequest([b"t"]))
        assert asked is not None
        assert list(asked.get(MetadataResponse, LIMIT_S).topics) == [b"t"]
        assert (broker.connected, broker.offsets_channel_connected) == (True, False)
        committed = broker.offsets_channel_handler.request(OffsetFetchRequest(b"g", [PartitionOffsetFetchRequest(b"t", 0)]))
        assert committed is not None
        assert committed.get(OffsetFetchResponse, LIMIT_S).topics == {b"t": {0: (-1, b"", 0)}}
        assert (broker.connected, broker.offsets_channel_connected, cluster.connections()) == (True, True, 2)
        assert broker.handler is broker.handler
        broker.handler.stop()
        assert (broker.connected, broker.offsets_channel_connected) == (False, True)
        broker.handler.start()
        again = broker.handler.request(MetadataRequest())
        assert again is not None
        assert again.get(MetadataResponse, LIMIT_S).brokers
        broker.close()
        refused = broker.handler.request(MetadataRequest())
        assert refused is not None
        with pytest.raises(ConnectionFailedError):
            refused.get(timeout=LIMIT_S)


def test_requests_on_a_brokers_handler_do_not_wait_for_each_other(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        ((id_, (host, port)),) = cluster.brokers.items()
        broker = Broker(id_, host, port, handler, 10_000, 10_000)
        cluster.on("JoinGroup", Delay(30.0))
        one, two = broker._get_unique_req_handler(b"one"), broker._get_unique_req_handler(b"two")
        slow = one.request(FetchRequest([PartitionFetchRequest(b"t", 0, 0)], timeout=1500, min_bytes=1))
        quick = two.request(MetadataRequest())
        assert slow is not None
        assert quick is not None
        assert quick.get(MetadataResponse, LIMIT_S).brokers
        assert slow.get(FetchResponse, LIMIT_S).topics[b"t"][0].messages == []
        broker.close()


def test_a_request_that_the_broker_does_not_have_is_the_futures_error(handler: Handler) -> None:
    with MockCluster(topics={"t": 1}, limits={"FindCoordinator": None}) as cluster:
        ((id_, (host, port)),) = cluster.brokers.items()
        broker = Broker(id_, host, port, handler, 10_000, 10_000)
        future = broker.handler.request(ConsumerMetadataRequest(b"g"))
        assert future is not None
        with pytest.raises(UnsupportedVersion):
            future.get(timeout=LIMIT_S)
        broker.close()


def test_a_brokers_request_handler_outlives_its_broker_without_keeping_it(handler: Handler) -> None:
    requests = Broker(1, "localhost", 9, handler, 1000, 1000).handler
    with pytest.raises(ClientClosedError, match="dropped"):
        requests.request(MetadataRequest())
    requests.start()
    requests.stop()
