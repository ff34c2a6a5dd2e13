"""Every option of KafkaConsumer has the documented meaning, unit and default, or is refused (behaviours 242-273)."""

from __future__ import annotations

import ast
import contextlib
import os
import socket
import stat
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gkafka
from gkafka.core.backoff import Backoff
from gkafka.kafka import KafkaConsumer, TopicPartition
from gkafka.kafka.errors import (
    CorruptRecordError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    OffsetOutOfRangeError,
)
from gkafka.testing import Delay, Drop, Error, MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, consume, joined, last, offsets, put, until
from tests.kit.clock import now
from tests.kit.ports import refused_port
from tests.net.channel_peers import Pipelined
from tests.net.proxies import FakeProxy, running
from tests.net.servers import serve
from tests.public.aids import Runner
from tests.records.handmade import batch, record

HERE = Path(__file__).parent
TLS = "test_consumer_tls.py"
SASL = "test_consumer_sasl.py"
GROUPS = "test_consumer_groups.py"
METRICS = "test_metric_reporters.py"
SELECTOR = "test_selector.py"
NAMED = "test_told_names.py"
SELF = "test_consumer_options.py"
BASICS = "test_consumer.py"
OBSERVED = {
    "bootstrap_servers": (SELF, "test_bootstrap_servers_is_a_string_or_a_list_of_which_one_is_enough"),
    "client_id": (SELF, "test_client_id_goes_with_each_request_and_to_the_group"),
    "request_timeout_ms": (SELF, "test_request_timeout_ms_bounds_an_answer_and_a_call"),
    "retry_backoff_ms": (SELF, "test_retry_backoff_ms_is_the_pause_after_an_error"),
    "reconnect_backoff_ms": (SELF, "test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms"),
    "reconnect_backoff_max_ms": (SELF, "test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms"),
    "max_in_flight_requests_per_connection": (
        SELF,
        "test_max_in_flight_requests_per_connection_bounds_what_a_connection_has_under_way",
    ),
    "metadata_max_age_ms": (SELF, "test_metadata_max_age_ms_finds_new_partitions"),
    "receive_buffer_bytes": (SELF, "test_socket_options_and_the_sizes_of_buffers_are_those_of_the_sockets"),
    "send_buffer_bytes": (SELF, "test_socket_options_and_the_sizes_of_buffers_are_those_of_the_sockets"),
    "socket_options": (SELF, "test_socket_options_and_the_sizes_of_buffers_are_those_of_the_sockets"),
    "security_protocol": (TLS, "test_security_protocol_ssl_encrypts_and_checks_the_certificate"),
    "ssl_context": (TLS, "test_ssl_context_makes_the_other_ssl_options_void"),
    "ssl_check_hostname": (TLS, "test_ssl_check_hostname_compares_the_name"),
    "ssl_cafile": (TLS, "test_security_protocol_ssl_encrypts_and_checks_the_certificate"),
    "ssl_certfile": (TLS, "test_ssl_certfile_keyfile_and_password_are_the_clients_certificate"),
    "ssl_keyfile": (TLS, "test_ssl_certfile_keyfile_and_password_are_the_clients_certificate"),
    "ssl_password": (TLS, "test_ssl_certfile_keyfile_and_password_are_the_clients_certificate"),
    "ssl_crlfile": (TLS, "test_ssl_crlfile_refuses_what_was_revoked"),
    "ssl_ciphers": (TLS, "test_ssl_ciphers_are_those_that_are_offered"),
    "tls_verify": (TLS, "test_tls_verify_false_checks_nothing"),
    "allow_unverified_tls": (TLS, "test_ssl_check_hostname_compares_the_name"),
    "sasl_mechanism": (SASL, "test_sasl_mechanism_and_the_name_and_password_let_in"),
    "sasl_plain_username": (SASL, "test_sasl_mechanism_and_the_name_and_password_let_in"),
    "sasl_plain_password": (SASL, "test_sasl_mechanism_and_the_name_and_password_let_in"),
    "sasl_kerberos_service_name": (SASL, "test_sasl_options_that_could_have_no_effect_are_refused"),
    "sasl_kerberos_domain_name": (SASL, "test_sasl_options_that_could_have_no_effect_are_refused"),
    "sasl_oauth_token_provider": (SASL, "test_sasl_oauth_token_provider_gives_the_token"),
    "sasl_oauth_extensions": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_token_endpoint_url": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_client_id": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_client_secret": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_scope": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_audience": (SASL, "test_a_sidecar_gives_tokens_by_http_and_is_asked_as_it_wants"),
    "sasl_oauth_form_fields": (SASL, "test_a_sidecar_gives_tokens_by_http_and_is_asked_as_it_wants"),
    "sasl_oauth_client_auth": (SASL, "test_a_sidecar_gives_tokens_by_http_and_is_asked_as_it_wants"),
    "sasl_oauth_cafile": (SASL, "test_tokens_may_come_from_an_endpoint"),
    "sasl_oauth_proxy_url": (SASL, "test_http_and_a_proxy_to_an_endpoint_elsewhere"),
    "sasl_oauth_allow_http": (SASL, "test_http_and_a_proxy_to_an_endpoint_elsewhere"),
    "sasl_retry_timeout_ms": (SASL, "test_sasl_retry_timeout_ms_is_how_long_a_refusal_is_not_believed"),
    "sasl_aws_region": (SASL, "test_sasl_aws_region_is_what_amazons_signer_signs_for"),
    "sasl_aws_profile": (SASL, "test_sasl_aws_profile_or_role_says_as_whom_amazons_signer_signs"),
    "sasl_aws_role_arn": (SASL, "test_sasl_aws_profile_or_role_says_as_whom_amazons_signer_signs"),
    "sasl_aws_role_session_name": (SASL, "test_sasl_aws_profile_or_role_says_as_whom_amazons_signer_signs"),
    "allow_plaintext_credentials": (SASL, "test_allow_plaintext_credentials_is_the_word_that_a_password_in_clear_text_takes"),
    "api_version": (SELF, "test_api_version_is_taken_at_its_word_or_found_out"),
    "api_version_auto_timeout_ms": (SELF, "test_api_version_auto_timeout_ms_bounds_the_constructor"),
    "metric_reporters": (METRICS, "test_reporters_are_told_of_metrics_as_they_come_and_go"),
    "metrics_num_samples": (METRICS, "test_metrics_num_samples_windows_are_what_rates_are_of"),
    "metrics_sample_window_ms": (METRICS, "test_metrics_num_samples_windows_are_what_rates_are_of"),
    "receive_message_max_bytes": (NAMED, "test_a_record_that_no_answer_can_hold_names_receive_message_max_bytes"),
    "selector": (SELECTOR, "test_a_selector_of_the_applications_own_does_the_waiting"),
    "allow_auto_create_topics": (SELF, "test_allow_auto_create_topics_lets_a_subscription_make_its_topic"),
    "proxy_url": (SELF, "test_proxy_url_is_the_way_to_the_brokers"),
    "handler": (SELF, "test_handler_is_the_way_of_concurrency"),
    "group_id": (GROUPS, "test_group_id_joins_and_shares"),
    "group_instance_id": (GROUPS, "test_group_instance_id_makes_a_static_member"),
    "key_deserializer": (BASICS, "test_values_and_keys_go_through_the_deserializers"),
    "value_deserializer": (BASICS, "test_values_and_keys_go_through_the_deserializers"),
    "fetch_min_bytes": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "fetch_max_wait_ms": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "fetch_max_bytes": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "max_partition_fetch_bytes": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "auto_offset_reset": (SELF, "test_auto_offset_reset_says_where_to_go_from_an_offset_that_is_out_of_range"),
    "enable_auto_commit": (GROUPS, "test_enable_auto_commit_commits_in_the_background_and_at_the_end"),
    "auto_commit_interval_ms": (GROUPS, "test_auto_commit_interval_ms_is_the_time_between_commits"),
    "default_offset_commit_callback": (GROUPS, "test_default_offset_commit_callback_is_told_of_commits"),
    "check_crcs": (SELF, "test_check_crcs_finds_what_is_damaged"),
    "isolation_level": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "client_rack": (SELF, "test_options_of_fetches_arrive_at_the_broker"),
    "partition_assignment_strategy": (GROUPS, "test_partition_assignment_strategy_is_what_the_member_offers"),
    "max_poll_records": (SELF, "test_max_poll_records_bounds_one_poll"),
    "consume_max_bytes": (SELF, "test_consume_max_bytes_bounds_one_poll"),
    "max_poll_interval_ms": (GROUPS, "test_max_poll_interval_ms_without_a_poll_costs_the_membership"),
    "session_timeout_ms": (GROUPS, "test_options_of_members_arrive_at_the_coordinator"),
    "heartbeat_interval_ms": (GROUPS, "test_heartbeat_interval_ms_is_the_time_between_heartbeats"),
    "consumer_timeout_ms": (BASICS, "test_consumer_timeout_ms_ends_iteration_and_it_may_begin_again"),
    "skip_double_compressed_messages": (
        "test_consumer_double_compression.py",
        "test_double_compressed_messages_are_skipped_with_a_warning",
    ),
    "exclude_internal_topics": (SELF, "test_internal_topics_match_no_pattern_unless_they_may"),
}


