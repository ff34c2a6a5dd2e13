"""Asking a broker for a producer id (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka.broker import CONTROL
from gkafka.core.numbering import Idempotence
from gkafka.exceptions import KafkaException, KafkaTimeoutError
from gkafka.logs import get_logger
from gkafka.net.channel import CutShort
from gkafka.net.looks import LOST_S

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.core.sender import Sender
    from gkafka.engineworker import EngineWorker

__all__ = ["ProducerIds"]

log = get_logger(__name__)

NEVER = float("inf")


class ProducerIds:
    """Asks for the sender's producer id, by one request at a time.

    lock: guards the sender. timeout_s: of a request. on_fatal: is called with the error if there
    will be no id. lost_at: when the answer counts as lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        lock: Any,
        sender: Sender,
        worker: EngineWorker,
        timeout_s: float,
        on_fatal: Callable[[KafkaException], None],
    ) -> None:
        self._cluster, self._handler, self._lock, self._sender, self._worker = cluster, cluster.handler, lock, sender, worker
        self._timeout_s, self._on_fatal = timeout_s, on_fatal
        self._asked: object = None  # the request whose answer counts
        self.lost_at = NEVER

    def ask(self) -> None:
        """Ask the broker with the least to do."""
        request = self._asked = self._sender.producer_id_request()
        self.lost_at = self._handler.monotonic() + self._timeout_s + LOST_S
        broker = min(list(self._cluster._brokers.values()), key=lambda b: (b.ready_at, *b.load), default=None)
        try:
            if broker is None:
                raise KafkaTimeoutError("no broker is known yet")
            broker.send(CONTROL, request, partial(self._on_answer, request), timeout_s=self._timeout_s)
        except KafkaException as exc:
            self._on_answer(request, None, exc)

    def restart(self) -> None:
        """Under the lock: forget the request, if there is one. Somebody was interrupted, or its answer is lost."""
        if self._sender.state is Idempotence.ASKED:
            self._asked, self.lost_at = None, NEVER
            self._sender.numbering.ask_again()

    def _on_answer(self, asked: object, response: Any, error: KafkaException | None) -> None:
        with self._worker.mark:
            with self._lock:
                if asked is not self._asked:
                    return  # the worker has begun anew
                self._asked, self.lost_at, fatal = None, NEVER, None
                if isinstance(error, CutShort):
                    self._sender.numbering.ask_again()
                else:
                    fatal = self._sender.on_producer_id(response, error, self._handler.monotonic())
            if fatal is not None:
                log.error("no producer id: %s", fatal)
                self._on_fatal(fatal)
            self._worker.signal.set()
