"""What a Spark task writes, on brokers in this process: rows and their places, errors, and exactly once whatever is lost on the way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from gkafka.exceptions import (
    ConfigurationError,
    FencedError,
    InvalidRecord,
    KafkaException,
    KafkaTimeoutError,
    RecordTooLarge,
    SerializationError,
)
from gkafka.records import murmur2
from gkafka.spark import exactlyonce
from gkafka.spark.connections import connected
from gkafka.spark.exactlyonce import RowsChangedError, Task, read_mark, write_once
from gkafka.spark.sinkoptions import SinkOptions, parse_sink
from gkafka.spark.sinktask import Tally, write_plainly
from gkafka.testing import Close, Drop, Error, MockCluster
from tests.kit.clock import PATIENCE_S, now
from tests.kit.refusing import Refuse

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOT_LEADER, TOO_LARGE, DENIED = 6, 10, 29


@pytest.fixture
def options(cluster: MockCluster) -> Callable[..., SinkOptions]:
    """A name's "__" stands for a dot."""

    def make(**more: str) -> SinkOptions:
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.linger.ms": "0",
            "kafka.retry.backoff.ms": "5",
            "kafka.retry.backoff.max.ms": "20",
        }
        return parse_sink({**given, **{name.replace("__", "."): value for name, value in more.items()}})

    return make


def batch(**columns: Any) -> pa.RecordBatch:
    kinds = {"key": pa.string(), "value": pa.string(), "topic": pa.string(), "partition": pa.int32(), "headers": HEADERS}
    return pa.RecordBatch.from_arrays([pa.array(v, kinds[n]) for n, v in columns.items()], list(columns))


def numbered(first: int, count: int) -> pa.RecordBatch:
    return batch(value=[f"v{i}" for i in range(first, first + count)], key=[f"k{i}" for i in range(first, first + count)])


def stored(cluster: MockCluster, topic: str = "pair", *, committed: bool = False) -> list[bytes]:
    partitions = 2 if topic == "pair" else 1
    return sorted(r.value for p in range(partitions) for r in cluster.log(topic, p, committed=committed))


def expected(first: int, count: int) -> list[bytes]:
    return sorted(b"v%d" % i for i in range(first, first + count))