def test_for_every_option_a_test_is_named_that_observes_it() -> None:
    assert set(OBSERVED) == set(KafkaConsumer.DEFAULT_CONFIG)
    for option, (file, test) in OBSERVED.items():
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
        assert option in ast.unparse(found), f"{test} says nothing of {option}"


# -- brokers ---------------------------------------------------------------------------------------------------------------
def test_bootstrap_servers_is_a_string_or_a_list_of_which_one_is_enough(consumer: Make, cluster: MockCluster, handler: str) -> None:
    """Behaviour 242."""
    dead = f"127.0.0.1:{refused_port()}"
    for servers in (cluster.bootstrap, [cluster.bootstrap], [dead, cluster.bootstrap], (cluster.bootstrap,), f"{dead},{cluster.bootstrap}"):
        assert consumer(cluster, bootstrap_servers=servers).topics() == {"t"}
    with pytest.raises(NoBrokersAvailable, match=r"127\.9\.9\.9:9092"):
        KafkaConsumer(bootstrap_servers="127.9.9.9", handler=handler, api_version_auto_timeout_ms=500)
    assert KafkaConsumer.DEFAULT_CONFIG["bootstrap_servers"] == "localhost"


def test_client_id_goes_with_each_request_and_to_the_group(handler: str, consumer: Make, make_cluster: Make) -> None:
    """Behaviour 243."""
    for given, shown in (({"client_id": "mine"}, "mine"), ({}, f"kafka-python-{gkafka.__version__}")):
        cluster = make_cluster()
        joined(consumer(cluster, "t", **GROUP, **given)).poll(100)
        until(handler, lambda cluster=cluster: {r.api for r in cluster.requests()} > {"Metadata", "JoinGroup", "Fetch"})
        assert {r.client_id for r in cluster.requests()} == {shown}
        (member,) = cluster.group("g").members.values()
        assert member.client_id == shown


