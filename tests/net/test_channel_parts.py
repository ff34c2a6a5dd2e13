"""The parts of a channel, each alone: its backlog and its link, without a socket or a worker."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from gkafka.core.connection import Connection
from gkafka.exceptions import KafkaException, SocketDisconnectedError
from gkafka.handlers import ThreadingHandler
from gkafka.net.backlog import SHORTEST_WAIT_S, Backlog, Queued
from gkafka.net.link import End, Link
from gkafka.wire.metadata import MetadataRequest


class Rig:
    """A backlog, its link, and what its callbacks were called with."""

    def __init__(self, max_in_flight: int | None = None) -> None:
        connection = Connection("host:9092", client_id="c", broker_version="0.10.0", max_response_bytes=1 << 20)
        self.link = Link("host:9092", 1, ThreadingHandler().Mutex())
        self.failed: list[tuple[Any, KafkaException | None]] = []
        self.backlog = Backlog(
            self.link,
            connection,
            max_in_flight=max_in_flight,
            complete=lambda on_done, _, error: self.failed.append((on_done, error)),
            why=lambda: "it rains",
        )

    def put(self, at: float, timeout_s: float) -> Any:
        def on_done(response: Any, error: KafkaException | None) -> None: ...

        self.backlog.put(Queued(MetadataRequest(topics=[]), on_done, at, timeout_s, None, True))
        return on_done


def test_a_waiting_request_fails_at_its_deadline_and_the_others_wait_on() -> None:
    rig = Rig()
    late, other = rig.put(0.0, 1.0), rig.put(0.0, 5.0)
    assert rig.backlog.expires_at == 1.0
    assert rig.backlog.expire(0.5) == 1.0
    assert rig.failed == []
    assert rig.backlog.expire(1.0) == 5.0
    ((on_done, error),) = rig.failed
    assert on_done is late
    assert str(error) == "host:9092: Metadata could not be sent within 1 s: it rains"
    assert error.never_sent  # type: ignore[union-attr]
    assert [queued.on_done for queued in rig.backlog.queued] == [other]


def test_deadlines_are_not_looked_at_all_the_time() -> None:
    rig = Rig()
    assert rig.backlog.expire(0.0) == inf
    rig.put(0.0, 1.001)
    assert rig.backlog.expire(1.0) == 1.0 + SHORTEST_WAIT_S


def test_a_request_is_taken_back_once_and_not_after_the_end() -> None:
    rig = Rig()
    one, other = rig.put(0.0, 5.0), rig.put(0.0, 5.0)
    assert "within 2 s" in str(rig.backlog.withdraw(one, 2.0))
    assert rig.backlog.withdraw(one, 2.0) is None
    rig.link.end = End(None, 2.0)
    assert rig.backlog.withdraw(other, 2.0) is None
    assert rig.failed == []


def test_a_new_request_waits_behind_those_that_wait_for_room() -> None:
    assert not Rig().backlog.must_wait()
    rig = Rig(max_in_flight=1)
    assert not rig.backlog.must_wait()
    rig.put(0.0, 5.0)
    assert rig.backlog.must_wait()
    assert not rig.backlog.is_full(), "nothing is in flight: the one that waits may go"


def test_the_first_fault_is_what_a_connection_ends_with() -> None:
    link = Link("host:9092", 1, ThreadingHandler().Mutex())
    assert not link.is_over()
    link.break_off(OSError("first"))
    link.break_off(OSError("second"))
    assert link.is_over()
    assert "first" in str(link.broken)
    assert link.lost(OSError("third")) is link.broken


def test_a_closed_connection_keeps_no_stream_and_says_why() -> None:
    closed: list[str] = []

    class Stream:
        def close(self) -> None:
            closed.append("closed")

    link = Link("host:9092", 1, ThreadingHandler().Mutex())
    link.raise_if_closed()
    link.end = End(SocketDisconnectedError("it broke"), 0.0)
    stream: Any = Stream()
    with pytest.raises(SocketDisconnectedError, match="it broke"):
        link.hold(stream)
    assert closed == ["closed"]
    assert link.stream is None
    assert link.unsent_error().never_sent
    assert not link.closed_error().never_sent, "a copy says so"
