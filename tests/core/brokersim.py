"""Brokers by their own rules, for the producer's machine: logs, leaders, connections, and everything that can get lost between.

Kafka's rules as far as they concern order and numbers (ProducerStateManager, ProducerAppendInfo, DelayedProduce of Kafka 4):
- a leader remembers the last five batches of a producer's epoch; what it finds there again is not written a second time;
- it takes the number after the last one, 0 under a newer epoch, and any from a producer that it has nothing of; it refuses older epochs;
- its answer waits until the followers have the batch, one to a duplicate, too. If it loses the partition meanwhile it says NOT_LEADER of a batch that it has written;
- what no follower has may be gone with the leader. What was acknowledged never is;
- a broker that was stopped and started in order remembers one batch for each producer;
- requests of a connection that broke may still be read, long after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from gkafka.core.batchstate import BatchState, state_of
from gkafka.core.sender import Outgoing, Settled
from gkafka.exceptions import ConnectionFailedError, SocketDisconnectedError
from gkafka.wire.metadata import MetadataRequest
from gkafka.wire.txn import InitProducerIdResponse
from tests.core.fakes import FakeBatch, Rig, told

__all__ = ["Copy", "Log", "Partition", "SimBatch", "World"]

NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW, TOO_FEW_AFTER, UNAUTHORIZED = 6, 7, 10, 19, 20, 29
OUT_OF_ORDER, DUPLICATE, FENCED, UNKNOWN_PID, INVALID_RECORD = 45, 46, 47, 59, 87
REMEMBERED = 5
TIMEOUT_S = 10.0
BROKERS = (1, 2, 3)


class SimBatch(FakeBatch):
    """A batch whose records can be told apart. poison: the broker will never take it; bad: nor any batch with one of these records, which it names."""

    def __init__(
        self, partition: int, records: list[int], *, created: float, poison: bool = False, bad: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(partition, created=created, count=len(records), size=100 * len(records))
        self.records, self.poison, self.bad = records, poison, bad

    def split(self, limit: int) -> list[FakeBatch]:
        half = -limit if limit < 0 else self.count // 2
        cuts = (0, self.records[:half]), (half, self.records[half:])
        parts = [SimBatch(self.partition, some, created=self.created, poison=self.poison, bad=self.bad) for _, some in cuts]
        for part, (first, _) in zip(parts, cuts, strict=True):
            part.first = self.first + first
        return list(parts)


class Copy(NamedTuple):
    """A batch as it went out: later numbers do not change it."""

    partition: int
    producer: tuple[int, int]
    first: int
    records: tuple[int, ...]
    poison: bool
    bad: frozenset[int]

    @property
    def named(self) -> dict[int, str | None]:
        """The records at fault, by their index in the batch, and a word for each."""
        return {index: f"word {record % 2}" for index, record in enumerate(self.records) if record in self.bad}

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


class Log:
    """What a partition's leader has. committed: so many of its batches are on all followers."""

    def __init__(self, *, takes_any: bool = True, duplicate: int = 0) -> None:
        self.batches: list[Copy] = []
        self.committed = 0
        self._takes_any, self._duplicate = takes_any, duplicate
        self._remembered: dict[int, tuple[int, deque[Copy]]] = {}

    def append(self, copy: Copy) -> int:
        """Write it, if the rules allow; an error code, or 0."""
        code = self._check(copy)
        if code is not None:
            return code
        self.batches.append(copy)
        self._remember(copy)
        return 0

    def _check(self, copy: Copy) -> int | None:
        producer_id, epoch = copy.producer
        known = self._remembered.get(producer_id)
        if known is None:
            return None if self._takes_any or copy.first == 0 else UNKNOWN_PID
        if epoch < known[0]:
            return FENCED
        if epoch > known[0]:
            return None if copy.first == 0 else OUT_OF_ORDER
        if any((old.first, old.last) == (copy.first, copy.last) for old in known[1]):
            return self._duplicate
        last = known[1][-1].last if known[1] else -1
        return None if copy.first == last + 1 else OUT_OF_ORDER

    def mark(self, producer_id: int, epoch: int) -> None:
        """The marker at the end of a transaction carries the next epoch (KIP-890)."""
        self._remembered[producer_id] = (epoch, deque(maxlen=REMEMBERED))

    def _remember(self, copy: Copy) -> None:
        producer_id, epoch = copy.producer
        known = self._remembered.get(producer_id)
        if known is None or known[0] != epoch:
            known = self._remembered[producer_id] = (epoch, deque(maxlen=REMEMBERED))
        known[1].append(copy)

    def commit(self) -> None:
        self.committed = len(self.batches)

    def lose(self, keep: int) -> None:
        """Another replica leads. keep: so many of what was not committed it has."""
        self.batches = self.batches[: self.committed + keep]
        self.committed = len(self.batches)
        self._remembered = {}
        for copy in self.batches:
            self._remember(copy)

    def restart(self) -> None:
        """The snapshot that a broker writes when it stops has one batch of each producer."""
        for _, batches in self._remembered.values():
            while len(batches) > 1:
                batches.popleft()

    def forget(self) -> None:
        """Nothing is left of any producer: retention, or a day of silence."""
        self._remembered = {}

    @property
    def records(self) -> list[int]:
        return [record for copy in self.batches for record in copy.records]