# -- rows and their places -----------------------------------------------------------------------------------------------
def test_a_row_goes_where_its_partition_or_its_key_says(cluster: MockCluster, options: Any) -> None:
    keys, given = [f"k{i}" for i in range(50)], [None if i % 2 else i % 4 // 2 for i in range(50)]
    write_plainly(options(topic="pair"), [batch(key=keys, value=keys, partition=given)])
    for p in range(2):
        for record in cluster.log("pair", p):
            number = int(record.value[1:])
            assert given[number] == p or (given[number] is None and murmur2(record.key) % 2 == p)


def test_what_was_written_is_told(cluster: MockCluster, options: Any) -> None:
    tally = write_plainly(options(topic="pair", kafka__batch__size="512"), [numbered(0, 300), numbered(300, 300)])
    assert tally.records == 600
    assert tally.last_offsets == {("pair", p): cluster.offsets("pair", p)[1] - 1 for p in range(2)}
    assert stored(cluster) == expected(0, 600)


def test_rows_of_several_topics_go_each_to_its_own_in_their_order(cluster: MockCluster, options: Any) -> None:
    names = [f"v{i}" for i in range(300)]
    topics = [["t", "pair", "more"][i * i % 7 % 3] for i in range(300)]
    cluster.create_topic("more", 1)
    write_plainly(options(), [batch(value=names, topic=topics, partition=[0] * 300), batch(value=["last"], topic=["pair"], partition=[0])])
    for topic, last in (("t", []), ("pair", [b"last"]), ("more", [])):
        assert [r.value for r in cluster.log(topic, 0)] == [
            name.encode() for name, its in zip(names, topics, strict=True) if its == topic
        ] + last


def test_the_option_goes_before_the_column(cluster: MockCluster, options: Any) -> None:
    write_plainly(options(topic="t"), [batch(value=["a", "b"], topic=["pair", None])])
    assert (stored(cluster, "t"), stored(cluster, "pair")) == ([b"a", b"b"], [])


@pytest.mark.parametrize(
    ("given", "seen"), [({}, [("h", b"x")]), ({"includeHeaders": "true"}, [("h", b"x")]), ({"includeHeaders": "false"}, [])]
)
def test_headers_are_written_unless_told_otherwise(cluster: MockCluster, options: Any, given: dict[str, str], seen: list[Any]) -> None:
    write_plainly(options(topic="t", **given), [batch(value=["a"], headers=[[("h", b"x")]])])
    assert [list(r.headers) for r in cluster.log("t", 0)] == [seen]


def test_no_rows_ask_for_nothing(cluster: MockCluster, options: Any) -> None:
    assert write_plainly(options(topic="t"), [numbered(0, 0)]).records == 0
    assert cluster.count("Produce") == 0


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_rows_are_compressed_as_told(cluster: MockCluster, options: Any, codec: str) -> None:
    write_plainly(options(topic="t", kafka__compression__type=codec), [numbered(0, 100)])
    assert stored(cluster, "t") == expected(0, 100)
    assert cluster.raw_log("t", 0)[22] & 7 == {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]


# -- what cannot be written ----------------------------------------------------------------------------------------------
def test_a_value_over_the_size_limit_is_named_with_its_row(cluster: MockCluster, options: Any) -> None:
    rows = [numbered(0, 7), batch(key=["a", "b"], value=["x", "y" * 3000])]
    with pytest.raises(
        RecordTooLarge, match=r"^row 8: a record of \d+ bytes for topic 't' is over kafka\.max\.request\.size=2000: raise it"
    ):
        write_plainly(options(topic="t", kafka__max__request__size="2000", kafka__batch__size="1000"), rows)


def test_a_producer_that_cannot_be_is_refused_by_the_properties_that_were_given(cluster: MockCluster, options: Any) -> None:
    for more in ({}, {"exactlyOnce": "transactional", "jobId": "j"}):
        chosen = options(topic="t", kafka__buffer__memory="100000", **more)
        with pytest.raises(ConfigurationError, match=r"kafka\.buffer\.memory=100000: must hold a batch \(kafka\.batch\.size="):
            write_plainly(chosen, [numbered(0, 1)]) if not more else write_once(chosen, [numbered(0, 1)], Task("p", "j", 0, 0))


def test_a_value_that_the_topic_does_not_take_is_told_with_the_next_step(cluster: MockCluster, options: Any) -> None:
    cluster.on("Produce", Error(TOO_LARGE), times=None)
    with pytest.raises(KafkaException, match=r"^t-0: 1 record\(s\) .* raise the topic's max.message.bytes"):
        write_plainly(options(topic="t"), [numbered(0, 1)])


def test_a_partition_that_is_not_there_is_named_with_its_row(cluster: MockCluster, options: Any) -> None:
    rows = [numbered(0, 5), batch(value=["a", "b"], partition=[0, 2])]
    with pytest.raises(ConfigurationError, match=r"^row 6 for topic 'pair': partition=2: the topic has the partitions 0 to 1"):
        write_plainly(options(topic="pair"), rows)


def test_a_row_without_a_topic_is_named_in_the_connectors_words(cluster: MockCluster, options: Any) -> None:
    rows = [batch(value=["a"], topic=["t"]), batch(value=["a", "b"], topic=["t", None])]
    with pytest.raises(
        ConfigurationError, match=r"^row 2: null topic present in the data. Use the topic option for setting a default topic."
    ):
        write_plainly(options(), rows)


@pytest.mark.parametrize(("topics", "row"), [(["a/b"], 3), (["t", "a/b", "t", "a/b"], 4)], ids=["one topic", "several"])
def test_a_row_whose_topic_no_topic_can_be_called_is_named(cluster: MockCluster, options: Any, topics: list[str], row: int) -> None:
    rows = [batch(value=["a"] * 3, topic=["t"] * 3), batch(value=["b"] * len(topics), topic=topics)]
    with pytest.raises(ConfigurationError, match=rf"^row {row}: topic='a/b': must"):
        write_plainly(options(), rows)


def test_headers_may_be_spelled_in_any_case(cluster: MockCluster, options: Any) -> None:
    headers = pa.array([[{"VALUE": b"1", "Key": "a"}], None], pa.list_(pa.struct([("VALUE", pa.binary()), ("Key", pa.string())])))
    write_plainly(options(topic="t"), [pa.RecordBatch.from_arrays([pa.array(["x", "y"]), headers], ["value", "headers"])])
    assert [list(r.headers) for r in cluster.log("t", 0)] == [[("a", b"1")], []]


def test_a_row_of_a_picked_topic_has_the_number_that_it_has_in_the_task(cluster: MockCluster, options: Any) -> None:
    rows = [
        numbered(0, 3).append_column("topic", pa.array(["pair"] * 3)),
        batch(value=["a", "b", "c"], topic=["t", "pair", "pair"], headers=[None, None, [(None, b"")]]),
    ]
    with pytest.raises(SerializationError, match=r"^row 5: headers\[0\] has no key"):
        write_plainly(options(), rows)


@pytest.mark.usefixtures("short_patience")
def test_a_topic_that_cannot_be_created_is_told(cluster: MockCluster, options: Any) -> None:
    with pytest.raises(KafkaException, match="absent"):
        write_plainly(options(topic="absent", kafka__max__block__ms="3000"), [numbered(0, 1)])


@pytest.mark.parametrize(
    ("code", "text", "deadline_ms"), [(DENIED, "TopicAuthorizationFailed", 60_000), (999, "ProduceFailureError", 1500)]
)
def test_what_a_broker_refuses_is_told_with_the_partition(
    cluster: MockCluster, options: Any, code: int, text: str, deadline_ms: int
) -> None:
    cluster.on("Produce", Error(code), times=None)
    with pytest.raises(KafkaException, match=r"t-0.*; Spark tries the task again") as caught:
        write_plainly(options(topic="t", kafka__delivery__timeout__ms=str(deadline_ms)), [numbered(0, 1)])
    assert type(caught.value).__name__ == text
    assert (caught.value.topic, caught.value.partition) == ("t", 0)


def test_a_row_that_is_at_fault_is_told_in_the_brokers_words(cluster: MockCluster, options: Any) -> None:
    """KIP-467. The other rows are written, as far as a task goes that fails."""
    cluster.on("Produce", Refuse(), times=None)
    rows = batch(value=["a", "b", "c"], key=["k", None, "k"])
    with pytest.raises(InvalidRecord, match=r"t-0.*Compacted topic cannot accept message without key.*; Spark tries the task again"):
        write_plainly(options(topic="t"), [rows])
    assert stored(cluster, "t") == [b"a", b"c"]


def test_brokers_that_go_away_are_waited_for_and_no_longer_than_the_delivery_timeout(cluster: MockCluster, options: Any) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 10)
        cluster.wait_for(lambda: len(stored(cluster, "t")) == 10)
        cluster.stop_broker(1)
        yield numbered(10, 10)

    with pytest.raises(
        KafkaTimeoutError,
        match=r"t-0.* not delivered within 3 s.*; see that the partition has a leader .* kafka.delivery.timeout.ms .*spark.task.maxFailures",
    ):
        write_plainly(options(topic="t", kafka__delivery__timeout__ms="3000"), rows())
    assert stored(cluster, "t") == expected(0, 10)


