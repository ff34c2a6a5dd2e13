"""A member of a group under a fault, as a process of its own: it consumes, commits, and writes everything down.

    python -m tests.faults.member '{"client": "gevent", "kind": "managed", "hosts": "...", "topics": ["t"], "ledger": "path", ...}'

Standard output: one JSON object a line, every tenth of a second. Standard input takes one order a line: "stop" (leave in order), "nap s" (the
application does nothing for so long), "spin s" (it computes for so long).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from tests.faults.consumed import Notes, Place
from tests.faults.load import read_value
from tests.faults.names import COUNTS, install
from tests.kit import clock

__all__ = ["Membership"]

REPORT_S = 0.1
TURN_MS = 100
LONGEST_S = 1800.0


@dataclasses.dataclass(frozen=True)
class Membership:
    """What a member is to do. client: "threading", "gevent" or "confluent"; kind: one of KINDS; name: its own; names: the file of a Names; log: a file for gkafka's DEBUG log;
    commit_every: records, 0 never; callback: one of CALLBACKS; instance: of a static member; options: more keywords of the consumer.
    shots: what cuts its calls or workers off, one of `shotmember.FIRES`.
    """

    client: str
    kind: str
    name: str
    hosts: str
    topics: list[str]
    group: str
    ledger: str
    session_s: float = 6.0
    commit_every: int = 100
    strategy: str = "range"
    zookeeper: str = ""
    names: str = ""
    log: str = ""
    callback: str = ""
    instance: str = ""
    shots: str = ""
    client_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


Taken = list[tuple[str, int, int, bytes | None]]


class Consumer(Protocol):
    """A consumer under test, as the member uses it. take: what one call hands out; commit: where it stands, and says what it committed."""

    def take(self) -> Taken: ...
    def commit(self) -> Mapping[Place, int]: ...
    def stop(self) -> None: ...
    def rest(self, seconds: float) -> None: ...


class _Told:
    """What the member has by its own notes."""

    def __init__(self, path: str) -> None:
        self.notes = Notes(path)
        self.mine: set[Place] = set()
        self.gains = 0

    def assigned(self, places: Iterable[Place]) -> None:
        gained = set(places)
        self.gains += 1
        self.mine |= gained
        self.notes.assigned(clock.now(), sorted(gained))

    def revoked(self, places: Iterable[Place], *, awaited: bool = False) -> None:
        given = self.mine & set(places)
        self.mine -= given
        if given:
            self.notes.revoked(clock.now(), sorted(given), awaited=awaited)

    def cut(self, error: Any) -> None:
        """What a LogTruncationError says."""
        self.notes.cut(clock.now(), (error.topic, error.partition), error.lost)

    def lost(self, places: Iterable[Place]) -> None:
        gone = self.mine & set(places)
        self.mine -= gone
        if gone:
            self.notes.lost(clock.now(), sorted(gone))


class _Cuts(logging.Handler):
    """Hears what is logged of records that are lost where the application goes on without them."""

    def __init__(self, told: _Told) -> None:
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        error = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if hasattr(error, "lost"):
            self._told.cut(error)


class _Ours:
    """What gkafka's consumers have in common here."""

    def __init__(self, given: Membership, told: _Told) -> None:
        from gkafka import KafkaClient

        logging.getLogger("gkafka.core.lookups").addHandler(_Cuts(told))
        self._given, self._told = given, told
        named: dict[str, Any] = {"handler": given.client, "client_id": given.name, "auto_create_topics": False}
        self._client = KafkaClient(given.hosts, **named, **given.client_options)
        self._consumer: Any = None

    def take(self) -> Taken:
        kept: list[Any] = []
        self.take_into(kept)
        return self.shown(kept)

    def take_into(self, kept: list[Any]) -> None:
        """Add what one call hands out, in the same step."""
        kept.extend(self._consumer.consume_batch(200, TURN_MS))

    def shown(self, messages: Iterable[Any]) -> Taken:
        return [(m.topic, m.partition_id, m.offset, m.value) for m in messages]

    def commit(self) -> Mapping[Place, int]:
        topic = self._given.topics[0]
        held = self._consumer.held_offsets
        self._consumer.commit_offsets()
        return {(topic, p): last + 1 for p, last in held.items() if last >= 0}

    def commit_one(self, chance: random.Random) -> None:
        """Commit where one partition stands."""

    def leave(self) -> None:
        """Leave the group."""
        self._consumer.stop()

    def come_back(self) -> None:
        """Join again."""
        self._consumer.start()

    def stop(self) -> None:
        self._consumer.stop()
        self._client.close(5)

    def rest(self, seconds: float) -> None:
        self._client.handler.sleep(seconds)


