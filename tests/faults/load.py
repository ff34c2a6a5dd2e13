"""What the groups under a fault read, written by another client as a process of its own: transactions, some of them aborted.

Standard output: one JSON object a line, every tenth of a second. A line on standard input, or its end, ends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
from typing import Any

from tests.faults.consumed import DAMAGED, STRANGER
from tests.kit.clock import now

__all__ = ["FILLER", "Load", "read_value", "value_of"]

FILLER = b"x" * 60
REPORT_S = 0.1
LONGEST_S = 1800.0
ABORT_EVERY = 4


@dataclasses.dataclass(frozen=True)
class Load:
    """topics: name -> partitions; rate: records a second over all; batch: records of a transaction; first: the first id."""

    hosts: str
    topics: dict[str, int]
    rate: float
    batch: int = 50
    first: int = 0


def value_of(id: int) -> bytes:
    """A value that is produced now."""
    return b"%010d %017.6f " % (id, now()) + FILLER


def read_value(value: bytes | None) -> tuple[int, float]:
    """(id, when it was produced) of a value of ours; STRANGER or DAMAGED in place of the id."""
    text = bytes(value or b"")
    if text.startswith(b"aborted") or len(text) != 29 + len(FILLER):
        return STRANGER, 0.0
    try:
        id, produced = int(text[:10]), float(text[11:28])
    except ValueError:
        return DAMAGED, 0.0
    return (id, produced) if text[28:] == b" " + FILLER else (DAMAGED, 0.0)


class _Loader:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._places = [(topic, p) for topic, count in load.topics.items() for p in range(count)]
        self._ending = threading.Event()
        self._id, self._aborted, self._failed = load.first, 0, 0
        self._producer: Any = None

    def run(self) -> None:
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        began = reported = now()
        turn = 0
        while not self._ending.is_set() and now() < began + LONGEST_S:
            started = now()
            turn += 1
            self._one(aborts=turn % ABORT_EVERY == 0)
            if now() - reported >= REPORT_S:
                reported = now()
                self._report()
            self._ending.wait(max(0.0, self._load.batch / self._load.rate - (now() - started)))
        self._report(ended=True)

    def _one(self, aborts: bool) -> None:
        """One transaction. What becomes of one that fails the final dump says."""
        from confluent_kafka import KafkaException, Producer

        try:
            if self._producer is None:
                name = f"load-{os.getpid()}"
                settings = {"bootstrap.servers": self._load.hosts, "transactional.id": name, "linger.ms": 2, "log_level": 0}
                producer = Producer({**settings, "transaction.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 1000})
                producer.init_transactions(30)
                self._producer = producer
            self._producer.begin_transaction()
            for n in range(self._load.batch):
                topic, partition = self._places[(self._id + n) % len(self._places)]
                value = b"aborted " + FILLER if aborts else value_of(self._id + n)
                self._producer.produce(topic, value, partition=partition)
            if aborts:
                self._producer.flush(10)
                self._producer.abort_transaction(10)
                self._aborted += self._load.batch
            else:
                self._producer.commit_transaction(30)
        except KafkaException:
            self._failed += 1
            self._recover()
        finally:
            self._id += self._load.batch

    def _recover(self) -> None:
        producer, self._producer = self._producer, None
        with contextlib.suppress(Exception):
            producer.abort_transaction(5)
            self._producer = producer

    def _report(self, ended: bool = False) -> None:
        print(json.dumps({"ended": ended, "produced": self._id, "aborted": self._aborted, "failed": self._failed}), flush=True)

    def _wait_for_the_end(self) -> None:
        os.read(0, 1)
        self._ending.set()


if __name__ == "__main__":
    _Loader(Load(**json.loads(sys.argv[1]))).run()
