"""kafka-tools doctor against the ways in which a connection does not come about, and against clusters in this process."""

from __future__ import annotations

import contextlib
import json
import pathlib
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.admin.enums import AclOperation
from gkafka.testing import Delay, Drop, Edit, Error, MockCluster, Reply, Sasl
from gkafka.wire.clusteradmin import DescribeQuorumResponse
from tests.cli.running import Outcome, failure, tool
from tests.cli.terminal import PLAIN, Terminal
from tests.kit.clock import epoch_s, now
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.servers import black_hole, serve


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 2}, auto_create=False) as made:
        yield made


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may take as long as it is told by --timeout."""
    monkeypatch.setattr("gkafka.cli.doctor.STEP_S", 60.0)


def examined(*argv: str, healthy: bool) -> dict[str, Any]:
    """What the doctor says, as JSON; within a bounded time."""
    begun = now()
    outcome = tool("doctor", "--json", "--timeout", "30" if healthy else "4", *argv)
    assert now() - begun < 60
    assert outcome.code == (0 if healthy else 1), outcome
    found: dict[str, Any] = outcome.document
    assert found["ok"] is healthy
    for step in found["steps"]:
        assert step["status"] in ("ok", "warn", "fail", "skip")
        assert bool(step["next"]) is (step["status"] in ("warn", "fail")), step
    return found


def steps(found: dict[str, Any]) -> dict[str, str]:
    """Step -> status; the worst where there are several."""
    order = ["skip", "ok", "warn", "fail"]
    worst: dict[str, str] = {}
    for step in found["steps"]:
        worst[step["step"]] = max(worst.get(step["step"], "skip"), step["status"], key=order.index)
    return worst


def the_failure(found: dict[str, Any], step: str, *seen: str, next: str) -> None:
    """It fails at this step and at no other one, and says these things."""
    failed = [one for one in found["steps"] if one["status"] == "fail"]
    assert [one["step"] for one in failed] == [step], found
    for text in seen:
        assert text in failed[0]["seen"], failed[0]
    assert next in failed[0]["next"], failed[0]


# -- where a connection fails ----------------------------------------------------------------------------------------------
def test_a_name_that_nobody_knows() -> None:
    found = examined("-b", "no-such-host.invalid:9092", healthy=False)
    the_failure(found, "resolve", "no-such-host.invalid", next="check the name of the broker")


def test_a_closed_port() -> None:
    found = examined("-b", f"127.0.0.1:{refused_port()}", healthy=False)
    the_failure(found, "connect", "refused", next="nobody listens there")
    assert steps(found) == {"resolve": "ok", "connect": "fail"}


def test_a_port_whose_packets_are_dropped() -> None:
    with black_hole() as port:
        found = examined("-b", f"127.0.0.1:{port}", healthy=False)
    the_failure(found, "connect", "timed out", next="firewall")


@pytest.mark.parametrize("options", [[], ["--security-protocol", "SSL"]])
def test_a_port_that_accepts_and_says_nothing(options: list[str]) -> None:
    with serve(wait_for_end) as port:
        found = examined("-b", f"127.0.0.1:{port}", *options, healthy=False)
    the_failure(found, "tls" if options else "versions", "no answer", next="accepts connections and says nothing")


def wait_for_end(conn: socket.socket) -> None:
    while conn.recv(65536):
        pass


def web_server(conn: socket.socket) -> None:
    conn.recv(65536)
    conn.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_a_web_server() -> None:
    with serve(web_server) as port:
        found = examined("-b", f"127.0.0.1:{port}", healthy=False)
    the_failure(found, "versions", "HTTP", next="give the port of a Kafka listener")


def test_a_web_server_spoken_to_in_tls() -> None:
    with serve(web_server) as port:
        found = examined("-b", f"127.0.0.1:{port}", "--security-protocol", "SSL", healthy=False)
    the_failure(
        found,
        "tls",
        "not in TLS",
        "a web server without TLS answers there: 'HTTP/1.1 400 Bad Request'",
        next="give the port of a Kafka listener",
    )


def patient_web_server(conn: socket.socket) -> None:
    """Says nothing before it has heard the end of a request's headers, as nginx and others do."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        chunk = conn.recv(65536)
        if not chunk:
            return
        heard += chunk
    conn.sendall(b"HTTP/1.1 404 Not ")
    conn.sendall(b"Found\r\nServer: x\r\n\r\n")


