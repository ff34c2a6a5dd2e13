"""Consume, transform, produce: copies a topic in transactions, as a process of its own that may be killed at any point.

    python -m tests.faults.copier '{"handler": "gevent", "hosts": "...", "source": "a", "target": "b", "group": "g", "name": "copier", ...}'

Standard input: lines with the number of records up to which it may copy; its end ends the copier. Standard output: one JSON object a line
after each transaction. Status 0: everything was copied; 3: another of its name has fenced it off.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from typing import Any

from gkafka import KafkaClient
from gkafka.common import OffsetType
from gkafka.exceptions import KafkaTimeoutError, TransactionAbortableError, TransactionFatalError
from tests.kit.clock import now

__all__ = ["FENCED", "Copy"]

FENCED = 3
LONGEST_S = 600.0


@dataclasses.dataclass(frozen=True)
class Copy:
    """What a copier is to do. count: records of the source; batch: of one transaction."""

    handler: str
    hosts: str
    source: str
    target: str
    group: str
    name: str
    count: int
    batch: int


class Copier:
    def __init__(self, task: Copy) -> None:
        self._task = task
        self._client = KafkaClient(task.hosts, handler=task.handler, auto_create_topics=False)
        self._producer = self._client.get_producer(transactional_id=task.name, delivery_timeout_ms=60_000, request_timeout_ms=10_000)
        self._deadline = now() + LONGEST_S
        self._aborts = self._unclear = self.limit = 0

    def run(self) -> None:
        self._patiently(lambda: self._producer.init_transactions(10))
        while not self._copy_from_committed():
            pass
        self._client.close(5)

    def _copy_from_committed(self) -> bool:
        """Go on where the last committed transaction ended, until nothing is left (True) or a transaction has to be aborted."""
        consumer: Any = self._client.topics[self._task.source].get_simple_consumer(
            auto_offset_reset=OffsetType.EARLIEST, consumer_group=self._task.group, queued_max_messages=2 * self._task.batch
        )
        try:
            position = {p: max(0, at + 1) for p, at in consumer.held_offsets.items()}
            self._report(position)
            while sum(position.values()) < self._task.count:
                while sum(position.values()) >= self.limit and now() < self._deadline:
                    self._client.handler.sleep(0.01)
                messages = consumer.consume_batch(self._task.batch, timeout_ms=1000)
                if messages and not self._copy(messages, position):
                    return False
                self._report(position)
            return True
        finally:
            consumer.stop()

    def _copy(self, messages: list[Any], position: dict[int, int]) -> bool:
        """One transaction. False: it was aborted."""
        task, producer = self._task, self._producer
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(task.target, message.value, partition=message.partition_id)
                position[message.partition_id] = message.offset + 1
            offsets = {(task.source, p): at for p, at in position.items()}
            self._patiently(lambda: producer.send_offsets(offsets, task.group, 10))
            self._patiently(lambda: producer.commit_transaction(10))
        except TransactionAbortableError:
            self._aborts += 1
            self._patiently(lambda: producer.abort_transaction(10))
            return False
        return True

    def _patiently(self, call: Any) -> None:
        """A timeout leaves the outcome open: the same call tells it."""
        while True:
            try:
                call()
                return
            except KafkaTimeoutError:
                self._unclear += 1
                if now() > self._deadline:
                    raise

    def _report(self, position: dict[int, int]) -> None:
        print(json.dumps({"copied": sum(position.values()), "aborts": self._aborts, "unclear": self._unclear}), flush=True)


def _obey(copier: Copier) -> None:
    for line in sys.stdin:
        copier.limit = int(line)
    os._exit(1)


if __name__ == "__main__":
    copier = Copier(Copy(**json.loads(sys.argv[1])))
    threading.Thread(target=_obey, args=(copier,), daemon=True).start()
    try:
        copier.run()
    except TransactionFatalError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(FENCED)
    os._exit(0)  # the thread that reads standard input waits for ever