class Simple(_Ours):
    """topic.get_simple_consumer(): all partitions, no membership, commits for the group."""

    def __init__(self, given: Membership, told: _Told) -> None:
        super().__init__(given, told)
        topic = self._client.topics[given.topics[0]]
        told.assigned((given.topics[0], p) for p in topic.partitions)
        self._consumer = topic.get_simple_consumer(given.group, **given.options)

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.commit()
        super().stop()
        self._told.revoked(self._told.mine)


class Native(_Ours):
    """client.get_consumer() as a member of a group."""

    def __init__(self, given: Membership, told: _Told) -> None:
        super().__init__(given, told)
        self.come_back()

    def come_back(self) -> None:
        given, told = self._given, self._told
        options: dict[str, Any] = {"group_protocol": "consumer"}
        if given.kind != "kip848":  # there the brokers say how often it speaks, and divide
            times = {"session_timeout_ms": given.session_s * 1000, "heartbeat_interval_ms": 500}
            options = {**times, "assignors": [given.strategy]}
        listeners = {
            "on_assigned": self._assigned,
            "on_revoked": lambda consumer, partitions: told.revoked(map(tuple, partitions), awaited=True),
            "on_lost": lambda consumer, partitions: told.lost(map(tuple, partitions)),
        }
        self._consumer = self._client.get_consumer(
            given.topics,
            group=given.group,
            group_instance_id=given.instance or None,
            auto_commit_interval_ms=60_000,
            **options,
            **listeners,
            **given.options,
        )

    def commit_one(self, chance: random.Random) -> None:
        places = [(tp, at) for tp, at in self._consumer.positions().items() if at >= 0]
        if places:
            self._consumer.commit(dict([chance.choice(places)]))

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        self._told.assigned(map(tuple, partitions))
        if self._given.options.get("auto_offset_reset") == "none":
            for each in partitions:
                if consumer.committed(each) < 0:
                    consumer.seek(each, -2)
        if self._given.callback:
            CALLBACKS[self._given.callback](consumer)

    def take(self) -> Taken:
        from gkafka.exceptions import LogTruncationError

        try:
            return super().take()
        except LogTruncationError as error:
            self._told.cut(error)
            self._consumer.seek((error.topic, error.partition), error.diverging_offset)
            return []

    def commit(self) -> Mapping[Place, int]:
        offsets = {(tp.topic, tp.partition): at for tp, at in self._consumer.positions().items() if at >= 0}
        self._consumer.commit()
        return offsets


