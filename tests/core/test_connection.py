"""The connection's machine: numbers and frames in, decisions out."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.core.connection import MOVES, QUIET_S, TOLD, UNTOLD, Ask, Connection, Event, Outcome, State, frame_size
from gkafka.exceptions import (
    ClusterAuthorizationFailed,
    ConfigurationError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersion,
)
from gkafka.wire.apis import Versions, decode_request, decode_request_header, encode_response
from gkafka.wire.apiversions import ApiVersion, ApiVersionsResponse
from gkafka.wire.fetch import FetchRequest
from gkafka.wire.metadata import MetadataRequest, MetadataResponse


def connection(broker_version: str = "0.9.0", **options: Any) -> Connection:
    made = Connection("b1:9092", client_id="c", broker_version=broker_version, **{"max_response_bytes": 1 << 20, "broker": 1, **options})
    made.connecting()
    return made


def frame(buffers: list[Any]) -> memoryview:
    data = b"".join(buffers)
    assert struct.unpack(">i", data[:4])[0] == len(data) - 4
    return memoryview(data)[4:]


def sent_header(buffers: list[Any]) -> tuple[int, int, int]:
    return tuple(decode_request_header(frame(buffers)))


def said(correlation_id: int, version: int, *ranges: tuple[int, int, int], error_code: int = 0) -> memoryview:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    return frame(encode_response(ApiVersionsResponse(error_code=error_code, api_keys=keys), version, correlation_id))


def opened(broker_version: str = "4.2", **options: Any) -> Connection:
    made = connection(broker_version, **options)
    asked = sent_header(made.connected(0.0))
    assert made.negotiated(said(asked[2], asked[1], (18, 0, 4), (3, 0, 13), (1, 4, 17)), 0.0) == []
    assert made.state is State.OPEN
    return made


# -- negotiation
def test_apiversions_is_asked_in_the_highest_version_first() -> None:
    key, version, _ = sent_header(connection().connected(0.0))
    assert (key, version) == (18, 4)


def test_the_question_says_what_software_asks() -> None:
    made = Connection("b", client_id="c", broker_version="0.9.0", max_response_bytes=1 << 20, software=("gkafka", "9.9"))
    made.connecting()
    message: Any = decode_request(frame(made.connected(0.0))).message
    assert (message.client_software_name, message.client_software_version) == ("gkafka", "9.9")


ERROR_35_SHAPES = {
    "version 0 with the range of ApiVersions (KIP-511)": lambda cid: said(cid, 0, (18, 0, 2), error_code=35),
    "version 0 without a list": lambda cid: said(cid, 0, error_code=35),
    "the shape that was asked for": lambda cid: said(cid, 4, (18, 0, 2), error_code=35),
    "the error code and nothing else": lambda cid: memoryview(struct.pack(">ih", cid, 35)),
    "librdkafka's mock cluster": lambda cid: memoryview(struct.pack(">i", cid) + bytes.fromhex("0023011200000002000000")),
}


@pytest.mark.parametrize("shape", ERROR_35_SHAPES)
def test_error_35_in_any_shape_is_asked_again_at_version_0(shape: str) -> None:
    made = connection()
    _, _, first = sent_header(made.connected(0.0))
    again = made.negotiated(ERROR_35_SHAPES[shape](first), 0.0)
    key, version, second = sent_header(again)
    assert (key, version) == (18, 0)
    assert second != first
    assert made.state is State.NEGOTIATING
    assert made.negotiated(said(second, 0, (3, 0, 1)), 0.0) == []
    assert made.state is State.OPEN
    assert made.versions is not None
    assert made.versions.ranges == {3: (0, 1)}


def test_error_35_twice_is_an_error_and_no_loop() -> None:
    made = connection()
    _, _, first = sent_header(made.connected(0.0))
    _, _, second = sent_header(made.negotiated(said(first, 0, error_code=35), 0.0))
    with pytest.raises(UnsupportedVersion, match="broker_version") as raised:
        made.negotiated(said(second, 0, error_code=35), 0.0)
    assert raised.value.broker == 1


def test_error_35_twice_falls_back_to_the_version_that_was_told() -> None:
    made = connection("1.1")
    _, _, first = sent_header(made.connected(0.0))
    _, _, second = sent_header(made.negotiated(said(first, 0, error_code=35), 0.0))
    assert made.negotiated(said(second, 0, error_code=35), 0.0) == []
    assert made.state is State.OPEN
    assert made.versions is not None
    assert made.versions.ranges[1] == (0, 7)


def test_another_error_code_is_raised_by_its_name() -> None:
    made = connection()
    _, version, cid = sent_header(made.connected(0.0))
    with pytest.raises(ClusterAuthorizationFailed) as raised:
        made.negotiated(said(cid, version, error_code=31), 0.0)
    assert (raised.value.broker, raised.value.api) == (1, "ApiVersions")


def test_the_default_ladder_ends_at_0_8_2() -> None:
    """A peer that closes on everything: ApiVersions twice, then what 0.9.0 knows, then what 0.8.2 knows, then no more."""
    made = connection()
    asked = [sent_header(made.connected(0.0))[:2]]
    while made.gave_up(Outcome.CLOSED):
        assert made.state is State.CONNECTING
        asked.append(sent_header(made.connected(0.0))[:2])
    assert asked == [(18, 4), (18, 0), (15, 0), (2, 0)]
    assert made.state is State.NEGOTIATING
    assert "DescribeGroups" in made.asked


@pytest.mark.parametrize(("hang_ups", "produce", "spoken"), [(2, (0, 1), "0.9.0"), (3, (0, 0), "0.8.2")])
@pytest.mark.parametrize("outcome", [Outcome.CLOSED, Outcome.SILENT])
def test_an_old_broker_answers_an_old_question_and_then_still_not_apiversions(
    hang_ups: int, produce: tuple[int, int], spoken: str, outcome: Outcome
) -> None:
    made = connection()
    question = made.connected(0.0)
    for _ in range(hang_ups):
        assert made.gave_up(Outcome.CLOSED)
        question = made.connected(0.0)
    again = made.negotiated(probe_answer(question), 0.1)
    assert sent_header(again)[:2] == (18, 0), "asked once more, on the connection that was just answered on"
    assert made.gave_up(outcome)
    assert made.connected(1.0) == []
    assert made.state is State.OPEN
    assert made.versions is not None
    assert made.versions.ranges[0] == produce
    assert made.taken_for == spoken
    assert spoken in made.spoken


def probe_answer(question: list[Any]) -> memoryview:
    return memoryview(struct.pack(">ii", sent_header(question)[2], 0))


def test_a_modern_broker_that_comes_back_in_the_middle_is_not_taken_for_an_old_one() -> None:
    """It was paused: silent on ApiVersions, then it answers the old question, and now ApiVersions too."""
    made = connection()
    made.connected(0.0)
    assert made.gave_up(Outcome.SILENT)
    question = made.connected(2.0)
    assert sent_header(question)[:2] == (15, 0)
    again = made.negotiated(probe_answer(question), 6.0)
    assert made.quiet_deadline == pytest.approx(6.0 + 4 * 4.0), "it was slow: it gets time"
    assert made.negotiated(said(sent_header(again)[2], 0, (3, 0, 13)), 6.1) == []
    assert made.versions is not None
    assert made.versions.ranges == {3: (0, 13)}
    assert made.taken_for is None


def test_silence_says_something_only_where_an_old_broker_is_silent() -> None:
    made = connection()
    assert made.quiet_deadline is None
    made.connected(10.0)
    assert made.quiet_deadline == 10.0 + QUIET_S
    made.gave_up(Outcome.SILENT)
    assert made.quiet_deadline is None
    made.connected(20.0)
    assert made.quiet_deadline is None, "0.8.2 closes on what it does not know: a silent peer is only waited for"
    assert not made.gave_up(Outcome.SILENT)
    hasty = connection(connect_timeout_s=1.0)
    hasty.connected(0.0)
    assert hasty.quiet_deadline == pytest.approx(0.2)
    told = connection("1.1")
    told.connected(0.0)
    assert told.quiet_deadline is None, "a broker from 0.10 on answers"


def test_what_an_earlier_connection_found_out_is_not_asked_again() -> None:
    made = connection(known_as="0.9.0")
    assert made.connected(0.0) == []
    assert made.state is State.OPEN
    assert made.taken_for == "0.9.0"


def test_nothing_is_assumed_of_a_broker_that_has_once_said_what_it_speaks() -> None:
    made = connection(tells=True)
    made.connected(0.0)
    assert made.guessed
    assert made.quiet_deadline is None
    assert not made.gave_up(Outcome.SILENT)
    assert made.gave_up(Outcome.CLOSED)
    question = made.connected(1.0)
    assert not made.gave_up(Outcome.CLOSED), "asked in both ways, and not taken for an old one"
    assert made.negotiated(said(sent_header(question)[2], 0, (3, 0, 13)), 1.0) == []
    assert not made.guessed


def test_a_doubted_guess_is_proven_without_waiting_for_two_answers() -> None:
    made = connection(doubted=True)
    question = made.connected(0.0)
    assert sent_header(question)[:2] == (15, 0)
    assert sent_header(made.negotiated(probe_answer(question), 0.0))[:2] == (18, 0)
    assert made.gave_up(Outcome.SILENT)
    assert made.connected(1.0) == []
    assert (made.taken_for, made.guessed) == ("0.9.0", True)
    told = connection(doubted=True, versions=Versions({3: (0, 1)}))
    assert told.connected(0.0) == []
    assert not told.guessed


def test_an_answer_to_a_probe_must_have_its_correlation_id() -> None:
    made = connection()
    made.connected(0.0)
    made.gave_up(Outcome.CLOSED)
    made.connected(0.0)
    made.gave_up(Outcome.CLOSED)
    cid = sent_header(made.connected(0.0))[2]
    with pytest.raises(ProtocolError, match="correlation id"):
        made.negotiated(memoryview(struct.pack(">ii", cid + 1, 0)), 0.0)


@pytest.mark.parametrize("told", ["0.8.2", "0.9.0.1"])
def test_a_version_below_0_10_is_taken_at_its_word(told: str) -> None:
    made = connection(told)
    assert made.connected(0.0) == []
    assert made.state is State.OPEN


def test_a_told_version_from_0_10_on_is_asked_and_taken_if_the_peer_closes() -> None:
    made = connection("0.10.2")
    assert sent_header(made.connected(0.0))[:2] == (18, 4)
    assert made.gave_up(Outcome.CLOSED)
    assert sent_header(made.connected(0.0))[:2] == (18, 0)
    assert made.gave_up(Outcome.CLOSED)
    assert made.connected(0.0) == []
    assert made.state is State.OPEN
    assert made.versions is not None
    assert made.versions.ranges[1] == (0, 3)
    assert not made.gave_up(Outcome.CLOSED), "open: nothing is asked any more"


def test_an_unknown_broker_version_is_refused_before_any_connection() -> None:
    with pytest.raises(ConfigurationError, match=r"0\.7"):
        connection("0.7")


def test_a_broker_that_names_no_api_gives_a_clear_unsupported_version() -> None:
    made = connection()
    _, version, cid = sent_header(made.connected(0.0))
    made.negotiated(said(cid, version), 0.0)
    with pytest.raises(UnsupportedVersion, match="Metadata") as raised:
        made.prepare(MetadataRequest(topics=None), None, 0.0, 1.0)
    assert raised.value.broker == "b1:9092"
    assert made.in_flight == 0


def test_garbage_instead_of_an_answer_names_broker_and_api() -> None:
    made = connection()
    cid = sent_header(made.connected(0.0))[2]
    with pytest.raises(ProtocolError, match=r"b1:9092.*ApiVersions") as raised:
        made.negotiated(memoryview(struct.pack(">ih", cid, 0) + b"\xff" * 40), 0.0)
    assert (raised.value.broker, raised.value.api) == (1, "ApiVersions")


# -- states
def test_a_move_that_is_not_in_the_table_raises() -> None:
    made = connection()
    with pytest.raises(KeyError):
        made.connecting()
    assert (State.CLOSED, Event.CONNECT) not in MOVES


def test_every_state_can_be_lost() -> None:
    assert all(MOVES[state, Event.LOSE] is State.CLOSED for state in State)


@pytest.mark.parametrize("table", [UNTOLD, TOLD], ids=["untold", "told"])
def test_no_chain_of_questions_is_a_loop(table: dict[tuple[Ask, Outcome], Ask]) -> None:
    def longest(ask: Ask, seen: tuple[Ask, ...]) -> int:
        assert ask not in seen, f"{seen} leads back to {ask}"
        return 1 + max((longest(following, (*seen, ask)) for (this, _), following in table.items() if this is ask), default=0)

    assert longest(Ask.HIGHEST, ()) <= 6


# -- frames
@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"HTTP", "HTTP"),
        (b"\x15\x03\x01\x00", r"TLS alert.*security_protocol='SSL'"),
        (b"\x16\x03\x03\x00", "TLS"),
        (b"SSH-", "SSH"),
        (b"220 ", "text '220 '"),
        (b"\xff\xff\xff\xff", "negative"),
        (b"\x80\x00\x00\x00", "negative"),
        (b"\x00\x00\x00\x00", "too small"),
        (b"\x00\x00\x00\x03", "too small"),
        (b"\x7f\xff\xff\xff", "2147483647 bytes.*max_response_bytes"),
    ],
)
def test_a_size_that_cannot_be_is_refused_with_a_hint(start: bytes, hint: str) -> None:
    with pytest.raises(ProtocolError, match=hint) as raised:
        frame_size(start, 1 << 20, "b1:9092")
    assert raised.value.broker == "b1:9092"


@pytest.mark.parametrize("size", [4, 1000, 1 << 20])
def test_a_size_within_the_limit_is_taken(size: int) -> None:
    assert frame_size(struct.pack(">i", size), 1 << 20, "b") == size


def test_http_is_recognised_even_where_its_number_is_an_allowed_size() -> None:
    made = connection(max_response_bytes=(1 << 31) - 1)
    made.connected(0.0)
    with pytest.raises(ProtocolError, match="HTTP"):
        made.frame_size(b"HTTP")
    assert opened(max_response_bytes=(1 << 31) - 1).frame_size(b"HTTP") == 0x48545450


# -- requests and answers
def metadata_answer(cid: int, version: int) -> memoryview:
    return frame(encode_response(MetadataResponse(cluster_id="x"), version, cid))


def test_answers_belong_to_requests_in_the_order_they_were_sent() -> None:
    made = opened()
    headers = [sent_header(made.prepare(MetadataRequest(topics=None), name, 0.0, 10.0)) for name in "abc"]
    assert made.in_flight == 3
    for (_, version, cid), name in zip(headers, "abc", strict=True):
        answer = metadata_answer(cid, version)
        sent = made.take(answer)
        assert sent.token == name
        assert made.decode(sent, answer).cluster_id == "x"
    assert made.in_flight == 0
    assert made.deadline is None


def test_an_answer_to_something_else_is_a_protocol_error() -> None:
    made = opened()
    _, version, first = sent_header(made.prepare(MetadataRequest(topics=None), "a", 0.0, 10.0))
    _, _, second = sent_header(made.prepare(MetadataRequest(topics=None), "b", 0.0, 10.0))
    with pytest.raises(ProtocolError, match=f"correlation id {second}.*Metadata \\({first}\\)") as raised:
        made.take(metadata_answer(second, version))
    assert (raised.value.api, raised.value.broker) == ("Metadata", 1)
    assert [sent.token for sent in made.lose()] == ["a", "b"]


def test_an_answer_of_zeros_matches_nothing() -> None:
    made = opened()
    made.prepare(MetadataRequest(topics=None), "a", 0.0, 10.0)
    with pytest.raises(ProtocolError, match="correlation id 0"):
        made.take(memoryview(bytes(8)))


def test_an_answer_to_nothing_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="nothing was asked"):
        opened().take(memoryview(bytes(8)))


def test_a_request_without_an_answer_is_not_in_flight() -> None:
    made = opened()
    made.prepare(MetadataRequest(topics=None), "a", 0.0, 10.0, expects_response=False)
    assert (made.in_flight, made.deadline) == (0, None)


def test_a_request_that_cannot_be_said_leaves_the_connection_as_it_was() -> None:
    made = opened()
    before = sent_header(made.prepare(MetadataRequest(topics=None), "a", 0.0, 10.0))[2]
    with pytest.raises(UnsupportedVersion):
        made.prepare(FetchRequest(max_wait_ms=1, min_bytes=1), "f", 0.0, 10.0, max_version=3)
    assert made.in_flight == 1
    assert sent_header(made.prepare(MetadataRequest(topics=None), "b", 0.0, 10.0))[2] == before + 1


def test_correlation_ids_stay_positive_int32() -> None:
    made = opened()
    made._next_id = 0x7FFFFFFF
    assert sent_header(made.prepare(MetadataRequest(topics=None), "a", 0.0, 1.0))[2] == 0x7FFFFFFF
    assert sent_header(made.prepare(MetadataRequest(topics=None), "b", 0.0, 1.0))[2] == 1


def test_a_malformed_answer_names_broker_and_api() -> None:
    made = opened()
    _, version, cid = sent_header(made.prepare(MetadataRequest(topics=None), "a", 0.0, 10.0))
    answer = memoryview(bytes(metadata_answer(cid, version)) + b"x")
    sent = made.take(answer)
    with pytest.raises(ProtocolError, match=r"b1:9092: Metadata") as raised:
        made.decode(sent, answer)
    assert (raised.value.broker, raised.value.api) == (1, "Metadata")


# -- time
def test_a_request_whose_time_is_over_is_named_with_broker_and_seconds() -> None:
    made = opened()
    made.prepare(MetadataRequest(topics=None), "a", 100.0, 2.5)
    assert made.poll(102.4) == []
    (late,) = made.poll(102.5)
    error = made.overdue(late)
    assert isinstance(error, KafkaTimeoutError)
    assert (error.api, error.broker) == ("Metadata", 1)
    assert "b1:9092" in str(error)
    assert "2.5 s" in str(error)


def test_a_short_request_behind_a_long_poll_is_seen_in_time() -> None:
    made = opened()
    made.prepare(MetadataRequest(topics=None), "long", 0.0, 30.0)
    made.prepare(MetadataRequest(topics=None), "short", 1.0, 2.0)
    assert made.deadline == 3.0
    assert [sent.token for sent in made.poll(3.0)] == ["short"]


@given(st.lists(st.one_of(st.floats(0.1, 100), st.none()), max_size=60))
def test_the_deadline_is_always_the_earliest_in_flight(steps: list[float | None]) -> None:
    """A number sends a request with that timeout; None takes the answer to the oldest one."""
    made = opened()
    expected: list[tuple[float, int, int]] = []
    for now, timeout in enumerate(steps):
        if timeout is not None:
            _, version, cid = sent_header(made.prepare(MetadataRequest(topics=None), None, float(now), timeout))
            expected.append((now + timeout, version, cid))
        elif expected:
            _, version, cid = expected.pop(0)
            made.take(metadata_answer(cid, version))
        assert made.deadline == min((deadline for deadline, _, _ in expected), default=None)
        assert made.in_flight == len(expected)


def test_what_was_in_flight_is_lost_once() -> None:
    made = opened()
    made.prepare(MetadataRequest(topics=None), "a", 0.0, 1.0)
    assert [sent.token for sent in made.lose()] == ["a"]
    assert made.lose() == []
    assert made.state is State.CLOSED
    with pytest.raises(RuntimeError, match="closed"):
        made.prepare(MetadataRequest(topics=None), "b", 0.0, 1.0)


# -- what an error tells while the connection is opened
@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (100 << 20, "more than the 1048576 that are accepted before the connection is open"),
        (1000, r"more than the 1000 .*max_response_bytes"),
    ],
)
def test_the_bound_before_a_connection_is_open_is_called_what_it_is(limit: int, told: str) -> None:
    made = connection(max_response_bytes=limit)
    made.connected(0.0)
    with pytest.raises(ProtocolError, match=told) as raised:
        made.frame_size(struct.pack(">i", 1 << 21))
    assert (raised.value.broker, raised.value.api) == (1, "ApiVersions")


def test_an_error_names_the_api_of_the_question_that_was_asked() -> None:
    made = connection()
    made.connected(0.0)
    made.gave_up(Outcome.SILENT)
    cid = sent_header(made.connected(0.0))[2]
    with pytest.raises(ProtocolError, match=r"where DescribeGroups \(\d+\) is to be answered") as raised:
        made.negotiated(memoryview(struct.pack(">ii", cid + 1, 0)), 0.0)
    assert (raised.value.broker, raised.value.api) == (1, "DescribeGroups")
    with pytest.raises(ProtocolError, match=r"in place of the answer to .*DescribeGroups v0") as raised:
        made.frame_size(struct.pack(">i", -5))
    assert (raised.value.broker, raised.value.api) == (1, "DescribeGroups")


def test_an_error_of_a_size_that_nothing_asked_for_names_the_broker() -> None:
    made = connection("0.9.0.1")
    made.connected(0.0)
    with pytest.raises(ProtocolError, match="b1:9092") as raised:
        made.frame_size(struct.pack(">i", -5))
    assert (raised.value.broker, raised.value.api) == (1, None)
