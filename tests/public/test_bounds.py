"""A call is bounded in bytes and in time, not only in records; a fetch that brings nothing is not repeated at once."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.common import TopicPartition
from gkafka.core.standing import Reason
from gkafka.exceptions import CorruptRecordError, KafkaTimeoutError, NotLeaderForPartition, RecordTooLarge, TruncatedBatchError
from gkafka.testing import MockCluster, Reply
from gkafka.wire.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.kit.clock import soon
from tests.public.aids import LIMIT_S, Runner, error_of, read
from tests.records.handmade import GZIP, TRANSACTIONAL, batch, fix_crc, marker, message, record, values, wrapper

MIB = 1 << 20
LONG = LIMIT_S * 1000
FAST: dict[str, Any] = {"fetch_error_backoff_ms": 10, "fetch_wait_max_ms": 50}


def bombs(count: int, size: int = MIB) -> bytes:
    """Batches of one record each, a thousandth of its size on the wire."""
    return b"".join(batch([record(0, bytes(size))], base_offset=i, attributes=GZIP) for i in range(count))


def sizes(messages: list[Any]) -> list[int]:
    return [len(message.value) for message in messages]


# -- bytes -------------------------------------------------------------------------------------------------------------------
def test_a_call_hands_out_no_more_than_consume_max_bytes(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.append("t", 0, bombs(9))
    with client.get_consumer("t", consume_max_bytes=3 * MIB + MIB // 2, **FAST) as consumer:
        run.until(lambda: consumer.stats()["buffered"] == 9)
        counts = []
        while sum(counts) < 9:
            counts.append(len(consumer.consume_batch(100, LONG)))
        assert max(counts) <= 3, "with greenlets a call may end before that, for the others' sake"
        assert client.handler.cooperative or counts == [3, 3, 3]
        assert consumer.position(TopicPartition("t", 0)) == 9


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_bounded_alike(connect: Any, make_cluster: Any, magic: int) -> None:
    cluster = make_cluster(versions="0.10.2")
    plain = b"".join(message(i, bytes(1000), magic=magic) for i in range(4))
    inner = [message(i if magic else 4 + i, bytes(1000), magic=magic) for i in range(4)]
    cluster.append("t", 0, plain + wrapper(inner, 7, magic=magic))
    with connect(cluster).get_consumer("t", consume_max_bytes=2500, **FAST) as consumer:
        got = [[m.offset for m in consumer.consume_batch(100, LONG)] for _ in range(4)]
    assert got == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_what_does_not_fit_any_more_is_left_whole_for_the_next_call(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.append("t", 0, batch([record(i, bytes(1000)) for i in range(5)]))
    with client.get_consumer("t", consume_max_bytes=2500, **FAST) as consumer:
        assert [m.offset for m in consumer.consume_batch(100, LONG)] == [0, 1]
        assert consumer.consume(LONG).offset == 2, "one by one nothing is left out"
        assert [m.offset for m in consumer.consume_batch(100, LONG)] == [3, 4]


def test_a_record_larger_than_the_limit_comes_out_alone(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.append("t", 0, values(2) + batch([record(0, bytes(MIB))], base_offset=2, attributes=GZIP) + values(2, base_offset=3))
    with client.get_consumer("t", consume_max_bytes=1000, **FAST) as consumer:
        got: list[list[int]] = []
        while sum(map(len, got)) < 5:
            got.append([m.offset for m in consumer.consume_batch(100, LONG)])
    assert [offsets for offsets in got if offsets] == [[0, 1], [2], [3, 4]]


def test_columns_are_bounded_alike_and_a_larger_row_comes_alone(client: KafkaClient, cluster: MockCluster) -> None:
    large = batch([record(0, bytes(5 * MIB))], base_offset=9, attributes=GZIP)
    cluster.append("t", 0, bombs(9) + large + values(2, base_offset=10))
    rows: list[list[int]] = []
    with client.get_consumer("t", consume_max_bytes=3 * MIB + MIB // 2, **FAST) as consumer:
        while sum(map(len, rows)) < 12:
            rows.append(consumer.consume_arrow(100, LONG)["offset"].to_pylist())
    assert [9] in rows
    assert max(map(len, rows)) <= 3
    assert [offset for piece in rows for offset in piece] == list(range(12))


def test_the_limit_counts_all_partitions_of_a_call(connect: Any, make_cluster: Any, run: Runner) -> None:
    cluster = make_cluster(topics={"t": 4})
    for partition in range(4):
        cluster.append("t", partition, bombs(2))
    with connect(cluster).get_consumer("t", consume_max_bytes=3 * MIB + MIB // 2, **FAST) as consumer:
        run.until(lambda: consumer.stats()["buffered"] == 8)
        counts = []
        while sum(counts) < 8:
            counts.append(len(consumer.consume_batch(100, LONG)))
    assert max(counts) <= 3


def test_explain_names_the_option_that_bounds_what(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    cluster.append("t", 0, values(2))
    with client.get_consumer("t", consume_max_bytes=777, **FAST) as consumer:
        run.until(lambda: consumer.stats()["buffered"] == 2)
        text = str(consumer.explain())
        assert "no more than 777 bytes" in text
        assert "consume_max_bytes" in text
        assert len(read(consumer, 2)) == 2


# -- time --------------------------------------------------------------------------------------------------------------------
def test_a_call_reads_no_further_batch_behind_its_time_out(
    client: KafkaClient, cluster: MockCluster, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append("t", 0, bombs(30, 200_000))
    with client.get_consumer("t", **FAST) as consumer:
        run.until(lambda: consumer.stats()["buffered"] == 30)
        engine = consumer._engine
        slow = engine.taker.reader.read

        def read_slowly(*about: Any) -> Any:
            late[0] += 0.3  # what opening a batch takes here
            return slow(*about)

        late = [0.0]
        monkeypatch.setattr(engine._handler, "monotonic", lambda: soon(late[0]))
        monkeypatch.setattr(engine.taker.reader, "read", read_slowly)
        assert 1 <= len(consumer.consume_batch(30, 700)) <= 3
        monkeypatch.undo()
        assert len(read(consumer, 27)) == 27


def test_with_greenlets_what_holds_nothing_wanted_is_no_reason_to_return(client: KafkaClient, cluster: MockCluster, run: Runner) -> None:
    """Opening a batch of which only a gap is left takes longer than a greenlet's turn."""
    cluster.append("t", 0, batch([], last_delta=9) + values(5, base_offset=10))
    with client.get_consumer("t", **FAST) as consumer:
        engine = consumer._engine
        run.until(lambda: consumer.stats()["buffered"] >= 5)
        engine.taker._share_of_time = -1.0
        assert [m.offset for m in consumer.consume_batch(5, 0)] == [10, 11, 12, 13, 14]


