"""What the soak plays inside its process: a thousand greenlets that produce, four members of a group, and somebody who kills them."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gkafka.exceptions import DeliveryError, KafkaException, OutOfOrderSequenceNumber
from tests.gevent.harness import LIMIT_S, connect, spawn_all
from tests.kit import clock

SEEN = struct.Struct("<QHQ")
"""A line of a diary: the record's id, its partition, its offset."""
GREENLETS, MEMBERS, PARTITIONS = 1_000, 4, 8
FILL = bytes(192)
PAUSE_S = (0.2, 0.8)
SHORT_S, PAUSE_IN_SHORT_S = 100, (0.5, 2.0)
"""What takes less than the first has the second."""
KILL_EVERY_S = 0.05
LOOK_EVERY_S = 5.0
CLOSE_S = 2 * LIMIT_S


def value_of(id: int) -> bytes:
    return id.to_bytes(8, "big") + FILL


def id_of(value: bytes) -> int:
    return int.from_bytes(value[:8], "big")


class Diary:
    """What was seen of records, in a file: in memory it would hide what the client keeps."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self.count = 0

    def write(self, id: int, partition: int, offset: int) -> None:
        self._file.write(SEEN.pack(id, partition, offset))
        self.count += 1

    def close(self) -> None:
        self._file.close()


def read_diary(path: Path) -> Iterator[tuple[int, int, int]]:
    return SEEN.iter_unpack(path.read_bytes())


class Writers:
    """Greenlets that each send one record after the other and wait for it. One that is killed is replaced; its next record is a new one."""

    def __init__(self, producer: Any, topic: str, diary: Diary, pause_s: tuple[float, float]) -> None:
        self.producer, self.topic, self.diary, self.pause_s = producer, topic, diary, pause_s
        self.failures: Counter[str] = Counter()
        self.killed = self.unsure = 0
        self.ids = itertools.count(1)
        self.on = True
        self.running: list[Any] = []

    def start(self) -> None:
        self.running = spawn_all([self.work] * GREENLETS)

    def work(self) -> None:
        import gevent

        while self.on:
            id = next(self.ids)
            try:
                delivered = self.producer.produce(self.topic, value_of(id)).result(2 * LIMIT_S)
                self.diary.write(id, delivered.partition, delivered.offset)
            except KafkaException as error:
                self.failed(error, error.persisted)
            gevent.sleep(random.uniform(*self.pause_s))

    def failed(self, error: Any, persisted: str | None) -> None:
        """A broker that ends between writing and answering knows of the producer's batches but the last one when it is up again: then nobody can tell
        whether those before it are there, and the producer says so.
        """
        if isinstance(error, OutOfOrderSequenceNumber) and persisted == "maybe":
            self.unsure += 1
        else:
            self.failures[f"{type(error).__name__}: {error}"[:200]] += 1

    def kill_one(self) -> None:
        """Wherever it is: inside produce(), while it waits, or between."""
        import gevent

        at = random.randrange(len(self.running))
        self.running[at].kill(block=False)
        self.running[at] = gevent.spawn(self.work)
        self.killed += 1

    def stop(self) -> None:
        import gevent

        self.on = False
        gevent.joinall(self.running, timeout=2 * LIMIT_S)
        assert all(greenlet.dead for greenlet in self.running), "a writer waits for ever"


class Member:
    """A member of the group: its consumer, and a greenlet that reads. Whoever kills that one gets another, on the same consumer."""

    def __init__(self, hosts: str, topic: str, diary: Diary, furthest: dict[int, int]) -> None:
        import gevent

        self.client: Any = connect(hosts, connect_timeout_ms=1000 * LIMIT_S)
        self.consumer: Any = None
        self.topic, self.diary, self.furthest = topic, diary, furthest
        self.errors: Counter[str] = Counter()
        self.on = True
        self.reader = gevent.spawn(self.read)

    def read(self) -> None:
        import gevent

        while self.on:
            try:
                if self.consumer is None:  # made while the broker was down, it is tried again
                    self.consumer = self.client.get_consumer(self.topic, group="soak", auto_offset_reset="earliest")
                messages = self.consumer.consume_batch(500, timeout_ms=200)
            except KafkaException as error:
                self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
                gevent.sleep(0.2)
                continue
            for message in messages:
                self.diary.write(id_of(message.value), message.partition_id, message.offset)
                self.furthest[message.partition_id] = max(self.furthest.get(message.partition_id, -1), message.offset)

    def kill_reader(self) -> None:
        import gevent

        self.reader.kill(block=False)
        self.reader = gevent.spawn(self.read)

    def leave(self) -> None:
        self.on = False
        self.reader.join(LIMIT_S)
        assert self.reader.dead, "a reader waits for ever"
        self.client.close(CLOSE_S)


def memory_mb() -> float:
    """Resident, without what is free already: garbage in cycles, and what malloc keeps of thousands of greenlets' stacks."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def soak(hosts: str, topic: str, folder: str, seconds: float, rebalance_every_s: float) -> dict[str, Any]:
    """Play it, until everything is consumed. Diaries: acknowledged and consumed, in the folder."""
    import gevent

    gevent.get_hub().NOT_ERROR += (KafkaException,)
    acknowledged, consumed = Diary(Path(folder, "acknowledged")), Diary(Path(folder, "consumed"))
    memory, furthest, errors = [], {}, Counter[str]()
    client = connect(hosts, connect_timeout_ms=1000 * LIMIT_S)
    client.connect(2 * LIMIT_S)  # a client that has never had a broker refuses records
    client.partitions(topic)
    producer: Any = client.get_producer(acks="all", buffer_bytes=8 << 20)
    writers = Writers(producer, topic, acknowledged, PAUSE_IN_SHORT_S if seconds < SHORT_S else PAUSE_S)
    members = [Member(hosts, topic, consumed, furthest) for _ in range(MEMBERS)]
    writers.start()
    began = clock.now()
    rebalanced, killed, looked = began, began, began
    rounds = 0
    while (now := clock.now()) < began + seconds:
        gevent.sleep(0.01)
        if now - killed >= KILL_EVERY_S:
            killed = now
            writers.kill_one()
            if random.random() < 0.1:
                random.choice(members).kill_reader()
        if now - looked >= LOOK_EVERY_S:
            looked = now
            memory.append((now - began, memory_mb()))
        if now - rebalanced >= rebalance_every_s:
            rebalanced, rounds = now, rounds + 1
            gone = members.pop(0)
            gone.leave()
            errors.update(gone.errors)
            members.append(Member(hosts, topic, consumed, furthest))
    writers.stop()
    try:
        producer.flush(2 * LIMIT_S)
    except DeliveryError as error:  # what nobody asked for: their writers were killed
        for record in error.records:
            writers.failed(record.error, record.persisted)
    left = producer.stats()
    ends = {partition: end for (_, partition), end in client.list_offsets({(topic, p): -1 for p in range(PARTITIONS)}).items()}
    deadline = clock.now() + 2 * LIMIT_S
    while any(furthest.get(partition, -1) + 1 < end for partition, end in ends.items()):
        assert clock.now() < deadline, f"consumed up to {furthest} of {ends}"
        gevent.sleep(0.1)
    for member in members:
        member.leave()
        errors.update(member.errors)
    client.close(2 * LIMIT_S)
    acknowledged.close()
    consumed.close()
    return {
        "acknowledged": acknowledged.count,
        "consumed": consumed.count,
        "killed": writers.killed,
        "rebalances": rounds,
        "failures": writers.failures,
        "unsure": writers.unsure,
        "errors": errors,
        "unsettled": left["unsettled_records"],
        "buffer_free": left["buffer_bytes_free"],
        "memory": memory,
        "workers": len(client.handler.workers()),
    }