def test_brokers_that_come_back_in_time_lose_nothing(cluster: MockCluster, options: Any) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 10)
        cluster.wait_for(lambda: len(stored(cluster, "t")) == 10)
        cluster.stop_broker(1)
        threading.Timer(0.3, cluster.start_broker, (1,)).start()
        yield numbered(10, 10)

    write_plainly(options(topic="t"), rows())
    assert stored(cluster, "t") == expected(0, 20)


def test_answers_that_are_lost_write_nothing_twice(cluster: MockCluster, options: Any) -> None:
    cluster.on("Produce", Close(before=False), times=3)
    write_plainly(options(topic="pair", kafka__batch__size="500"), [numbered(0, 200)])
    assert stored(cluster) == expected(0, 200)


def test_a_full_buffer_is_waited_for(cluster: MockCluster, options: Any) -> None:
    write_plainly(
        options(topic="pair", kafka__batch__size="512", kafka__buffer__memory="4096", kafka__max__request__size="2048"), [numbered(0, 2000)]
    )
    assert stored(cluster) == expected(0, 2000)


# -- exactly once --------------------------------------------------------------------------------------------------------
TASK = Task("gkafka-spark", "query", 3, 7)


def once(options: Any, rows: list[pa.RecordBatch], task: Task = TASK, **more: str) -> Tally:
    return write_once(options(topic="pair", exactlyOnce="transactional", **more), rows, task)