class Partition:
    """A log, who leads it, and how many records a batch of it may hold."""

    def __init__(self, leader: int, log: Log) -> None:
        self.leader, self.log, self.limit = leader, log, 1 << 30


class Flying:
    """A request on a connection. codes: partition -> the answer's error, once the broker has acted."""

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.copies = [_copy(batch) for batch in outgoing.batches]
        self.codes: dict[int, int] | None = None

    @property
    def named(self) -> dict[int, dict[int, str | None]]:
        """By partition what the broker says of records that it refuses."""
        refused = [copy for copy in self.copies if self.codes is not None and self.codes[copy.partition] == INVALID_RECORD]
        return {copy.partition: copy.named for copy in refused if not copy.poison}


def _copy(batch: Any) -> Copy:
    flight = batch.extra
    return Copy(batch.partition, flight.producer, flight.sequence, tuple(batch.records), batch.poison, batch.bad)


class World:
    """A producer's machine, its brokers, and a ledger of what was told about every record.

    Each verb is one event; after it the machine is asked what it wants. connections: what is on the wire to each broker; late: requests of
    connections that broke, which the broker may still read.
    """

    def __init__(
        self,
        partitions: int = 2,
        *,
        epoch: int = 0,
        takes_any: bool = True,
        duplicate: int = 0,
        timeout_s: float = TIMEOUT_S,
        **options: Any,
    ) -> None:
        self.partitions = {p: Partition(BROKERS[p % 3], Log(takes_any=takes_any, duplicate=duplicate)) for p in range(partitions)}
        leaders = {p: partition.leader for p, partition in self.partitions.items()}
        self.rig = Rig(leaders, idempotence=None, strangers=True, delivery_timeout_s=timeout_s, **options)
        self.rig.grant(epoch=epoch)
        self.connections: dict[int, list[Flying]] = {b: [] for b in BROKERS}
        self.late: dict[int, list[Flying]] = {b: [] for b in BROKERS}
        self.made: dict[int, list[int]] = {p: [] for p in self.partitions}
        self.outcome: dict[int, tuple[Any, str]] = {}
        self.bad: frozenset[int] = frozenset()
        self._timeout_s = timeout_s
        self._count = 0
        self._ids = 77
        self._leader_epoch = 1

    # -- the producer's side ---------------------------------------------------------------------------------------------
    def produce(self, partition: int = 0, count: int = 2, *, poison: bool = False, bad: tuple[int, ...] = ()) -> SimBatch:
        """A full batch. bad: which of its records, by their index, are at fault."""
        records = list(range(self._count, self._count + count))
        self._count += count
        self.made[partition] += records
        at_fault = frozenset(records[index] for index in bad)
        self.bad |= at_fault
        batch: Any = SimBatch(partition, records, created=self.rig.now, poison=poison, bad=at_fault)
        self.rig.accumulator.opened(batch)
        self.rig.accumulator.rolled(batch)
        self.step()
        return batch  # type: ignore[no-any-return]

    def step(self, seconds: float = 0.0) -> None:
        """Time passes, and the machine is asked."""
        self.rig.now += seconds
        settled, plan = self.rig.settled_by(self.rig.poll)
        self._settle(settled)
        for batch in self.rig.accumulator.unsettled:
            assert self.rig.now < batch.created + self._timeout_s, f"{batch} is not settled by its delivery timeout"
        if plan.ask_producer_id:
            self._ids += 1
            self.rig.sender.on_producer_id(InitProducerIdResponse(producer_id=self._ids, producer_epoch=0), None, self.rig.now)
            plan = self.rig.poll()
        for outgoing in plan.requests:
            self.connections[outgoing.broker_id].append(Flying(outgoing))

    def _settle(self, settled: list[Settled]) -> None:
        for outcome in settled:
            batch: Any = outcome.batch
            for record in batch.records:
                assert record not in self.outcome, f"record {record} is settled twice"
                self.outcome[record] = (outcome.error, batch.extra.persisted)

    def next_epoch(self, *, marked: bool) -> None:
        """A transaction has ended (KIP-890). marked: it had all partitions, not none of them."""
        producer = self.rig.sender.producer
        if producer is None or producer[1] >= (1 << 15) - 2 or self.rig.accumulator.unsettled or any(self.rig.sender.in_flight.values()):
            return
        self.rig.sender.adopt((producer[0], producer[1] + 1))
        for partition in self.partitions.values() if marked else ():
            partition.log.mark(producer[0], producer[1] + 1)
        self.step()

    # -- what happens on the way -------------------------------------------------------------------------------------------
    def arrive(self, broker: int, act: Callable[[Copy], int] | None = None) -> None:
        """The broker reads the oldest request that it has not read, and acts."""
        waiting = next((f for f in self.connections[broker] if f.codes is None), None)
        if waiting is not None:
            waiting.codes = {c.partition: self._act(broker, c, act) for c in waiting.copies}

    def arrive_late(self, broker: int) -> None:
        """It reads a request whose sender has gone."""
        if self.late[broker]:
            for copy in self.late[broker].pop(0).copies:
                self._act(broker, copy, None, commits=False)

    def _act(self, broker: int, copy: Copy, act: Callable[[Copy], int] | None, *, commits: bool = True) -> int:
        partition = self.partitions[copy.partition]
        if partition.leader != broker:
            return NOT_LEADER
        if len(copy.records) > partition.limit:
            return TOO_LARGE
        if copy.poison or copy.named:
            return INVALID_RECORD
        if act is not None:
            return act(copy)
        code = partition.log.append(copy)
        if code in (0, DUPLICATE) and commits:
            partition.log.commit()
        return code

    def write_but_say(self, code: int) -> Callable[[Copy], int]:
        """The leader writes; its followers do not have the batch yet when it has to answer."""

        def act(copy: Copy) -> int:
            refusal = self.partitions[copy.partition].log.append(copy)
            return code if refusal in (0, DUPLICATE) else refusal

        return act

    def answer(self, broker: int) -> None:
        """The oldest answer arrives."""
        flying = self.connections[broker]
        if flying and flying[0].codes is not None:
            done = flying.pop(0)
            self._settle(self.rig.answer(done.outgoing, done.codes, named=done.named)[0])
            self.step()

    def serve(self, broker: int, act: Callable[[Copy], int] | None = None) -> None:
        """The oldest request is read and answered."""
        self.arrive(broker, act)
        self.answer(broker)

    def cut(self, broker: int, *, late: bool = False) -> None:
        """The connection breaks. late: what it held reaches the broker, some time."""
        flying, self.connections[broker] = self.connections[broker], []
        if late:
            self.late[broker] += [f for f in flying if f.codes is None]
        for f in flying:
            self._settle(self.rig.lose(f.outgoing, SocketDisconnectedError("gone"))[0])
        self.step()

    def begin_anew(self, *, late: bool = False) -> None:
        """Whoever drives the machine was interrupted, and it restarts. late: what was under way reaches the brokers, some time."""
        for broker, flying in self.connections.items():
            self.late[broker] += [f for f in flying if f.codes is None and late]
            flying.clear()
        self.rig.sender.restart(())
        self.step()

    def never_open(self, broker: int) -> None:
        """The connection could not be made: what was to go over it never left. Only where nothing was read."""
        flying = self.connections[broker]
        if all(f.codes is None for f in flying):
            self.connections[broker] = []
            for f in flying:
                self._settle(self.rig.lose(f.outgoing, ConnectionFailedError("refused"))[0])
            self.step()

    def move(self, partition: int, leader: int, *, keep: int = 0, tell: bool = True) -> None:
        """Another broker leads. keep: so many batches that were not committed it has."""
        where = self.partitions[partition]
        if where.leader != leader:
            where.leader = leader
            where.log.lose(keep)
            self._leader_epoch += 1
        if tell:
            self.tell()

    def tell(self) -> None:
        """The metadata is refreshed."""
        leaders = {p: partition.leader for p, partition in self.partitions.items()}
        self.rig.metadata.on_response(MetadataRequest(topics=None), told(leaders, epoch=self._leader_epoch), self.rig.now)
        self.step()

    # -- the end -----------------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """All goes well from now on; then everything must be settled, and the logs hold what was told."""
        self.tell()
        for _ in range(200):
            for broker in BROKERS:
                while self.connections[broker]:
                    self.serve(broker)
            if not self.rig.accumulator.unsettled:
                break
            self.step(0.3)
        for broker in BROKERS:
            while self.late[broker]:
                self.arrive_late(broker)
        assert not self.rig.accumulator.unsettled
        self.check()

    def check(self) -> None:
        """Acknowledged: there, once, in order. Not persisted: not there. Whatever was said: not twice."""
        for p, made in self.made.items():
            there = self.partitions[p].log.records
            assert len(set(there)) == len(there), f"{p}: records are there twice: {there}"
            acknowledged = [r for r in made if self.outcome[r][0] is None]
            assert [r for r in there if r in set(acknowledged)] == acknowledged, f"{p}: {acknowledged} were acknowledged, {there} is there"
            ghosts = [r for r in there if self.outcome[r][1] == "no"]
            assert not ghosts, f"{p}: {ghosts} are said not to be there"

    def check_states(self) -> None:
        """Each unsettled batch is where its state says, and nowhere else."""
        accumulator = self.rig.accumulator
        ready = {batch for queue in accumulator.queues.values() for batch in queue.pending}
        in_flight = {batch for queue in accumulator.queues.values() for batch in queue.on_wire}
        by_state: dict[BatchState, set[Any]] = {state: set() for state in BatchState}
        for batch in accumulator.unsettled:
            by_state[state_of(batch)].add(batch)
        assert by_state.pop(BatchState.READY) == ready
        assert by_state.pop(BatchState.IN_FLIGHT) == in_flight
        assert by_state.pop(BatchState.OPEN) == set(accumulator.open.values())
        assert not any(by_state.values()), by_state

    def told(self, batch: SimBatch) -> str:
        """ "yes", "no" or "maybe"."""
        (told,) = {self.outcome[record][1] for record in batch.records}
        return told

    @property
    def acknowledged(self) -> list[int]:
        return [r for r, (error, _) in sorted(self.outcome.items()) if error is None]
