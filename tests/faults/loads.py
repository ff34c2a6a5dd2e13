"""What callers do with a client while they are cut off; and bursts of records of a producer."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gkafka.exceptions import KafkaException
from tests.faults.guns import PRODUCER, Aim
from tests.faults.inside import Inside, judge_plain
from tests.faults.ledger import Row, Verdict
from tests.faults.stage import PARTITIONS
from tests.kit import clock

__all__ = ["BUFFER_BYTES", "TIMEOUT_S", "Bursts", "Call", "Workload"]

TIMEOUT_S = 20.0
CALL_S = 10.0
BUFFER_BYTES = 131072
BURST = {"threading": 30, "gevent": 12}

Call = Callable[..., Any]
"""call(function, *args, **kwargs): calls it, perhaps under fire, and returns what it returns."""


class Workload:
    """What callers do with a client while they are cut off.

    limit_s: of each call. slow: how much longer shots wait than at bursts of records. steady: so
    many callers at most work undisturbed beside one that is shot at. aim: the threads that are shot
    at. turn: held by a caller while it works.
    """

    limit_s: ClassVar[float] = CALL_S
    slow: ClassVar[float] = 1.0
    steady: ClassVar[int] = 0
    aim: ClassVar[Aim]

    def __init__(self, inside: Inside, client: Any, chance: random.Random) -> None:
        self.inside, self.client, self.chance = inside, client, chance
        self.turn: Any = contextlib.nullcontext()

    @property
    def played(self) -> dict[str, int]:
        """What has to have happened."""
        return {}

    @property
    def also(self) -> dict[str, int]:
        """What may have happened."""
        return {}

    @property
    def is_disturbed(self) -> bool:
        """Whether shots and connections that end have shown in what it counts."""
        return True

    def done(self) -> int:
        """Return how many records it has produced, or consumed."""
        raise NotImplementedError

    def once(self, lane: int, call: Call) -> None:
        """Do one piece of work, as this caller."""
        raise NotImplementedError

    def beside(self, lane: int) -> None:
        """Do one piece of work that nobody cuts off."""
        raise NotImplementedError

    def end(self) -> None:
        """Do once more what there is to do. Nobody is cut off any more."""
        raise NotImplementedError

    def release(self) -> None:
        """End what it has started beside the client."""

    def close_client(self, close: Callable[[], Any]) -> None:
        """Call close(), which is bounded and ends all workers."""
        began = clock.now()
        with contextlib.suppress(KafkaException):
            close()
            self.client.close(5)
        self.inside.expect(clock.figure(clock.now() - began) < 10.5 + self.inside.form.room_s, "close() took too long")
        left = [worker for worker in self.client.handler.workers() if worker.is_alive()]
        self.inside.expect(not left, f"workers that did not end: {left}")


class Bursts(Workload):
    """Each piece of work is so many records that callers wait for room, too; then perhaps a wait for a delivery, or for all."""

    steady = 7
    aim = PRODUCER

    def __init__(self, inside: Inside, client: Any, chance: random.Random) -> None:
        super().__init__(inside, client, chance)
        self.producer: Any = self.make()

    @property
    def is_disturbed(self) -> bool:
        return self.inside.has_retried(self.producer)

    def done(self) -> int:
        return sum(e.acknowledged for e in self.inside.ledger.entries)

    def make(self) -> Any:
        return self.client.get_producer(
            delivery_timeout_ms=TIMEOUT_S * 1000,
            max_block_ms=CALL_S * 1000,
            linger_ms=2,
            batch_bytes=4096,
            buffer_bytes=BUFFER_BYTES,
            max_request_bytes=65536,
        )

    def once(self, lane: int, call: Call) -> None:
        delivery = None
        for _ in range(self.chance.randrange(1, BURST[self.inside.handler])):
            entry, value = self.inside.offer(lane)
            delivery = call(self.producer.produce, entry.topic, value, partition=entry.partition)
            self.inside.accepted(entry, delivery)
        what = self.chance.random()
        if what < 0.15 and delivery is not None:
            call(delivery.result, CALL_S)
        elif what < 0.25:
            call(self.producer.flush, CALL_S)

    def beside(self, lane: int) -> None:
        self.inside.produce(self.producer, lane)

    def end(self) -> None:
        """The producer still does everything."""
        with contextlib.suppress(KafkaException):
            self.producer.flush(TIMEOUT_S + 5)
        for partition in range(PARTITIONS):
            try:
                self.inside.produce(self.producer, -1, partition).result(60)
            except Exception as error:
                self.inside.blame.append(f"the producer does not go on: {error!r}")
        self.close()

    def close(self) -> None:
        inside, producer = self.inside, self.producer
        stats = producer.stats()
        inside.expect(stats["unsettled_records"] == 0, f"{stats['unsettled_records']} records are still unsettled")
        free = stats["buffer_bytes_free"]
        inside.expect(free >= BUFFER_BYTES - 65536, f"only {free} of {BUFFER_BYTES} bytes came back")
        inside.count(producer)
        self.close_client(lambda: producer.close(10))

    def judge(self, verdict: Verdict, log: Sequence[Row], committed: Sequence[Row]) -> None:
        judge_plain(verdict, log, committed)
