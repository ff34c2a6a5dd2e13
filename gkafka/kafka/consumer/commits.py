"""Commits of a KafkaConsumer that nobody waits for, and who is told of them."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from gkafka.checks import check_text
from gkafka.common import TopicPartition
from gkafka.exceptions import ForkedClientError
from gkafka.kafka.arguments import check_partition
from gkafka.kafka.errors import IllegalArgumentError, IllegalStateError, KafkaError, WrongTypeError
from gkafka.kafka.future import Future
from gkafka.kafka.protocol.commit import OffsetCommitResponse
from gkafka.kafka.structs import OffsetAndMetadata
from gkafka.logs import get_logger
from gkafka.skins import Handler
from gkafka.starter import held_weakly

__all__ = ["Commits", "default_callback", "offsets_of"]

log = get_logger(__name__)

Callback = Callable[[Any, Any], object]


def default_callback(offsets: Any, response: Any) -> bool:
    """Does nothing."""
    return True


def _log_failure(error: BaseException) -> None:
    log.error("a callback of a commit failed", exc_info=error)


class Commits:
    """One worker commits, in the order in which it was asked, and ends with this. callback: told of every commit in the background that has none of its own."""

    def __init__(self, handler: Handler, callback: Callback) -> None:
        self._handler, self._callback = handler, callback
        self._wake = handler.Event()
        self._due: deque[Callable[[], None]] = deque()
        self._worker: Any = None
        self._ended = False

    def later(self, offsets: dict[TopicPartition, Any], commit: Callable[[], object], callback: Callback | None) -> Future:
        """Have commit() called. The future and the callback (offsets, response) get what comes of it."""
        if callback is not None and not callable(callback):
            raise WrongTypeError(f"callback={callback!r}: must be callable with (offsets, response)")
        if self._ended:
            raise IllegalStateError("commit_async() after close()")
        if self._worker is None:
            me = held_weakly(self, self._wake)
            self._worker = self._handler.spawn_lasting(_work, me, self._due, self._wake, _name="gkafka-commits")
        future = Future(self._handler)
        outcome: list[Any] = []
        told = False

        def do() -> None:  # whoever is interrupted has it called again: it goes on where it was
            nonlocal told
            if not outcome:
                try:
                    commit()
                    outcome.append(_response(offsets))
                except Exception as exc:
                    if self._handler.interrupted(exc):
                        raise
                    outcome.append(exc)
            if not told:
                self._tell(callback or self._callback, offsets, outcome[0])
                told = True
            if isinstance(outcome[0], Exception):
                future.failure(outcome[0])
            else:
                future.success(outcome[0])

        self._due.append(do)
        self._wake.set()
        return future

    def done(self, offsets: Mapping[TopicPartition, int], error: KafkaError | None) -> None:
        """Of a commit of the consumer's own, every auto_commit_interval_ms."""
        given = {tp: OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
        self._tell(self._callback, given, error if error is not None else _response(given))

    def finish(self, timeout_s: float) -> None:
        """Take no more, and wait for those that were asked for. In a forked child they are the parent's."""
        self._ended = True
        if self._worker is not None:
            with contextlib.suppress(ForkedClientError):
                self._handler.check_fork()
                self._wake.set()
                self._worker.join(timeout_s)

    def _tell(self, callback: Callback, offsets: Any, response: Any) -> None:
        self._handler.call_back(callback, offsets, response, failed=_log_failure)


def _work(me: weakref.ref[Commits], due: deque[Callable[[], None]], wake: Any) -> None:
    while True:
        wake.clear()  # before it looks: what comes from here on wakes it again
        commits = me()
        is_over = commits is None or commits._ended
        del commits
        while due:  # each stays where it is until it is done: whoever is interrupted leaves it to the next
            due[0]()
            due.popleft()
        if is_over:
            return
        wake.wait()


def _response(offsets: Mapping[TopicPartition, object]) -> OffsetCommitResponse:
    topics: dict[str, list[tuple[int, int]]] = {}
    for topic, partition in offsets:
        topics.setdefault(topic, []).append((partition, 0))
    return OffsetCommitResponse(list(topics.items()))


def offsets_of(given: Any) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str], dict[TopicPartition, int]]:
    """{TopicPartition: OffsetAndMetadata} as offsets, texts and leader epochs."""
    if not isinstance(given, Mapping):
        raise WrongTypeError(f"offsets={given!r}: must be {{TopicPartition: OffsetAndMetadata}}")
    plain: dict[TopicPartition, int] = {}
    notes: dict[TopicPartition, str] = {}
    epochs: dict[TopicPartition, int] = {}
    for key, entry in given.items():
        tp = check_partition(key)
        if not isinstance(entry, tuple) or len(entry) < 2 or isinstance(entry[0], bool) or not isinstance(entry[0], int):
            raise WrongTypeError(f"offsets[{tp}]={entry!r}: must be an OffsetAndMetadata(offset, metadata)")
        if entry[0] < 0:
            raise IllegalArgumentError(f"offsets[{tp}]={entry!r}: the offset must be 0 or more")
        if entry[1] is not None and not isinstance(entry[1], str):
            raise WrongTypeError(f"offsets[{tp}]={entry!r}: its metadata must be a str")
        plain[tp], notes[tp] = entry[0], check_text(f"offsets[{tp}].metadata", entry[1] or "")
        epoch = entry[2] if len(entry) > 2 else getattr(entry, "leader_epoch", -1)
        if isinstance(epoch, int) and epoch >= 0:
            epochs[tp] = epoch
    return plain, notes, epochs