def mark(cluster: MockCluster, options: Any, task: Task = TASK) -> Any:
    with connected(options().kafka.client) as client:
        return read_mark(client, task.name)


def test_a_task_is_written_in_one_transaction_with_its_mark(cluster: MockCluster, options: Any) -> None:
    tally = once(options, [numbered(0, 100), numbered(100, 50)])
    assert (tally.records, tally.replayed) == (150, False)
    assert stored(cluster, committed=True) == expected(0, 150)
    lengths = sum(len(f"k{i}v{i}") for i in range(150))
    batch, written = mark(cluster, options)
    assert (batch, written.rows, written.size, written.topics) == (7, 150, lengths, "pair")
    assert TASK.name == "gkafka-spark-query-3"
    assert cluster.transaction(TASK.name) is not None


def test_a_replay_writes_nothing(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 100)])
    tally = once(options, [numbered(0, 60), numbered(60, 40)])
    assert (tally.records, tally.replayed) == (0, True)
    assert stored(cluster, committed=True) == expected(0, 100)


def test_a_micro_batch_older_than_the_mark_is_an_error_and_not_written(cluster: MockCluster, options: Any) -> None:
    """A checkpoint was put back: whether these rows were written nobody knows."""
    once(options, [numbered(0, 100)])
    with pytest.raises(
        RowsChangedError, match=r"^task 3 of micro-batch 6: micro-batch 7 has been written since under the name 'gkafka-spark-query-3'"
    ):
        once(options, [numbered(0, 5)], Task("gkafka-spark", "query", 3, 6))
    assert stored(cluster, committed=True) == expected(0, 100)


def test_the_next_micro_batch_and_another_task_are_written(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 10)])
    once(options, [numbered(10, 10)], Task("gkafka-spark", "query", 3, 8))
    once(options, [numbered(20, 10)], Task("gkafka-spark", "query", 4, 7))
    once(options, [numbered(30, 10)], Task("gkafka-spark", "another", 3, 7))
    assert stored(cluster, committed=True) == expected(0, 40)


def test_a_replay_with_other_rows_is_an_error_and_nothing_is_skipped_silently(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 100)])
    with pytest.raises(
        RowsChangedError,
        match=r"^task 3 of micro-batch 7 was written with 100 rows of \d+ bytes \(checksum [0-9a-f]+\) for pair and is replayed with 101 ",
    ):
        once(options, [numbered(0, 101)])
    with pytest.raises(RowsChangedError, match="a jobId is for one set of rows"):
        once(options, [numbered(1000, 100)])


def row_of(**changes: Any) -> pa.RecordBatch:
    given = {"key": b"k", "value": b"v", "partition": 0, "headers": [{"key": "h", "value": b"1"}], **changes}
    types = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "headers": HEADERS}
    return pa.RecordBatch.from_pydict({name: pa.array([given[name]], types[name]) for name in given})


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"v", "value": b"k"},
        {"value": b"w"},
        {"key": b"kv", "value": b""},
        {"partition": 1},
        {"partition": None},
        {"headers": None},
        {"headers": [{"key": "h", "value": b"2"}]},
        {"headers": [{"key": "h", "value": None}]},
    ],
    ids=str,
)
def test_a_replay_with_other_rows_of_the_same_size_is_an_error(cluster: MockCluster, options: Any, change: dict[str, Any]) -> None:
    once(options, [row_of()])
    with pytest.raises(
        RowsChangedError, match=r"was written with 1 rows of 2 bytes .* is replayed with 1 rows of 2 bytes .* other tasks .* twice by now"
    ):
        once(options, [row_of(**change)])
    assert once(options, [row_of()]).replayed