class Sharing(_Ours):
    """topic.get_balanced_consumer(), managed or with ZooKeeper. What it has is noted where it takes and gives up its consumer inside."""

    def __init__(self, given: Membership, told: _Told) -> None:
        super().__init__(given, told)
        self._overhear()
        options: dict[str, Any] = {"auto_commit_enable": True, "auto_commit_interval_ms": 60_000, "rebalance_backoff_ms": 500}
        if given.kind == "managed":
            from gkafka import RangeProtocol, RoundRobinProtocol, managedbalancedconsumer

            managedbalancedconsumer.SESSION_S = given.session_s  # pykafka has no keyword for it
            protocol = {"range": RangeProtocol, "roundrobin": RoundRobinProtocol}[given.strategy]
            options |= {"managed": True, "heartbeat_interval_ms": 500, "membership_protocol": protocol}
        else:
            options |= {"zookeeper_connect": given.zookeeper, "zookeeper_connection_timeout_ms": given.session_s * 1000}
            options["rebalance_max_retries"] = 1000
        if given.callback:
            options["post_rebalance_callback"] = CALLBACKS[given.callback]
        topic = self._client.topics[given.topics[0]]
        self._consumer = topic.get_balanced_consumer(given.group, **options, **given.options)

    def _overhear(self) -> None:
        from gkafka.balancing import Balancing

        topic, told = self._given.topics[0], self._told
        switch, stop_inside, lose = Balancing._switch, Balancing._stop_inside, Balancing._lose
        losing: list[bool] = []

        def noted_switch(consumer: Balancing, change: Callable[[], Iterable[int]], **keywords: Any) -> None:
            def noted_change() -> Iterable[int]:
                mine = set(change())
                told.assigned((topic, p) for p in mine)
                return mine

            switch(consumer, noted_change, **keywords)

        def noted_stop_inside(consumer: Balancing) -> dict[int, int]:
            stood = stop_inside(consumer)
            if not losing:
                told.revoked(told.mine)
            return stood

        def noted_lose(consumer: Balancing) -> None:
            losing.append(True)
            try:
                lose(consumer)
            finally:
                losing.pop()
            told.lost(told.mine)

        Balancing._switch = noted_switch  # type: ignore[method-assign,assignment]
        Balancing._stop_inside = noted_stop_inside  # type: ignore[method-assign,assignment]
        Balancing._lose = noted_lose  # type: ignore[method-assign,assignment]

    @property
    def session(self) -> Any:
        """Of the one with ZooKeeper: (id, password)."""
        registry = getattr(self._consumer, "_registry", None)
        return None if registry is None else registry._client.client_id


