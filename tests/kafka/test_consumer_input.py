"""What KafkaConsumer does with what it cannot use: an exception that names it, and nothing is lost by that (behaviours 276, 293, 298)."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from gkafka.kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaError, NoBrokersAvailable, UnknownTopicOrPartitionError
from gkafka.testing import MockCluster
from tests.kafka.conftest import Make
from tests.kafka.consuming import FIRST, GROUP, QUICK, committed, consume, joined, offsets, put
from tests.kit.ports import refused_port


@pytest.mark.parametrize(
    ("name", "near"), [("bootstrap_server", "bootstrap_servers"), ("auto_offset_rest", "auto_offset_reset"), ("groupid", "group_id")]
)
def test_an_unknown_option_is_refused_with_what_was_meant(consumer: Make, cluster: MockCluster, name: str, near: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=rf"KafkaConsumer\(\): there is no option '{name}'; did you mean '{near}'\?"):
        consumer(cluster, **{name: "x"})
    with pytest.raises(KafkaConfigurationError, match=r"no option 'zzz'$"):
        consumer(cluster, zzz=1)


@pytest.mark.parametrize(
    "servers", ["", "host:port", "a:1:2", ":9092", "x" * 300, [], [""], 5, None, b"h:1", {"h": 1}, [("h", 1)], "h:70000"]
)
def test_bootstrap_servers_that_are_none_are_refused(handler: str, servers: Any) -> None:
    with pytest.raises(KafkaError):
        KafkaConsumer(bootstrap_servers=servers, handler=handler, api_version_auto_timeout_ms=500)


@pytest.mark.parametrize(
    ("options", "longest"),
    [
        ({"session_timeout_ms": 30_000, "request_timeout_ms": 10_000}, "10000"),
        ({"request_timeout_ms": 10_000}, "10000"),
        ({"session_timeout_ms": 305_000, "max_poll_interval_ms": 400_000}, r"305000, the documented default of kafka-python 1\.4\.7"),
    ],
    ids=["both", "the request's", "the session's"],
)
def test_a_session_that_outlasts_a_request_is_refused_as_in_1_4(options: dict[str, int], longest: str, handler: str) -> None:
    given: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (2, 8), "handler": handler}
    with pytest.raises(KafkaConfigurationError, match=rf"session_timeout_ms=\d+ with request_timeout_ms={longest}: must be lower"):
        KafkaConsumer(**given, **options, group_id="g")
    KafkaConsumer(**given, **options).close()  # without a group there is no session


@pytest.mark.parametrize("options", [{"session_timeout_ms": 60_000}, {"session_timeout_ms": 30_000, "request_timeout_ms": 30_001}], ids=str)
def test_a_session_that_1_4_takes_is_taken(options: dict[str, int], handler: str) -> None:
    KafkaConsumer(bootstrap_servers="127.0.0.1:1", api_version=(2, 8), handler=handler, group_id="g", **options).close()


def test_without_a_broker_the_constructor_raises_no_brokers_available(handler: str) -> None:
    port = refused_port()
    with pytest.raises(NoBrokersAvailable, match=str(port)):
        KafkaConsumer("t", bootstrap_servers=f"127.0.0.1:{port}", handler=handler)


@pytest.mark.parametrize(
    "option",
    [
        {"key_deserializer": 5},
        {"value_deserializer": "utf-8"},
        {"max_poll_records": 0},
        {"max_poll_records": "5"},
        {"max_poll_records": True},
        {"consumer_timeout_ms": "x"},
        {"consumer_timeout_ms": float("nan")},
        {"consumer_timeout_ms": True},
        {"fetch_min_bytes": -1},
        {"fetch_max_wait_ms": -1},
        {"fetch_max_bytes": 0},
        {"max_partition_fetch_bytes": 0},
        {"request_timeout_ms": 0},
        {"request_timeout_ms": "1"},
        {"retry_backoff_ms": -1},
        {"reconnect_backoff_ms": -1},
        {"reconnect_backoff_max_ms": -1},
        {"metadata_max_age_ms": -1},
        {"api_version_auto_timeout_ms": -1},
        {"skip_double_compressed_messages": "yes"},
        {"isolation_level": "serializable"},
        {"security_protocol": "SSH"},
        {"check_crcs": "no"},
        {"exclude_internal_topics": "no"},
        {"enable_auto_commit": "no", "group_id": "g"},
        {"auto_commit_interval_ms": -1, "group_id": "g"},
        {"enable_auto_commit": 2, "group_id": "g"},
        {"session_timeout_ms": -5, "group_id": "g"},
        {"heartbeat_interval_ms": 0, "group_id": "g"},
        {"max_poll_interval_ms": 0, "group_id": "g"},
        {"group_id": 5},
        {"client_id": 5},
    ],
    ids=lambda option: "-".join(f"{name}={value!r}" for name, value in option.items()),
)
def test_a_value_that_an_option_cannot_have_is_refused_by_name(consumer: Make, cluster: MockCluster, option: dict[str, Any]) -> None:
    """kafka-python raises later, or not at all."""
    with pytest.raises(KafkaConfigurationError, match="=") as caught:
        consumer(cluster, "t", **option)
    assert str(caught.value).startswith(f"{next(iter(option))}=")


def test_subscribe_checks_its_arguments(consumer: Make, cluster: MockCluster) -> None:
    """Behaviour 298."""
    reading = consumer(cluster, **QUICK)
    with pytest.raises(AssertionError, match="either topics or a pattern"):
        reading.subscribe()
    with pytest.raises(AssertionError, match="either topics or a pattern"):
        reading.subscribe(["t"], pattern="t")
    for listener in (5, object(), lambda: None):
        with pytest.raises(TypeError, match="ConsumerRebalanceListener"):
            reading.subscribe(["t"], listener=listener)
    with pytest.raises(TypeError, match="topics='t'"):
        reading.subscribe("t")
    for topics in ([5], [""], ["a b"], [None]):
        with pytest.raises(KafkaConfigurationError):
            reading.subscribe(topics)
    with pytest.raises(AssertionError, match="pattern="):
        reading.subscribe(pattern="(")
    with pytest.raises(AssertionError, match="pattern="):
        reading.subscribe(pattern=b"x")
    assert (reading.subscription(), reading.assignment()) == (None, set())
    reading.subscribe(topics=("t",))
    with pytest.raises(AssertionError):
        reading.subscribe([], pattern=None)
    assert (reading.subscription(), reading.assignment()) == ({"t"}, {FIRST}), "what was wrong has changed nothing"


@pytest.mark.parametrize(
    "partitions", [None, 5, "t", [5], ["t"], [("t",)], [("t", "0")], [(5, 0)], FIRST, [("t", True)], [("t", -1)], {FIRST: 5}]
)
def test_assign_takes_partitions_only(consumer: Make, cluster: MockCluster, partitions: Any) -> None:
    reading = consumer(cluster, **QUICK)
    with pytest.raises((TypeError, ValueError)) as caught:
        reading.assign(partitions)
    assert isinstance(caught.value, KafkaError)
    assert reading.assignment() == set()
    reading.subscribe(["t"])


def test_assign_of_offsets_says_that_seek_takes_them(consumer: Make, cluster: MockCluster) -> None:
    reading = consumer(cluster, **QUICK)
    with pytest.raises(TypeError, match=r"an offset to begin at is what seek\(partition, offset\) takes"):
        reading.assign({FIRST: 5})


def test_an_unknown_topic_or_partition_is_told(consumer: Make, make_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.3)
    cluster = make_cluster(auto_create=False)
    reading = consumer(cluster, request_timeout_ms=20_000, **QUICK)
    with pytest.raises(KafkaError, match="no partition -1"):
        reading.assign([TopicPartition("t", -1)])
    reading.assign([TopicPartition("nope", 0), TopicPartition("t", 7)])  # read as soon as they are there, as in 1.4
    with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        reading.end_offsets([TopicPartition("nope", 0)])
    with pytest.raises(KafkaError):
        reading.end_offsets([TopicPartition("t", 7)])
    reading.unsubscribe()
    reading.assign([FIRST])
    assert reading.assignment() == {FIRST}


def test_without_a_group_commits_are_refused_by_both_names(consumer: Make, cluster: MockCluster) -> None:
    reading = consumer(cluster, "t", **QUICK)
    for call in (reading.commit, reading.commit_async, lambda: reading.committed(FIRST)):
        with pytest.raises(IllegalStateError, match="without a group: give group_id") as caught:
            call()
        assert isinstance(caught.value, AssertionError)  # which 1.4 raises


def test_iterating_with_nothing_to_read_is_told_and_does_not_wait_for_ever(consumer: Make, cluster: MockCluster) -> None:
    put(cluster, b"0", b"1")
    reading = consumer(cluster, **QUICK)

    def refused() -> None:
        for step in (lambda: next(reading), lambda: next(iter(reading)), lambda: list(reading)):
            with pytest.raises(IllegalStateError, match=r"nothing is read: call subscribe\(\) or assign\(\) first") as caught:
                step()
            assert isinstance(caught.value, AssertionError)

    refused()
    reading.assign([FIRST])
    assert next(reading).offset == 0
    reading.unsubscribe()
    refused()
    reading.subscribe(["t"])
    assert next(reading).value == b"0"
    reading.close()
    assert list(reading) == []


@pytest.mark.parametrize("timeout_ms", [-1, "1", None, True, float("nan")])
def test_poll_refuses_a_timeout_that_is_none(consumer: Make, cluster: MockCluster, timeout_ms: Any) -> None:
    """Behaviour 293."""
    put(cluster, b"0")
    reading = consumer(cluster, "t", **QUICK)
    with pytest.raises(AssertionError, match="timeout_ms=") as caught:
        reading.poll(timeout_ms)
    assert isinstance(caught.value, ValueError)
    assert offsets(consume(reading, 1)) == [(0, 0)]


@pytest.mark.parametrize("timeout_ms", [-1, "1", float("nan")])
def test_timeouts_that_are_none_are_refused(consumer: Make, cluster: MockCluster, timeout_ms: Any) -> None:
    put(cluster, b"0")
    reading = consumer(cluster, "t", **GROUP)
    consume(reading, 1)
    one = {FIRST: OffsetAndMetadata(0, "")}
    for call in (reading.commit, reading.close):
        with pytest.raises(ValueError, match="timeout_ms="):
            call(timeout_ms=timeout_ms)
    for ask in (reading.position, reading.committed):
        with pytest.raises(ValueError, match="timeout_ms="):
            ask(FIRST, timeout_ms=timeout_ms)
    reading.commit(one, timeout_ms=60_000)
    assert reading.committed(FIRST) == 0
    reading.close()
    assert committed(cluster) == {0: 1}


@pytest.mark.parametrize(("max_records", "error"), [(0, AssertionError), (-1, AssertionError), ("5", TypeError), (1.5, TypeError)])
def test_poll_refuses_a_number_of_records_that_is_none(consumer: Make, cluster: MockCluster, max_records: Any, error: type) -> None:
    """Behaviour 293."""
    put(cluster, b"0")
    reading = consumer(cluster, "t", **QUICK)
    with pytest.raises(error, match="max_records="):
        reading.poll(100, max_records)
    assert offsets(consume(reading, 1)) == [(0, 0)]


CALLS: dict[str, tuple[Any, ...]] = {
    "poll": (0,),
    "subscribe": (["t"],),
    "assign": ([FIRST],),
    "unsubscribe": (),
    "commit": (),
    "commit_async": (),
    "committed": (FIRST,),
    "position": (FIRST,),
    "highwater": (FIRST,),
    "seek": (FIRST, 0),
    "seek_to_beginning": (FIRST,),
    "seek_to_end": (FIRST,),
    "pause": (FIRST,),
    "resume": (FIRST,),
    "beginning_offsets": ([FIRST],),
    "end_offsets": ([FIRST],),
    "offsets_for_times": ({FIRST: 0},),
    "topics": (),
    "partitions_for_topic": ("t",),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_consumer_says_so(consumer: Make, cluster: MockCluster, call: str) -> None:
    reading = consumer(cluster, "t", group_id="g", **QUICK)
    reading.close()
    with pytest.raises(IllegalStateError, match="closed"):
        getattr(reading, call)(*CALLS[call])
    with pytest.raises(StopIteration):
        next(reading)
    assert (reading.assignment(), reading.paused()) == (set(), set())


@pytest.mark.parametrize(
    "given",
    [
        5,
        [FIRST],
        {FIRST: 5},
        {FIRST: (5,)},
        {FIRST: OffsetAndMetadata("5", "")},  # type: ignore[arg-type]
        {FIRST: OffsetAndMetadata(5, b"")},  # type: ignore[arg-type]
        {"t": OffsetAndMetadata(5, "")},
        {FIRST: OffsetAndMetadata(-1, "")},
    ],
)
def test_commit_takes_offsets_with_texts_only(consumer: Make, cluster: MockCluster, given: Any) -> None:
    reading = joined(consumer(cluster, "t", **GROUP, enable_auto_commit=False))
    for call in (reading.commit, reading.commit_async):
        with pytest.raises((TypeError, ValueError)) as caught:
            call(given)
        assert isinstance(caught.value, KafkaError)
    assert cluster.count("OffsetCommit") == 0


def test_commit_async_takes_a_callable_only(consumer: Make, cluster: MockCluster) -> None:
    reading = joined(consumer(cluster, "t", **GROUP))
    with pytest.raises(TypeError, match="callback=5"):
        reading.commit_async({FIRST: OffsetAndMetadata(0, "")}, 5)


@pytest.mark.parametrize("timestamps", [None, [FIRST], {FIRST: "0"}, {FIRST: None}, {"t": 0}])
def test_offsets_for_times_takes_milliseconds_only(consumer: Make, cluster: MockCluster, timestamps: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        consumer(cluster).offsets_for_times(timestamps)
    assert isinstance(caught.value, KafkaError)


@pytest.mark.parametrize("metadata", ["\ud800", "x" * 40_000])
def test_a_text_that_no_request_can_hold_is_refused_where_it_is_given(consumer: Make, cluster: MockCluster, metadata: str) -> None:
    """A request carries the commits of several callers: one text failed all of them."""
    reading = consumer(cluster, "t", **GROUP)
    with pytest.raises(KafkaConfigurationError, match=r"^offsets\[.*\]\.metadata="):
        reading.commit({FIRST: OffsetAndMetadata(1, metadata)})