def test_columns_of_a_large_batch_come_in_pieces_of_the_limit(client: KafkaClient, cluster: MockCluster) -> None:
    cluster.append("t", 0, batch([record(i, bytes(10_000)) for i in range(300)], attributes=GZIP))
    pieces: list[Any] = []
    with client.get_consumer("t", consume_max_bytes=100_000, **FAST) as consumer:
        while sum(piece.num_rows for piece in pieces) < 300:
            pieces.append(consumer.consume_arrow(1000, LONG))
    assert max(piece.nbytes for piece in pieces) <= 100_000
    assert [offset for piece in pieces for offset in piece["offset"].to_pylist()] == list(range(300))


def test_hidden_batches_are_not_decompressed(client: KafkaClient, cluster: MockCluster) -> None:
    """Their checksums guard the offsets that they stand for; nobody gets what they hold."""
    hidden = batch([record(0, b"x")], attributes=TRANSACTIONAL, producer_id=7)
    torn = bytearray(hidden)
    torn[22] |= GZIP  # what it holds is no gzip
    cluster.append("t", 0, fix_crc(bytes(torn)) + marker(0, 1, producer_id=7) + values(2, base_offset=2))
    cluster.set_transactions("t", 0, aborted=[(7, 0)])
    with client.get_consumer("t", **FAST) as consumer:
        assert [m.offset for m in read(consumer, 2)] == [2, 3]