@pytest.mark.parametrize("options", [[], ["--security-protocol", "SSL"]])
def test_a_web_server_that_waits_for_a_request_is_not_taken_for_silence(options: list[str]) -> None:
    with serve(patient_web_server) as port:
        found = examined("-b", f"127.0.0.1:{port}", "--timeout", "4", *options, healthy=False)
    the_failure(found, "tls" if options else "versions", "web server", "'HTTP/1.1 404 Not Found'", next="give the port of a Kafka listener")


def test_a_peer_that_hangs_up() -> None:
    with serve(lambda conn: conn.recv(1)) as port:
        found = examined("-b", f"127.0.0.1:{port}", healthy=False)
    the_failure(found, "versions", "the peer closes the connection", next="is this the port of a Kafka listener?")


def test_a_peer_of_another_protocol() -> None:
    with serve(lambda conn: conn.sendall(b"SSH-2.0-OpenSSH_9.6\r\n") or wait_for_end(conn)) as port:
        found = examined("-b", f"127.0.0.1:{port}", healthy=False)
    the_failure(found, "versions", "SSH", next="is this the port of a Kafka listener?")


# -- TLS -------------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def tls_door(cluster: MockCluster, certificates: Certificates, name: str = "good", *, wants_client: bool = False) -> Iterator[int]:
    """A port where the cluster's broker speaks TLS with this certificate; it says that it is there."""
    context = certificates.asking_for_clients() if wants_client else certificates.server(name)

    def talk(conn: socket.socket) -> None:
        with socket.create_connection(cluster.brokers[1]) as broker:
            while True:
                pending = getattr(conn, "pending", int)()
                ready = [conn] if pending else select.select([conn, broker], [], [], 20)[0]
                for side, other in ((conn, broker), (broker, conn)):
                    if side in ready:
                        data = side.recv(65536)
                        if not data:
                            return
                        other.sendall(data)

    with serve(talk, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:

        def moved(_: Any, answer: Any) -> Any:
            for broker in answer.brokers:
                broker.host, broker.port = "localhost", port
            return answer

        def coordinator(_: Any, answer: Any) -> Any:
            for told in answer.coordinators:
                told.host, told.port = "localhost", port
            return answer

        cluster.on("Metadata", Edit(moved), times=None)
        cluster.on("FindCoordinator", Edit(coordinator), times=None)
        yield port


def with_tls(port: int, certificates: Certificates, host: str = "localhost") -> list[str]:
    return ["-b", f"{host}:{port}", "--security-protocol", "SSL", "--ssl-cafile", certificates.ca]


def test_tls_as_it_should_be(cluster: MockCluster, certificates: Certificates) -> None:
    with tls_door(cluster, certificates) as port:
        found = examined(*with_tls(port, certificates), "--topic", "t", healthy=True)
    (tls,) = [step for step in found["steps"] if step["step"] == "tls"]
    assert "TLSv1.3" in tls["seen"]
    assert "localhost, kafka.example, 127.0.0.1" in tls["seen"]
    assert "gkafka test ca" in tls["seen"]
    assert tls["status"] == "ok"


def test_a_web_server_behind_tls(certificates: Certificates) -> None:
    context = certificates.server("good")
    with serve(patient_web_server, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:
        found = examined(*with_tls(port, certificates), healthy=False)
    the_failure(found, "versions", "web server", "'HTTP/1.1 404 Not Found'", next="give the port of a Kafka listener")


def test_a_certificate_that_ends_soon_is_a_warning(
    cluster: MockCluster, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkafka.cli.checkups.SOON_DAYS", 60)
    with tls_door(cluster, certificates) as port:
        found = examined(*with_tls(port, certificates), healthy=True)
    (tls,) = [step for step in found["steps"] if step["step"] == "tls"]
    assert (tls["status"], tls["next"]) == ("warn", "renew the broker's certificate before that day")


def test_a_tls_listener_spoken_to_in_clear_text(cluster: MockCluster, certificates: Certificates) -> None:
    with tls_door(cluster, certificates) as port:
        found = examined("-b", f"localhost:{port}", healthy=False)
    the_failure(found, "versions", "speaks TLS", "localhost, kafka.example", next="--security-protocol SSL")


def test_a_clear_text_listener_spoken_to_in_tls(cluster: MockCluster, certificates: Certificates) -> None:
    found = examined(*with_tls(cluster.brokers[1][1], certificates, "127.0.0.1"), healthy=False)
    the_failure(found, "tls", "a Kafka broker, but this listener speaks no TLS", next="--security-protocol PLAINTEXT")


@pytest.mark.parametrize(
    ("name", "seen", "advice"),
    [
        ("wrong_host", "for elsewhere.example", "connect by one of these names"),
        ("expired", "certificate has expired", "renew the broker's certificate, which ended on"),
        ("future", "not yet valid", "check the clocks"),
        ("unknown_ca", "gkafka test other_ca", "--ssl-cafile FILE"),
        ("self_signed", "self", "--ssl-cafile FILE"),
    ],
)
def test_a_certificate_that_cannot_be_taken_is_shown(
    cluster: MockCluster, certificates: Certificates, name: str, seen: str, advice: str
) -> None:
    with tls_door(cluster, certificates, name) as port:
        found = examined(*with_tls(port, certificates), healthy=False)
    the_failure(found, "tls", "certificate verify failed", "It shows the certificate of", seen, next=advice)
    assert "versions" not in steps(found)


def test_a_listener_that_wants_a_certificate_of_the_client(cluster: MockCluster, certificates: Certificates) -> None:
    with tls_door(cluster, certificates, wants_client=True) as port:
        found = examined(*with_tls(port, certificates), healthy=False)
        assert "fail" in steps(found).values()
        assert any("--ssl-certfile" in step["next"] for step in found["steps"]), found
        own = ["--ssl-certfile", certificates.path("client.pem"), "--ssl-keyfile", certificates.path("client.key")]
        examined(*with_tls(port, certificates), *own, healthy=True)


def test_an_authority_file_that_is_none_is_told_before_anything_is_tried(cluster: MockCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "ca.jks"
    file.write_bytes(b"\xfe\xed\xfe\xed")
    outcome = tool("doctor", "-b", cluster.bootstrap, "--security-protocol", "SSL", "--ssl-cafile", str(file))
    failure(outcome, "not a PEM file", code=2)


# -- SASL ------------------------------------------------------------------------------------------------------------------
def sasl_options(cluster: MockCluster, password_file: pathlib.Path, mechanism: str = "SCRAM-SHA-256") -> list[str]:
    return [
        *("-b", cluster.bootstrap, "--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", mechanism),
        *("--sasl-username", "alice", "--sasl-password-file", str(password_file)),
    ]


@pytest.fixture
def guarded() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1}, sasl=Sasl(users={"alice": "secret-word"}), auto_create=False) as made:
        yield made


def test_the_right_password(guarded: MockCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret-word\n")
    found = examined(*sasl_options(guarded, file), "--topic", "t", healthy=True)
    assert steps(found)["sasl"] == "ok"


def test_a_wrong_password_is_told_and_not_shown(guarded: MockCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong-word\n")
    found = examined(*sasl_options(guarded, file), healthy=False)
    the_failure(found, "sasl", next="check --sasl-mechanism, the user and the password")
    assert steps(found)["versions"] == "ok"
    assert "word" not in json.dumps(found).replace("password", "")


def test_a_listener_that_wants_to_know_who_the_client_is(guarded: MockCluster) -> None:
    found = examined("-b", guarded.bootstrap, healthy=False)
    the_failure(found, "metadata", "wants to know who the client is", next="--security-protocol SASL_PLAINTEXT --sasl-mechanism")


def test_sasl_where_there_is_none(cluster: MockCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret-word\n")
    found = examined(*sasl_options(cluster, file), healthy=False)
    the_failure(found, "sasl", next="the listener may have no SASL: --security-protocol PLAINTEXT, without --sasl-mechanism")


def test_a_broker_that_refuses_to_talk_of_sasl_has_a_listener_without(cluster: MockCluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret-word\n")
    cluster.on("SaslHandshake", Error(34), times=None)  # what Kafka's PLAINTEXT listener says
    found = examined(*sasl_options(cluster, file), healthy=False)
    the_failure(
        found, "sasl", "see whether the listener is one for SASL", next="the listener may have no SASL: --security-protocol PLAINTEXT"
    )


# -- the cluster -----------------------------------------------------------------------------------------------------------
def advertise(cluster: MockCluster, host: str, port: int) -> None:
    def moved(_: Any, answer: Any) -> Any:
        for broker in answer.brokers:
            broker.host, broker.port = host, port
        return answer

    cluster.on("Metadata", Edit(moved), times=None)


def test_an_advertised_listener_that_cannot_be_reached(cluster: MockCluster) -> None:
    advertise(cluster, "127.0.0.1", refused_port())
    found = examined("-b", cluster.bootstrap, healthy=False)
    failed = [one for one in found["steps"] if one["status"] == "fail"]
    assert failed[0]["step"] == "advertised"
    assert "broker 1 at 127.0.0.1:" in failed[0]["about"]
    assert "set advertised.listeners of broker 1" in failed[0]["next"]


def test_an_advertised_name_that_nobody_knows(cluster: MockCluster) -> None:
    advertise(cluster, "kafka.internal.invalid", 9092)
    found = examined("-b", cluster.bootstrap, healthy=False)
    failed = [one for one in found["steps"] if one["status"] == "fail"]
    assert "kafka.internal.invalid" in failed[0]["seen"]


@pytest.mark.parametrize("address", [("", 9092), ("a\x1b[2Jb", 9092), ("host", 0), ("host", 70000)])
def test_an_advertised_address_that_is_none_is_told_and_harmless(cluster: MockCluster, address: tuple[str, int]) -> None:
    advertise(cluster, *address)
    with Terminal("doctor", "-b", cluster.bootstrap, "--timeout", 30, env=PLAIN) as terminal:
        code, shown = terminal.end()
    assert code == 1
    assert "that is no address" in shown
    assert "\x1b" not in shown


def test_one_dead_host_of_two_is_a_failure_that_does_not_hide_the_rest(cluster: MockCluster) -> None:
    found = examined("-b", f"127.0.0.1:{refused_port()},{cluster.bootstrap}", healthy=False)
    the_failure(found, "connect", "refused", next="nobody listens there")
    assert steps(found)["group"] == "ok"


def test_all_advertised_addresses_are_tried_at_once() -> None:
    with MockCluster(brokers=20) as cluster, black_hole() as port:

        def moved(_: Any, answer: Any) -> Any:
            for broker in answer.brokers:
                broker.port = port
            return answer

        cluster.on("Metadata", Edit(moved), times=1)
        begun = now()
        outcome = tool("doctor", "-b", cluster.bootstrap.split(",")[0], "--timeout", "2")
        assert outcome.out.count(b"fail  advertised") == 20
        assert now() - begun < 30  # one after the other they take 40


def test_a_healthy_cluster_is_said_to_be_one(cluster: MockCluster) -> None:
    allow(cluster, AclOperation.READ, AclOperation.WRITE)
    found = examined("-b", cluster.bootstrap, "--topic", "t", "--group", "g", healthy=True)
    assert steps(found) == {
        **dict.fromkeys(("resolve", "connect", "versions", "metadata", "advertised", "group", "topic", "consume", "produce"), "ok"),
        "clock": "skip",
    }
    assert cluster.log("t", 0) == []


def test_for_people_there_is_a_line_for_each_step_with_the_next_thing_below(cluster: MockCluster) -> None:
    outcome = tool("doctor", "-b", cluster.bootstrap, "--topic", "nowhere")
    assert outcome.code == 1
    lines = outcome.out.decode().splitlines()
    assert lines[0].startswith("ok    resolve")
    assert lines[-2].startswith("fail  topic")
    assert lines[-1].strip().startswith("next: kafka-tools topics create")


# -- rights ----------------------------------------------------------------------------------------------------------------
def allow(cluster: MockCluster, *operations: AclOperation) -> None:
    def told(_: Any, answer: Any) -> Any:
        for topic in answer.topics:
            topic.topic_authorized_operations = sum(1 << operation for operation in operations)
        return answer

    cluster.on("Metadata", Edit(told), times=None)


def test_what_may_be_done_with_a_topic_is_asked_and_not_tried(cluster: MockCluster) -> None:
    allow(cluster, AclOperation.READ, AclOperation.DESCRIBE)
    found = examined("-b", cluster.bootstrap, "--topic", "t", healthy=False)
    the_failure(found, "produce", "may not write", next="an ACL that allows Write on topic 't'")
    assert cluster.requests("Produce") == []


def test_a_topic_that_may_not_be_read(cluster: MockCluster) -> None:
    cluster.on("Fetch", Error(29), times=None)
    found = examined("-b", cluster.bootstrap, "--topic", "t", healthy=False)
    the_failure(found, "consume", next="kafka-tools acls list")


def test_a_group_that_may_not_be_seen(cluster: MockCluster) -> None:
    cluster.on("FindCoordinator", Error(30), times=None)
    found = examined("-b", cluster.bootstrap, healthy=False)
    the_failure(found, "group", next="kafka-tools acls list")


def test_a_record_goes_there_and_comes_back_when_that_is_wanted(cluster: MockCluster) -> None:
    found = examined("-b", cluster.bootstrap, "--topic", "t", "--write", healthy=True)
    assert (steps(found)["produce"], steps(found)["read back"]) == ("ok", "ok")
    assert [r.value for r in cluster.log("t", 0)] == [b"kafka-tools doctor"]


def test_it_is_said_before_that_the_record_stays(cluster: MockCluster) -> None:
    told = tool("doctor", "-b", cluster.bootstrap, "--topic", "t", "--write")
    assert told.code == 0
    said = "--write: a record of 18 bytes goes to topic 't', partition 0, and stays there until retention removes it"
    assert told.err.splitlines() == [said]
    assert "a record was written to partition 0, offset 0; it stays there" in told.out.decode()
    cluster.on("Produce", Error(29), times=None)
    refused = tool("doctor", "-b", cluster.bootstrap, "--topic", "t", "--write", "--json", "--timeout", "30")
    assert said in refused.err, "before it is written: it is said, too, of one that is refused then"
    assert tool("doctor", "-b", cluster.bootstrap, "--topic", "t").err == ""


@pytest.mark.parametrize(
    ("api", "code", "words", "right"),
    [
        ("OffsetFetch", 30, "--group g", "Describe on group 'g'"),
        ("Fetch", 29, "--topic t", "Read on topic 't'"),
        ("Produce", 29, "--topic t --write", "Write on topic 't'"),
        ("ListOffsets", 29, "--topic t", "Describe on topic 't'"),
    ],
)
def test_the_right_that_is_missing_is_named(api: str, code: int, words: str, right: str, cluster: MockCluster) -> None:
    cluster.on(api, Error(code), times=None)
    found = examined("-b", cluster.bootstrap, *words.split(), healthy=False)
    (failed,) = [step for step in found["steps"] if step["status"] == "fail"]
    assert failed["next"] == f"this client needs an ACL that allows {right}: kafka-tools acls list shows which there are"


def test_a_record_that_is_refused(cluster: MockCluster) -> None:
    cluster.on("Produce", Error(29), times=None)
    found = examined("-b", cluster.bootstrap, "--topic", "t", "--write", healthy=False)
    the_failure(found, "produce", next="kafka-tools acls list")


def test_write_needs_a_topic(cluster: MockCluster) -> None:
    failure(tool("doctor", "-b", cluster.bootstrap, "--write"), "--write needs --topic", code=2)


# -- clocks ----------------------------------------------------------------------------------------------------------------
def quorum(apart_s: float) -> Callable[[Any], DescribeQuorumResponse]:
    """The answer of a leader whose clock is so much ahead."""
    from gkafka.wire import clusteradmin as wire

    def answer(request: Any) -> DescribeQuorumResponse:
        now_ms = int((epoch_s() + apart_s) * 1000)
        leader = wire.ReplicaState(replica_id=1, log_end_offset=5, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
        partition = wire.QuorumPartitionState(leader_id=1, leader_epoch=1, high_watermark=5, current_voters=[leader], observers=[])
        return DescribeQuorumResponse(topics=[wire.QuorumTopicState(topic_name="__cluster_metadata", partitions=[partition])])

    return answer


@pytest.mark.parametrize(("apart_s", "status", "seen"), [(0, "ok", ""), (60, "warn", "ahead of"), (-3600, "warn", "behind")])
def test_the_clock_of_the_cluster_is_compared(apart_s: float, status: str, seen: str) -> None:
    with MockCluster(limits={"DescribeQuorum": (0, 2)}) as cluster:
        cluster.on("DescribeQuorum", Reply(quorum(apart_s)), times=None)
        found = examined("-b", cluster.bootstrap, healthy=True)
    (clock,) = [step for step in found["steps"] if step["step"] == "clock"]
    assert clock["status"] == status
    assert seen in clock["seen"]


def test_the_time_that_a_record_was_appended_tells_the_clock_too(cluster: MockCluster) -> None:
    cluster.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    found = examined("-b", cluster.bootstrap, "--topic", "stamped", "--write", healthy=True)
    clocks = [step for step in found["steps"] if step["step"] == "clock"]
    assert [step["status"] for step in clocks] == ["skip", "ok"]


# -- bounds ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("api", ["Metadata", "FindCoordinator", "ListOffsets", "Fetch"])
def test_no_step_waits_longer_than_it_was_told(cluster: MockCluster, api: str) -> None:
    cluster.on(api, Drop(before=True), times=None)
    outcome: Outcome = tool("doctor", "-b", cluster.bootstrap, "--topic", "t", "--timeout", "1", "--json")
    assert outcome.code == 1


@pytest.mark.parametrize("options", [[], ["--security-protocol", "SSL"]])
def test_who_says_nothing_is_waited_for_as_long_as_a_step_may_take(options: list[str]) -> None:
    with serve(wait_for_end) as port:
        begun = now()
        outcome = tool("doctor", "-b", f"127.0.0.1:{port}", "--timeout", "2", *options)
        took = now() - begun
    assert outcome.code == 1
    assert 2 <= took < 30


@pytest.mark.parametrize(("api", "step"), [("FindCoordinator", "group")])
def test_what_a_step_does_shares_its_time(cluster: MockCluster, api: str, step: str) -> None:
    cluster.on(api, Delay(1.5), times=None)  # each question alone would be answered in time
    found = examined("-b", cluster.bootstrap, "--topic", "t", "--timeout", "2", healthy=False)
    assert steps(found)[step] == "fail"


def test_a_broker_that_answers_late_and_in_time_is_no_failure(cluster: MockCluster) -> None:
    cluster.on("ApiVersions", Delay(3), times=2)
    found = examined("-b", cluster.bootstrap, "--timeout", "5", healthy=True)
    assert steps(found)["versions"] == "ok"


def test_garbage_for_bootstrap_servers_is_one_line() -> None:
    failure(tool("doctor", "-b", "kafka:port"), "kafka:port", code=2)


def test_an_old_broker_is_examined_as_far_as_it_can_be() -> None:
    with MockCluster(versions="1.1", topics={"t": 1}) as cluster:
        found = examined("-b", cluster.bootstrap, "--topic", "t", healthy=True)
    assert steps(found)["produce"] == "skip"
    assert any("Kafka 1.1" in step["seen"] for step in found["steps"])