class Confluent:
    """The control."""

    def __init__(self, given: Membership, told: _Told) -> None:
        from confluent_kafka import Consumer as Control

        self._told = told
        self._consumer = Control(
            {
                "bootstrap.servers": given.hosts,
                "client.id": given.name,
                "group.id": given.group,
                "topic.metadata.refresh.interval.ms": 5000,
                "session.timeout.ms": int(given.session_s * 1000),
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": given.strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "log_level": 0,
                **({"group.instance.id": given.instance} if given.instance else {}),
                **given.options,
            }
        )
        self._consumer.subscribe(given.topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        self._told.assigned((p.topic, p.partition) for p in partitions)

    def _revoked(self, consumer: Any, partitions: Any) -> None:
        with contextlib.suppress(Exception):
            consumer.commit(asynchronous=False)
        self._told.revoked((p.topic, p.partition) for p in partitions)

    def _lost(self, consumer: Any, partitions: Any) -> None:
        self._told.lost((p.topic, p.partition) for p in partitions)

    def take(self) -> Taken:
        found = self._consumer.consume(200, TURN_MS / 1000)
        return [(m.topic(), m.partition(), m.offset(), m.value()) for m in found if m.error() is None]  # type: ignore[misc]

    def commit(self) -> Mapping[Place, int]:
        done = self._consumer.commit(asynchronous=False) or []
        return {(p.topic, p.partition): p.offset for p in done if p.error is None and p.offset >= 0}

    def stop(self) -> None:
        self._consumer.close()

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


KINDS: dict[str, Callable[[Membership, _Told], Consumer]] = {
    "simple": Simple,
    "native": Native,
    "eager": Native,
    "kip848": Native,
    "managed": Sharing,
    "zookeeper": Sharing,
    "confluent": Confluent,
}


def _raises(consumer: Any, *_: Any) -> None:
    raise ValueError("the application's own")


def _commits(consumer: Any, *_: Any) -> None:
    (consumer.commit if hasattr(consumer, "commit") else consumer.commit_offsets)()


def _spins(consumer: Any, *_: Any) -> None:
    spin(5.0)


CALLBACKS = {"raises": _raises, "commits": _commits, "spins": _spins}


def spin(seconds: float) -> None:
    """Compute, without ever waiting."""
    end = clock.soon(seconds)
    while clock.now() < end:
        sum(range(1000))


class Member:
    """Drives a consumer until it is told to stop."""

    def __init__(self, given: Membership) -> None:
        self._given = given
        self._told = _Told(given.ledger)
        self._orders: deque[str] = deque()
        threading.Thread(target=self._listen, daemon=True).start()
        self._consumer = KINDS["confluent" if given.client == "confluent" else given.kind](given, self._told)
        self._read = self._since = self._problems = 0
        self._newest: dict[Place, tuple[int, float]] = {}
        self._report_at = 0.0

    def run(self) -> None:
        deadline = clock.now() + LONGEST_S
        while clock.now() < deadline and self._turn():
            pass
        self._consumer.stop()
        self._told.notes.stopped(clock.now())
        self._report(ended=True)

    def _turn(self) -> bool:
        """Return False when it was told to stop."""
        self._report()
        if self._orders and self._obey(self._orders.popleft()):
            return False
        self._take()
        if self._given.commit_every and self._since >= self._given.commit_every:
            self._commit()
        return True

    def _take(self) -> None:
        began = clock.now()
        try:
            taken = self._consumer.take()
        except Exception as error:
            self._note(error)
            return
        self._took(began, taken)

    def _took(self, began: clock.Moment, taken: Taken) -> None:
        now = clock.now()
        if not taken:
            return
        records = []
        for topic, partition, offset, value in taken:
            id, produced = read_value(value)
            records.append((topic, partition, offset, id, produced))
            newest = self._newest.get((topic, partition), (-1, 0.0))
            self._newest[topic, partition] = max(id, newest[0]), max(produced, newest[1])
        self._told.notes.read(began, now, records)
        self._read += len(records)
        self._since += len(records)

    def _commit(self) -> None:
        began = clock.now()
        self._since = 0
        try:
            offsets = self._consumer.commit()
        except Exception as error:
            self._told.notes.committed(began, clock.now(), {}, type(error).__name__)
            return
        self._told.notes.committed(began, clock.now(), offsets)

    def _note(self, error: BaseException) -> None:
        self._problems += 1
        self._told.notes.problem(clock.now(), error)
        self._consumer.rest(0.02)

    def _obey(self, order: str) -> bool:
        what, _, seconds = order.partition(" ")
        if what == "nap":
            self._consumer.rest(float(seconds))
        elif what == "spin":
            spin(float(seconds))
        return what == "stop"

    def _report(self, ended: bool = False) -> None:
        if clock.now() < self._report_at and not ended:
            return
        self._report_at = clock.soon(REPORT_S)
        newest = [[*place, *at] for place, at in self._newest.items()]
        counts = {
            **COUNTS,
            "read": self._read,
            "gains": self._told.gains,
            "problems": self._problems,
            **self._more(),
        }
        mine = sorted(self._told.mine)
        session = getattr(self._consumer, "session", None)
        more = {"session": [session[0], session[1].hex()]} if session else {}
        print(json.dumps({"ended": ended, "mine": mine, "newest": newest, **counts, **more}), flush=True)

    def _more(self) -> Mapping[str, Any]:
        """Return what it reports besides."""
        return {}

    def _listen(self) -> None:
        with os.fdopen(os.dup(0)) as orders:
            for line in orders:
                self._orders.append(line.strip())
        self._orders.append("stop")


if __name__ == "__main__":
    given = Membership(**json.loads(sys.argv[1]))
    if given.log:
        logging.basicConfig(filename=given.log, level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if given.names:
        install(given.names, given.client)
    if given.shots:
        from tests.faults.shotmember import ShotMember

        ShotMember(given).run()
    else:
        Member(given).run()