def test_without_group_id_there_is_no_group_and_no_commit(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 244."""
    put(cluster, b"a")
    reading = consumer(cluster, "t", auto_commit_interval_ms=10, **QUICK)
    assert reading.config["group_id"] is None
    consume(reading, 1)
    reading.poll(100)
    reading.close()
    assert {r.api for r in cluster.requests()}.isdisjoint({"FindCoordinator", "JoinGroup", "OffsetCommit", "OffsetFetch"})


def test_options_of_groups_without_group_id_are_told_to_do_nothing(handler: str, caplog: pytest.LogCaptureFixture) -> None:
    quiet: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (2, 8), "handler": handler}
    idle = {"session_timeout_ms": 6000, "max_poll_interval_ms": 9000, "auto_commit_interval_ms": 1, "enable_auto_commit": True}
    KafkaConsumer(**quiet, **idle).close()
    (said,) = caplog.messages
    assert said == f"KafkaConsumer(): {', '.join(idle)}: without a group_id this does nothing; give one, or leave it out"
    caplog.clear()
    KafkaConsumer(**quiet, **idle, group_id="g").close()
    KafkaConsumer(**quiet, enable_auto_commit=False).close()
    assert caplog.messages == []
    with pytest.raises(KafkaConfigurationError, match="session_timeout_ms=-1"):
        KafkaConsumer(**quiet, session_timeout_ms=-1)


def test_request_timeout_ms_bounds_an_answer_and_a_call(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 249, 280."""
    assert KafkaConsumer.DEFAULT_CONFIG["request_timeout_ms"] == 40000
    reading = consumer(cluster, request_timeout_ms=1200, **QUICK)
    reading.topics()
    cluster.on("ListOffsets", Drop(), times=None)
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        reading.end_offsets([FIRST])
    assert 1.1 <= now() - begun < 30
    cluster.clear_script()
    put(cluster, b"late")
    cluster.on("Fetch", Drop())
    begun = now()
    reading.assign([FIRST])
    assert consume(reading, 1)[0].value == b"late"
    assert 1.1 <= now() - begun < 30


@pytest.mark.parametrize("pause_ms", [100, 500])
def test_retry_backoff_ms_is_the_pause_after_an_error(consumer: Make, cluster: MockCluster, pause_ms: int) -> None:
    """Behaviour 250."""
    assert KafkaConsumer.DEFAULT_CONFIG["retry_backoff_ms"] == 100
    put(cluster, b"a")
    cluster.on("Fetch", Error(56))
    consume(consumer(cluster, "t", **{**QUICK, "retry_backoff_ms": pause_ms}), 1)
    first, second = cluster.requests("Fetch")[:2]
    assert pause_ms * 0.7 <= (second.time - first.time) * 1000


@pytest.mark.parametrize(("base", "limit"), [(10, 10), (200, 200), (200, 2000)])
def test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms(
    consumer: Make, cluster: MockCluster, handler: str, monkeypatch: pytest.MonkeyPatch, base: int, limit: int
) -> None:
    """Behaviours 251, 252: by the pauses that are asked for."""
    pauses: list[float] = []
    pause_s = Backoff.pause_s

    def paused(self: Backoff, failures: int, chance: Random) -> float:
        pause = pause_s(self, failures, chance)
        if self == (base / 1000, limit / 1000):
            pauses.append(1000 * pause)
        return pause

    monkeypatch.setattr(Backoff, "pause_s", paused)
    assert KafkaConsumer.DEFAULT_CONFIG["reconnect_backoff_ms"] == 50
    assert KafkaConsumer.DEFAULT_CONFIG["reconnect_backoff_max_ms"] == 1000
    reading = consumer(cluster, "t", **QUICK, reconnect_backoff_ms=base, reconnect_backoff_max_ms=limit)
    reading.poll(50)
    port = cluster.brokers[1][1]
    cluster.stop_broker(1)
    begun, tries = now(), 0
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.setblocking(False)

        def refuse() -> bool:
            nonlocal tries
            with contextlib.suppress(BlockingIOError):
                while True:
                    conn, _ = listener.accept()
                    tries += 1
                    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    conn.close()
            return tries >= 3 and len(pauses) >= 4

        until(handler, refuse)
    assert now() - begun >= base * 0.8 / 1000
    assert base * 0.8 <= min(pauses)
    assert max(pauses) <= limit * 1.2
    assert (max(pauses) > base * 1.2) == (limit > base), pauses


@pytest.mark.parametrize(("bound", "most"), [(1, 1), (3, 3), (None, 5)])
def test_max_in_flight_requests_per_connection_bounds_what_a_connection_has_under_way(
    consumer: Make, handler: str, cluster: MockCluster, bound: int | None, most: int
) -> None:
    """Behaviour 253: pipelined up to so many, and no more."""
    reading = consumer(cluster, "t", **QUICK, **({} if bound is None else {"max_in_flight_requests_per_connection": bound}))
    put(cluster, b"x")
    seen = Pipelined(0.15, most)
    cluster.on("ListOffsets", seen, times=None)
    asked = [Runner(handler).aside(reading.end_offsets, [FIRST]) for _ in range(8)]
    assert [one.result() for one in asked] == [{FIRST: 1}] * 8
    assert seen.most == most
    with pytest.raises(KafkaConfigurationError, match="max_in_flight_requests_per_connection=0"):
        consumer(cluster, max_in_flight_requests_per_connection=0)


def test_brokers_are_fetched_from_in_parallel(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 248."""
    cluster = make_cluster(2, {"t": 2})
    slow, quick = cluster.leader("t", 0), cluster.leader("t", 1)
    assert slow != quick
    put(cluster, b"slow")
    put(cluster, b"quick", partition=1)
    cluster.on("Fetch", Delay(3600), times=None, broker=slow)
    reading = consumer(cluster, "t", **QUICK)
    assert [r.value for r in consume(reading, 1)] == [b"quick"]
    until("threading", lambda: reading.poll(50) == {} and {r.broker for r in cluster.requests("Fetch")} == {slow, quick})
    put(cluster, b"again", partition=1)
    assert [r.value for r in consume(reading, 1)] == [b"again"]


def test_a_broker_that_fails_and_partitions_that_move_are_followed(consumer: Make, producer: Make, make_cluster: Make) -> None:
    """Behaviour 275."""
    cluster = make_cluster(2, {"t": 1}, replication_factor=2)
    reading, writing = consumer(cluster, "t", **QUICK), producer(cluster, retries=5)
    writing.send("t", b"0").get(60)
    assert offsets(consume(reading, 1)) == [(0, 0)]
    cluster.stop_broker(cluster.leader("t", 0))
    writing.send("t", b"1").get(60)
    assert offsets(consume(reading, 1)) == [(0, 1)]
    cluster.start_broker(1)
    cluster.start_broker(2)
    cluster.move_leader("t", 0, 3 - cluster.leader("t", 0))
    writing.send("t", b"2").get(60)
    assert offsets(consume(reading, 1)) == [(0, 2)]


@pytest.mark.parametrize("age_ms", [0, 10])
def test_metadata_max_age_ms_below_what_there_is_counts_as_that(consumer: Make, cluster: MockCluster, age_ms: int) -> None:
    reading = consumer(cluster, "t", metadata_max_age_ms=age_ms, **QUICK)
    reading.poll(50)
    cluster.add_partitions("t", 2)
    put(cluster, b"new", partition=1)
    assert consume(reading, 1)[0].partition == 1


def test_metadata_max_age_ms_finds_new_partitions(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 258, 275."""
    assert KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] == 300000
    reading = consumer(cluster, "t", metadata_max_age_ms=150, **QUICK)
    reading.poll(50)
    cluster.add_partitions("t", 2)
    put(cluster, b"new", partition=1)
    assert consume(reading, 1)[0].partition == 1
    assert reading.assignment() == {FIRST, TopicPartition("t", 1)}


def test_socket_options_and_the_sizes_of_buffers_are_those_of_the_sockets(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 264."""

    def told(level: int, option: int) -> set[int]:
        return {one.getsockopt(level, option) for one in kept if _peer(one) == ("127.0.0.1", cluster.brokers[1][1])}

    with contextlib.ExitStack() as kept_open:
        reading = consumer(cluster, "t", **QUICK)
        assert reading.config["socket_options"] == [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        kept = _copies(kept_open)
        assert told(socket.IPPROTO_TCP, socket.TCP_NODELAY) == {1}
        assert told(socket.SOL_SOCKET, socket.SO_PRIORITY) == {0}
        reading.close()
    with contextlib.ExitStack() as kept_open:
        more = [(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)]
        consumer(cluster, "t", receive_buffer_bytes=20_000, send_buffer_bytes=30_000, socket_options=more, **QUICK).poll(100)
        kept = _copies(kept_open)
        assert told(socket.SOL_SOCKET, socket.SO_RCVBUF) == {40_000}, "Linux doubles what it is told"
        assert told(socket.SOL_SOCKET, socket.SO_SNDBUF) == {60_000}
        assert told(socket.SOL_SOCKET, socket.SO_PRIORITY) == {3}


def _copies(stack: contextlib.ExitStack) -> list[socket.socket]:
    """Of all sockets of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(stack.enter_context(socket.socket(fileno=os.dup(int(name)))))
    return found


def _peer(one: socket.socket) -> Any:
    try:
        return one.getpeername()
    except OSError:
        return None


@pytest.mark.parametrize(
    "option",
    [{"receive_buffer_bytes": 0}, {"send_buffer_bytes": "1"}, {"socket_options": 5}, {"socket_options": [(1, 2)]}],
    ids=lambda option: next(iter(option)),
)
def test_socket_options_that_are_none_are_refused(consumer: Make, cluster: MockCluster, option: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError, match=next(iter(option))):
        consumer(cluster, **option)


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0", "0.10.2", "2.8", None])
def test_api_version_is_taken_at_its_word_or_found_out(consumer: Make, make_cluster: Make, release: str | None) -> None:
    """Behaviours 221, 270."""
    cluster = make_cluster(versions=release)
    reading = consumer(cluster, api_version_auto_timeout_ms=20_000, **QUICK)
    assert reading.config["api_version"] is None
    reading.assign([FIRST])
    assert reading.beginning_offsets([FIRST]) == {FIRST: 0}
    newest = last(cluster, "ListOffsets").version
    assert (newest == 0) == (release in ("0.8.2", "0.9.0")), "found out"
    for version in ((0, 8, 2), (0, 9), (0, 9, 0)):
        cluster = make_cluster(versions=release)
        told = consumer(cluster, api_version=version, **QUICK)
        assert told.beginning_offsets([FIRST]) == {FIRST: 0}
        assert (cluster.count("ApiVersions"), last(cluster, "ListOffsets").version) == (0, 0), "taken at its word"


def test_with_api_version_the_constructor_asks_no_broker(handler: str) -> None:
    """Behaviour 270: "If None, the client will attempt to infer the broker version by probing"."""
    nobody = {"bootstrap_servers": f"127.0.0.1:{refused_port()}", "handler": handler, "api_version_auto_timeout_ms": 300}
    for version in ((0, 9), (2, 8)):
        KafkaConsumer(api_version=version, **nobody).close()
    with pytest.raises(NoBrokersAvailable):
        KafkaConsumer(api_version=None, **nobody)


def test_api_version_auto_timeout_ms_bounds_the_constructor(handler: str) -> None:
    """Behaviour 271."""
    assert KafkaConsumer.DEFAULT_CONFIG["api_version_auto_timeout_ms"] == 2000

    def silent(conn: socket.socket) -> None:
        while conn.recv(1000):
            pass

    with serve(silent) as port:
        begun = now()
        with pytest.raises(NoBrokersAvailable) as caught:
            KafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{port}", api_version_auto_timeout_ms=300, handler=handler)
        assert isinstance(caught.value, KafkaTimeoutError), "documented: throw a timeout exception from the constructor"
        assert 0.25 <= now() - begun < 30


def test_allow_auto_create_topics_lets_a_subscription_make_its_topic(
    consumer: Make, make_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(topics={})
    assert KafkaConsumer.DEFAULT_CONFIG["allow_auto_create_topics"] is True
    with monkeypatch.context() as patch:
        patch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.3)
        assert consumer(cluster).partitions_for_topic("new") == set()
        assert consumer(cluster, "new", allow_auto_create_topics=False).poll(1200) == {}
        assert consumer(cluster).topics() == set()
    consumer(cluster, "new", allow_auto_create_topics=True)
    assert consumer(cluster).topics() == {"new"}


@pytest.mark.parametrize("kind", ["socks5", "http"])
def test_proxy_url_is_the_way_to_the_brokers(consumer: Make, cluster: MockCluster, kind: str) -> None:
    proxy = FakeProxy()
    with running(proxy, kind) as port:
        reading = consumer(cluster, proxy_url=f"{kind}://127.0.0.1:{port}")
        assert reading.topics() == {"t"}
        assert ("127.0.0.1", cluster.brokers[1][1]) in proxy.asked
        reading.close()


def test_handler_is_the_way_of_concurrency(consumer: Make, cluster: MockCluster, handler: str) -> None:
    reading = consumer(cluster, "t", handler=handler)
    (one,) = {worker.handler.name if hasattr(worker, "handler") else handler for worker in reading._client.handler.workers()}
    assert one == handler
    assert reading._client.handler.name == handler
    with pytest.raises(KafkaConfigurationError, match="handler"):
        consumer(cluster, handler="twisted")


# -- fetches ---------------------------------------------------------------------------------------------------------------
def test_options_of_fetches_arrive_at_the_broker(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 245, 246, 247."""

    def asked(**options: Any) -> dict[str, Any]:
        before = cluster.count("Fetch")
        reading = consumer(cluster, "t", client_id=f"from {before}", **options)  # of the consumer before a request may still arrive
        while not (mine := [r.message for r in cluster.requests("Fetch") if r.client_id == f"from {before}"]):
            reading.poll(20)
        message = mine[0]
        reading.close()
        return {
            "fetch_max_wait_ms": message.max_wait_ms,
            "fetch_min_bytes": message.min_bytes,
            "fetch_max_bytes": message.max_bytes,
            "max_partition_fetch_bytes": message.topics[0].partitions[0].partition_max_bytes,
            "isolation_level": message.isolation_level,
            "client_rack": message.rack_id,
        }

    assert asked() == {
        "fetch_max_wait_ms": 500,
        "fetch_min_bytes": 1,
        "fetch_max_bytes": 52428800,
        "max_partition_fetch_bytes": 1048576,
        "isolation_level": 0,
        "client_rack": "",
    }
    given = {"fetch_max_wait_ms": 70, "fetch_min_bytes": 9, "fetch_max_bytes": 4000, "max_partition_fetch_bytes": 3000, "client_rack": "r1"}
    assert asked(**given, isolation_level="read_committed") == {**given, "isolation_level": 1}


def test_fetch_min_bytes_is_waited_for_no_longer_than_fetch_max_wait_ms(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 245."""
    put(cluster, b"little")
    reading = consumer(cluster, "t", auto_offset_reset="earliest", fetch_min_bytes=100_000, fetch_max_wait_ms=400)
    begun = now()
    consume(reading, 1)
    assert now() - begun >= 0.35


def test_a_first_message_over_every_limit_is_returned(consumer: Make, cluster: MockCluster) -> None:
    """Behaviours 246, 247."""
    put(cluster, b"x" * 50_000)
    put(cluster, b"y" * 50_000)
    reading = consumer(cluster, "t", fetch_max_bytes=1000, max_partition_fetch_bytes=1000, **QUICK)
    assert [len(r.value) for r in consume(reading, 2)] == [50_000, 50_000]


@pytest.mark.parametrize(("policy", "then"), [("earliest", 5), ("smallest", 5), ("latest", 10), ("largest", 10), (None, 10)])
def test_auto_offset_reset_says_where_to_go_from_an_offset_that_is_out_of_range(
    consumer: Make, cluster: MockCluster, policy: str | None, then: int
) -> None:
    """Behaviour 254."""
    put(cluster, *[b"x"] * 5)
    put(cluster, *[b"x"] * 5)
    cluster.delete_records("t", 0, 5)
    reading = consumer(cluster, **{**QUICK, "auto_offset_reset": policy} if policy else {"fetch_max_wait_ms": 50})
    reading.assign([FIRST])
    reading.seek(FIRST, 2)
    until("threading", lambda: reading.poll(20) or reading.position(FIRST) == then)
    put(cluster, b"new")
    assert consume(reading, 1)
    assert reading.config["auto_offset_reset"] == (policy or "latest")


def test_auto_offset_reset_of_any_other_value_raises(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 254."""
    put(cluster, *[b"x"] * 5)
    put(cluster, *[b"x"] * 5)
    cluster.delete_records("t", 0, 5)
    reading = consumer(cluster, **{**QUICK, "auto_offset_reset": "none"})
    reading.assign([FIRST])
    reading.seek(FIRST, 2)
    with pytest.raises(OffsetOutOfRangeError, match="t-0"):
        until("threading", lambda: reading.poll(100))
    reading.seek(FIRST, 7)
    assert offsets(consume(reading, 1)) == [(0, 7)]


def test_check_crcs_finds_what_is_damaged(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 257."""
    put(cluster, b"good")
    bad = bytearray(batch([record(0, b"value")], base_offset=1))
    bad[bad.index(b"value")] ^= 1
    cluster.append("t", 0, bytes(bad))
    assert KafkaConsumer.DEFAULT_CONFIG["check_crcs"] is True
    careful = consumer(cluster, "t", **QUICK)
    assert consume(careful, 1)[0].value == b"good"
    with pytest.raises(CorruptRecordError, match=r"t\[0\] offset 1"):
        until("threading", lambda: careful.poll(100))
    assert careful.position(FIRST) == 1
    assert [r.value for r in consume(consumer(cluster, "t", check_crcs=False, **QUICK), 2)] == [b"good", b"walue"]


def test_consume_max_bytes_bounds_one_poll(consumer: Make, cluster: MockCluster) -> None:
    put(cluster, *[bytes(1000)] * 6)
    reading = consumer(cluster, "t", auto_offset_reset="earliest", consume_max_bytes=2500)
    counts: list[int] = []
    while sum(counts) < 6:
        counts += [len(records) for records in reading.poll(1000).values()]
    assert max(counts) <= 2


def test_max_poll_records_bounds_one_poll(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 260."""
    put(cluster, *[b"x"] * 1200)
    reading = consumer(cluster, "t", **QUICK)
    assert [sum(map(len, reading.poll(5000).values())) for _ in range(3)] == [500, 500, 200]
    few = consumer(cluster, "t", max_poll_records=7, **QUICK)
    assert len(few.poll(5000)[FIRST]) == 7
    assert len(few.poll(5000, max_records=9)[FIRST]) == 9


def test_internal_topics_match_no_pattern_unless_they_may(consumer: Make, make_cluster: Make) -> None:
    """Behaviour 273."""
    cluster = make_cluster(topics={"t": 1, "__consumer_offsets": 1})
    put(cluster, b"inside", topic="__consumer_offsets")
    assert KafkaConsumer.DEFAULT_CONFIG["exclude_internal_topics"] is True
    for exclude, matched in ((True, {"t"}), (False, {"t", "__consumer_offsets"})):
        reading = consumer(cluster, exclude_internal_topics=exclude, **QUICK)
        reading.subscribe(pattern=".*")
        assert {tp.topic for tp in reading.assignment()} == matched
        assert reading.subscription() == matched
    named = consumer(cluster, "__consumer_offsets", exclude_internal_topics=True, **QUICK)
    assert consume(named, 1)[0].value == b"inside"