def test_what_is_not_written_of_a_row_does_not_count(cluster: MockCluster, options: Any) -> None:
    once(options, [row_of()], includeHeaders="false")
    assert once(options, [row_of(headers=None)], includeHeaders="false").replayed


def test_rows_that_went_to_each_others_topics_are_others(cluster: MockCluster, options: Any) -> None:
    def routed(**topics: bytes) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"topic": list(topics), "value": pa.array(topics.values(), pa.binary())})

    by_row = options(exactlyOnce="transactional")
    write_once(by_row, [routed(pair=b"a", t=b"b")], TASK)
    with pytest.raises(RowsChangedError, match="for pair,t and is replayed with"):
        write_once(by_row, [routed(pair=b"b", t=b"a")], TASK)


def test_a_replay_for_another_topic_is_an_error_and_not_skipped_silently(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 100)])
    cluster.create_topic("other", 1)
    with pytest.raises(RowsChangedError, match=r"was written for topic pair and is now to be written for other, .*jobId"):
        write_once(options(topic="other", exactlyOnce="transactional"), [numbered(0, 100)], TASK)


def test_a_replay_in_another_order_and_cut_otherwise_is_the_same(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 100)])
    assert once(options, [numbered(50, 50), numbered(0, 50)]).replayed


def test_a_task_without_rows_asks_the_brokers_nothing(cluster: MockCluster, options: Any) -> None:
    assert once(options, [numbered(0, 0)]).records == 0
    assert cluster.requests() == []