# -- answers that bring nothing ----------------------------------------------------------------------------------------------
def answer(cluster: MockCluster, records: bytes, end: int, times: int | None = None) -> None:
    """Have every fetch, or so many, answered at once with these bytes, whatever it asks for."""

    def same(request: Any) -> FetchResponse:
        data = PartitionData(partition_index=0, high_watermark=end, last_stable_offset=end, log_start_offset=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    cluster.on("Fetch", Reply(same), times=times)


@pytest.fixture
def by_name(make_cluster: Any) -> MockCluster:
    """A broker whose fetches name topics, and not their ids."""
    made: MockCluster = make_cluster(versions="2.8")
    return made


@pytest.mark.parametrize("records", [b"", values(2)], ids=["no records", "old records"])
def test_a_broker_that_answers_at_once_with_nothing_new_is_told_by_explain(
    connect: Any, by_name: MockCluster, run: Runner, records: bytes
) -> None:
    by_name.append("t", 0, values(3))
    with connect(by_name).get_consumer("t", **FAST) as consumer:
        assert len(read(consumer, 3)) == 3
        answer(by_name, records, end=9)
        run.until(lambda: "at once, again and again, with nothing new" in str(consumer.explain()))
        assert consumer.explain().partitions["t", 0].reason is Reason.FETCHING


def test_a_stream_does_not_ask_such_a_broker_on_and_on(connect: Any, by_name: MockCluster) -> None:
    answer(by_name, b"", end=9)
    error = error_of(list, connect(by_name).fetch_stream("t", 0, 0, 9, timeout=2))
    assert isinstance(error, KafkaTimeoutError)
    assert by_name.count("Fetch") <= 40, "it was a thousand in a second"


def test_explain_tells_of_answers_that_leave_the_partition_out(connect: Any, by_name: MockCluster, run: Runner) -> None:
    by_name.on("Fetch", Reply(lambda request: FetchResponse(responses=[])), times=None)
    with connect(by_name).get_consumer("t", **FAST) as consumer:
        run.until(lambda: "the answer to Fetch leaves the partition out" in str(consumer.explain()))


def test_a_batch_that_stays_cut_is_told_with_its_own_size(connect: Any, by_name: MockCluster) -> None:
    whole = values(3)
    answer(by_name, whole[:45], end=3)
    with connect(by_name).get_consumer("t", **FAST) as consumer:
        error = error_of(consumer.consume_batch, 10, LONG)
        assert isinstance(error, TruncatedBatchError)
        assert f"sent 45 of the {len(whole)} bytes of the batch at offset 0, though 1048576 were asked for" in str(error)
    error = error_of(connect(by_name).fetch_raw, "t", 0, 0, timeout=3)
    assert f"sent 45 of the {len(whole)} bytes" in str(error)


def test_the_error_of_a_try_that_was_cut_off_by_the_deadline_gives_way_to_the_one_before(client: KafkaClient, run: Runner) -> None:
    refused = NotLeaderForPartition("refused", topic="t", partition=0)
    tries: list[None] = []

    def attempt() -> None:
        tries.append(None)
        if len(tries) == 1:
            raise refused
        run.sleep(1.5)
        raise KafkaTimeoutError("no result within its time")

    error = error_of(client._cluster.retrying, "asking", attempt, soon(1))
    assert isinstance(error, KafkaTimeoutError)
    assert error.__cause__ is refused
    assert "refused" in str(error)


def test_a_batch_that_is_cut_once_is_asked_for_again_in_silence(connect: Any, by_name: MockCluster) -> None:
    whole = values(3)
    by_name.append("t", 0, whole)
    answer(by_name, whole[:45], end=3, times=1)
    with connect(by_name).get_consumer("t", **FAST) as consumer:
        assert [m.offset for m in read(consumer, 3)] == [0, 1, 2]
    answer(by_name, whole[:45], end=3, times=1)
    assert connect(by_name).fetch_raw("t", 0, 0).next_offset == 3


def test_a_batch_that_no_answer_can_hold_is_told_with_its_own_size(connect: Any, by_name: MockCluster) -> None:
    large = batch([record(0, bytes(300_000))])
    answer(by_name, large[:200_000], end=1)
    client = connect(by_name, max_response_bytes=200_000 + (1 << 16))
    for error in (error_of(client.get_consumer("t", **FAST).consume_batch, 10, LONG), error_of(client.fetch_raw, "t", 0, 0)):
        assert isinstance(error, RecordTooLarge)
        assert f"has {len(large)} bytes: raise the option to {len(large) + (1 << 16)} or more" in str(error)


# -- errors that are kept ----------------------------------------------------------------------------------------------------
def functions(error: BaseException | None) -> list[str]:
    """The functions whose variables an error keeps alive, its causes' too."""
    names = []
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        error = error.__cause__
    return names


def test_what_the_application_is_handling_keeps_its_traceback(client: KafkaClient, cluster: MockCluster) -> None:
    damaged = bytearray(batch([record(0, b"x")], attributes=GZIP))
    damaged[80] ^= 0xFF
    cluster.append("t", 0, fix_crc(bytes(damaged)))
    with client.get_consumer("t", **FAST) as consumer:
        for _ in range(2):
            try:
                raise LookupError("the application's own")
            except LookupError as caught:
                its_own, error = caught, error_of(consumer.consume_batch, 10, LONG)
            assert isinstance(error, CorruptRecordError)
            assert "test_what_the_application_is_handling_keeps_its_traceback" in functions(its_own)


@pytest.mark.parametrize("what", ["the codec", "a record"])
def test_an_error_keeps_nothing_of_what_was_decompressed(client: KafkaClient, cluster: MockCluster, what: str) -> None:
    damaged = bytearray(batch([record(0, bytes(MIB)), b"\xff\xff\xff"], attributes=GZIP))
    if what == "the codec":
        damaged[80] ^= 0xFF
    cluster.append("t", 0, fix_crc(bytes(damaged)))
    with client.get_consumer("t", **FAST) as consumer:
        if what == "a record":
            assert len(read(consumer, 1)) == 1
        for _ in range(2):
            error = error_of(consumer.consume_batch, 10, LONG)
            assert isinstance(error, CorruptRecordError)
            assert error.next_offset == 2
            kept = {"_read", "_take", "take", "_open", "decompress", "_fetched", "_split"}
            assert not kept & set(functions(error))
