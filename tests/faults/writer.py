"""A producer under a fault, as a process of its own: it writes at a steady pace, keeps its ledger, and says how far it is.

    python -m tests.faults.writer '{"client": "gevent", "hosts": "...", "topics": ["t"], "ledger": "path", ...}'

Standard output: one JSON object a line, every tenth of a second. A line on standard input, or its end, ends the writing; then it waits
for what is under way, saves the ledger and says {"ended": true}.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.faults.ledger import Entry, Ledger
from tests.kit import clock

__all__ = ["CLIENTS", "Task"]

CLIENTS = ("threading", "gevent", "confluent")
REPORT_S = 0.1
TURN_S = 0.002
LONGEST_S = 1800.0


@dataclasses.dataclass(frozen=True)
class Task:
    """What a writer is to do. client: one of CLIENTS; rate: records a second, dealt out over all partitions, a tenth of it after `plenty`
    records; size: bytes of a value.
    """

    client: str
    hosts: str
    topics: list[str]
    partitions: int
    ledger: str
    rate: float = 4000.0
    plenty: int = 1 << 40
    size: int = 100
    log: str = ""  # a file for gkafka's DEBUG log
    delivery_timeout_s: float = 120.0
    request_timeout_s: float = 30.0


class Client(Protocol):
    """A client under test, as the writer uses it."""

    def produce(self, entry: Entry, value: bytes) -> None: ...
    def turn(self, seconds: float) -> None: ...
    def finish(self, seconds: float) -> None: ...
    def counters(self) -> dict[str, int]: ...


class Gkafka:
    """gkafka with one of its handlers."""

    def __init__(self, task: Task, resolved: Callable[[Entry, int, str, str], None]) -> None:
        from gkafka import KafkaClient

        self._client = KafkaClient(task.hosts, handler=task.client, auto_create_topics=False)
        self._producer = self._client.get_producer(
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=task.delivery_timeout_s * 1000,
            request_timeout_ms=task.request_timeout_s * 1000,
        )
        self._resolved = resolved
        self._sleep: Callable[[float], object] = time.sleep
        if task.client == "gevent":
            import gevent

            self._sleep = gevent.sleep

    def produce(self, entry: Entry, value: bytes) -> None:
        delivery = self._producer.produce(entry.topic, value, partition=entry.partition)
        delivery.add_done_callback(functools.partial(self._done, entry))

    def _done(self, entry: Entry, delivery: Any) -> None:
        error = delivery.exception(0)
        if error is None:
            self._resolved(entry, delivery.result(0).offset, "", "")
        else:
            self._resolved(entry, -1, type(error).__name__, error.persisted)

    def turn(self, seconds: float) -> None:
        self._sleep(seconds)

    def finish(self, seconds: float) -> None:
        from gkafka.exceptions import DeliveryError

        try:
            self._producer.close(seconds)
        except DeliveryError as error:
            print(f"close: {error}", file=sys.stderr)
        self._client.close(5)

    def counters(self) -> dict[str, int]:
        stats = self._producer.stats()
        return {"retries": stats["retried_batches"], "bumps": stats["epoch_bumps"]}


class Confluent:
    """The control: librdkafka, idempotent, with the same times."""

    def __init__(self, task: Task, resolved: Callable[[Entry, int, str, str], None]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": task.hosts,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(task.delivery_timeout_s * 1000),
                "request.timeout.ms": int(task.request_timeout_s * 1000),
                "socket.timeout.ms": int(task.request_timeout_s * 1000),
                "queue.buffering.max.messages": 2_000_000,
                "log_level": 0,
            }
        )
        self._resolved = resolved
        self._retries = 0

    def produce(self, entry: Entry, value: bytes) -> None:
        self._producer.produce(entry.topic, value, partition=entry.partition, on_delivery=functools.partial(self._done, entry))

    def _done(self, entry: Entry, error: Any, message: Any) -> None:
        if error is None:
            offset = message.offset()
            self._resolved(entry, offset if offset is not None and offset >= 0 else -1, "", "")
        else:
            self._resolved(entry, -1, error.name(), "")

    def turn(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._producer.poll(0)

    def finish(self, seconds: float) -> None:
        self._producer.flush(seconds)

    def counters(self) -> dict[str, int]:
        return {"retries": 0, "bumps": 0}


class Writer:
    """Drives a client until it is told to end."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ledger = Ledger(task.delivery_timeout_s)
        self._client: Client = (Confluent if task.client == "confluent" else Gkafka)(task, self._resolved)
        self._filler = b" " + b"x" * (task.size - 11)
        self._places = [(topic, p) for topic in task.topics for p in range(task.partitions)]
        self._acked = self._failed = 0
        self._newest = dict.fromkeys(self._places, 0.0)
        self._ending = threading.Event()

    def _resolved(self, entry: Entry, offset: int, error: str, persisted: str) -> None:
        self._ledger.resolve(entry, clock.now(), offset, error, persisted)
        if error:
            self._failed += 1
        else:
            self._acked += 1
            self._newest[entry.place] = max(self._newest[entry.place], entry.offered_at)

    def _produce(self, n: int) -> None:
        topic, partition = self._places[n % len(self._places)]
        entry = self._ledger.offer(topic, partition, clock.now())
        try:
            self._client.produce(entry, b"%010d" % entry.id + self._filler)
            entry.accepted_at = clock.now()
        except Exception as error:
            entry.refused, entry.error, entry.persisted = True, type(error).__name__, "no"

    def run(self) -> None:
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        began = reported = clock.now()
        deadline, due = began + LONGEST_S, 0.0
        produced, before = 0, began
        while not self._ending.is_set() and clock.now() < deadline:
            now = clock.now()
            # What a pause of this process cost is not made up for: a burst would be another load than the others carry.
            rate = self._task.rate / (1 if produced < self._task.plenty else 10)
            due = min(due + clock.figure(now - before) * rate, produced + self._task.rate / 4)
            before = now
            while produced < due:
                self._produce(produced)
                produced += 1
            self._client.turn(TURN_S)
            if now - reported >= REPORT_S:
                reported = now
                self._report()
        self._client.finish(self._task.delivery_timeout_s + 2)
        self._settle()
        self._ledger.save(Path(self._task.ledger))
        self._report(ended=True)

    def _settle(self) -> None:
        """Callbacks of what the end resolved may still be on their way."""
        deadline = clock.now() + clock.PATIENCE_S
        while clock.now() < deadline and any(e.accepted_at and e.resolved_at is None for e in self._ledger.entries):
            self._client.turn(0.01)

    def _report(self, ended: bool = False) -> None:
        newest = [[*place, at] for place, at in self._newest.items()]
        counts = {"produced": len(self._ledger.entries), "acked": self._acked, "failed": self._failed, "newest": newest}
        print(json.dumps({"ended": ended, **counts, **self._client.counters()}), flush=True)

    def _wait_for_the_end(self) -> None:
        os.read(0, 1)
        self._ending.set()


if __name__ == "__main__":
    gc.set_threshold(100_000, 50, 1000)  # a ledger of 300,000 entries is not walked again and again: its pauses would count as stalls
    given = Task(**json.loads(sys.argv[1]))
    if given.log:
        logging.basicConfig(filename=given.log, level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    Writer(given).run()