def test_a_task_that_fails_midway_leaves_nothing_and_its_replay_writes_all(cluster: MockCluster, options: Any) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 100)
        cluster.wait_for(lambda: stored(cluster))
        raise RuntimeError("the task was killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_once(options(topic="pair", exactlyOnce="transactional"), rows(), TASK)
    assert stored(cluster, committed=True) == []
    seen = cluster.transaction(TASK.name)
    assert seen is not None
    assert seen.status == "CompleteAbort"  # at once: an open one would hold up readers
    once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == expected(0, 100)


def test_an_attempt_that_was_given_up_is_fenced_by_the_next(cluster: MockCluster, options: Any) -> None:
    """The zombie has written and not committed when the next attempt begins, and goes on when that one is done."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 100)
        cluster.wait_for(lambda: stored(cluster))
        once(options, [numbered(0, 200)])
        yield numbered(100, 100)

    with pytest.raises((FencedError, KafkaException)):
        write_once(options(topic="pair", exactlyOnce="transactional"), rows(), TASK)
    assert stored(cluster, committed=True) == expected(0, 200)
    assert mark(cluster, options).written[:2] == (200, 1380)


def test_a_zombie_at_its_commit_finds_the_mark_of_its_successor(
    cluster: MockCluster, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same rows: what the successor committed is what the zombie was to write."""
    from gkafka.nativeproducer import NativeProducer

    commit, overtaken = NativeProducer.commit_transaction, []

    def late(self: NativeProducer, timeout: float | None = None) -> None:
        if not overtaken:
            overtaken.append(self)
            once(options, [numbered(0, 100)])
        commit(self, timeout)

    monkeypatch.setattr(NativeProducer, "commit_transaction", late)
    once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == expected(0, 100)


def test_a_lost_answer_to_the_commit_is_not_guessed_but_read(cluster: MockCluster, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """EndTxn was done, and its answers never came."""
    from gkafka.nativeproducer import NativeProducer

    commit, unheard = NativeProducer.commit_transaction, []

    def lost(self: NativeProducer, timeout: float | None = None) -> None:
        try:
            commit(self, timeout)
        except KafkaTimeoutError as error:
            unheard.append(error)
            cluster.clear_script()
            raise

    monkeypatch.setattr(NativeProducer, "commit_transaction", lost)
    cluster.on("EndTxn", Drop(), times=None)
    once(options, [numbered(0, 100)], kafka__delivery__timeout__ms="2000", kafka__request__timeout__ms="1000")
    assert unheard
    assert stored(cluster, committed=True) == expected(0, 100)
    assert mark(cluster, options).written[:2] == (100, 580)


def test_a_commit_that_never_came_through_fails_the_task(cluster: MockCluster, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gkafka.nativeproducer import NativeProducer

    def unheard(self: NativeProducer, timeout: float | None = None) -> None:
        raise KafkaTimeoutError("commit_transaction(): no outcome")

    with monkeypatch.context() as patch:
        patch.setattr(NativeProducer, "commit_transaction", unheard)
        with pytest.raises(KafkaTimeoutError, match="no outcome"):
            once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == []
    once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == expected(0, 100)


def test_a_failed_batch_commits_nothing(cluster: MockCluster, options: Any) -> None:
    cluster.on("Produce", Error(DENIED), times=1)
    with pytest.raises(KafkaException, match="pair-"):
        once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == []
    assert mark(cluster, options) == (-1, None)
    once(options, [numbered(0, 100)])
    assert stored(cluster, committed=True) == expected(0, 100)


def test_a_mark_without_a_checksum_is_compared_as_far_as_it_goes(cluster: MockCluster, options: Any) -> None:
    with connected(options().kafka.client) as client, client.get_producer(transactional_id=TASK.name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets({("pair", 0): (8, "rows=10 bytes=40 topics=pair")}, TASK.name)
        producer.commit_transaction()
    assert once(options, [numbered(0, 10)]).replayed
    with pytest.raises(RowsChangedError, match=r"was written with 10 rows of 40 bytes for pair and is replayed with 9 rows"):
        once(options, [numbered(0, 9)])


def test_a_mark_of_a_stranger_has_no_count(cluster: MockCluster, options: Any) -> None:
    with connected(options().kafka.client) as client:
        client.admin().alter_group_offsets(TASK.name, {("pair", 0): 8, ("t", 0): 3})
        assert read_mark(client, TASK.name) == (7, None)
    assert once(options, [numbered(0, 9)]).replayed


def test_the_transaction_may_be_open_for_as_long_as_told(cluster: MockCluster, options: Any) -> None:
    once(options, [numbered(0, 1)])
    once(options, [numbered(0, 1)], Task("a", "b", 0, 0), kafka__transaction__timeout__ms="4321")
    told = [r.message.transaction_timeout_ms for r in cluster.requests("InitProducerId")]
    assert told == [exactlyonce.TRANSACTION_TIMEOUT_MS, 4321]


# -- clients that live long ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_sink_forgets_topics_that_it_does_not_write_to_any_more(
    cluster: MockCluster, options: Callable[..., SinkOptions], exactly_once: bool
) -> None:
    """kafka.metadata.max.idle.ms: the tasks of a worker have the same client, one after the other."""
    replies = [f"reply-{i}" for i in range(5)]
    for topic in ("busy", *replies):
        cluster.create_topic(topic, 1)
    given = options(kafka__metadata__max__age__ms="100", kafka__metadata__max__idle__ms="500")
    numbers = itertools.count()

    def write(*topics: str) -> None:
        rows = [batch(topic=list(topics), value=["v"] * len(topics))]
        if exactly_once:
            write_once(given, rows, Task("p", "job", 0, next(numbers)))
        else:
            write_plainly(given, rows)

    def asked_for() -> list[set[str]]:
        messages: list[Any] = [request.message for request in cluster.requests("Metadata")]
        return [{topic.name for topic in message.topics} for message in messages if message.topics is not None]

    def write_until_asked_for(*topics: str) -> None:
        limit = now() + PATIENCE_S
        while not asked_for() or asked_for()[-1] != set(topics):
            assert now() < limit, asked_for()[-1]
            write(*topics)

    write_until_asked_for("busy", *replies)
    clients = cluster.count("ApiVersions")
    write_until_asked_for("busy")
    assert cluster.count("ApiVersions") <= clients + 2, "no task made a client of its own"
