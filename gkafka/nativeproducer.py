"""The producer that the others are skins of: many topics, one buffer, one machine.

A record's way: `produce()` appends it to its partition's open batch (one compiled call in `gkafka.records`). What is not per record happens
in `gkafka.slowpath` and per batch: a full batch is rolled, the next one opened. From there on `gkafka.producerdriver` takes it to its broker.
"""

from __future__ import annotations

import copyreg
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gkafka import lifetime, records
from gkafka.checks import check_time_left, check_wait
from gkafka.columnproducing import ColumnRun
from gkafka.config import ACKS
from gkafka.exceptions import ForkedClientError, KafkaException, KafkaTimeoutError, ProducerStoppedException
from gkafka.flushing import Flush
from gkafka.forkrenewal import ForkRenewal
from gkafka.intake import Intake
from gkafka.interceptors import InterceptorChain
from gkafka.lifetime import ends
from gkafka.logs import get_logger
from gkafka.oneprocess import OfOneProcess, refuse_to_pickle
from gkafka.partitioning import Partitioning
from gkafka.producerdriver import TICK_S, ProducerDriver
from gkafka.produceroptions import check_options
from gkafka.records import compression
from gkafka.slowpath import OpenBatches, SlowPath
from gkafka.transactions import TransactionCalls, Transactions

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.config import ProducerConfig
    from gkafka.handlers import Handler
    from gkafka.records import Batch, Delivery, Lane, RecordColumns

__all__ = ["NativeProducer"]

log = get_logger(__name__)
copyreg.pickle(records.Delivery, partial(refuse_to_pickle, outcome="result()"))
copyreg.pickle(records.Appender, partial(refuse_to_pickle, kind="producer"))  # the `produce` of a producer is a method of it

CHECKPOINT_EVERY, AFTER_OWN_CODE = 64, 4
"""Records that the fast path takes between two looks at the time and at the process id; with greenlets, where the user's own code is called for each, as
nobody knows what that takes."""

INITIAL_BYTES = 4096
"""Memory that a new batch takes; it doubles as records come."""

Headers = Sequence[tuple[str, bytes | None]]


class NativeProducer(OfOneProcess, TransactionCalls):
    """Made by `client.get_producer(**options)`; the options are those of `gkafka.config.ProducerConfig`.

    `produce()` may be called by any number of workers. Under gevent it switches to others now and then (every few milliseconds of work,
    when two full batches wait to be sent, and when the buffer is full), never in the middle of a record.

    Delivery callbacks (`on_delivery`, `delivery.add_done_callback()`, interceptors) run one at a time on a worker of their own, under no lock,
    and may call anything. `delivery` is done, and `delivery.record` is there to be looked at; that of a record that failed always is, so that
    it can be produced again. A `produce()` inside a callback does not wait for memory that is held for callbacks: it goes before other callers
    and may take once more `buffer_bytes`. When that is full, too, because callbacks produce more than they are called for, records that were
    delivered are let go of for it, those first whose callbacks come last: there `delivery.record` is None, results stay. What it waits for then,
    up to `max_block_ms`, are records without an outcome, and failed ones whose callbacks are still to come.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._closed = True  # until it is complete: a constructor that raised leaves nothing to lose
        self.config = config
        check_options(config)
        self.generation = 0
        self.reported = self.transaction_reported = False
        self._retold: Callable[[KafkaException], None] | None = None
        self._renewal = ForkRenewal(self._begin(cluster))
        lifetime.watch(self)

    def _begin(self, cluster: Cluster) -> tuple[ProducerDriver, Any]:
        """Make all that belongs to one process. Return what a forked child disowns: the driver and the appender's lock."""
        config = self.config
        self._cluster, self._handler = cluster, cluster.handler
        append_lock = self._handler.Mutex()
        self._delivered = False  # or given up: close() has only to end the worker
        self._last_intake: int | None = None  # who alone may produce: the interpreter ends
        self.gave_up: Counter[str] = Counter()  # records, by topic, that had no outcome when close() had waited long enough
        self._appender = records.Appender(
            self,
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            max_record_bytes=config.max_request_bytes,
            initial_bytes=min(INITIAL_BYTES, config.batch_bytes),
            lock=append_lock,
            budget=cluster.memory.budget,
        )
        self._appender.checkpoint_every = CHECKPOINT_EVERY
        counts: dict[str, int] = {}  # partitions of each known topic
        # One compiled call for each record, with no Python frame between; what the user's own code does to it comes in front.
        self.send = self._appender.send
        produce = self._appender.produce
        if Intake.is_needed(config):
            produce = Intake(config, produce, self.produce_slow, counts, self._refused).produce
        self._interceptors = InterceptorChain(config.interceptors, produce) if config.interceptors else None
        if not self.takes_lanes:
            self.look_often()
        self.produce = produce if self._interceptors is None else self._interceptors.produce  # type: ignore[method-assign]  # no call of ours between
        hooks = (config.on_delivery, self._interceptors.done if self._interceptors is not None else None)
        self._appender.hooks = tuple(hook for hook in hooks if hook is not None) or None
        self._appender.fast = config.transactional_id is None
        self._handler.slow_when_ended(self._appender)
        codec, level = compression.codec_id(config.compression), config.compression_level
        self._driver = ProducerDriver(cluster, config, self._appender, acks=ACKS[config.acks], codec=codec, level=level)
        queues, chance = self._driver.accumulator.queues, self._handler.random()
        partitioning = Partitioning(config.partitioner, self._appender, cluster.metadata, queues, chance, counts)
        self._batches = OpenBatches(config, cluster, self._appender, self._driver, partitioning, self._check_open)
        self._slow_path = SlowPath(config, cluster, self._appender, self._driver, partitioning, self._batches, self._check_open)
        if config.transactional_id is not None:
            self._transactions = self._driver.transactions = Transactions(
                cluster, config, self._driver, self._appender, accepting=self._batches.lock
            )
        cluster.memory.join(self._driver, config.buffer_bytes)
        cluster.adopt(self)
        self.generation += 1
        self._closed = False
        return self._driver, append_lock

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record; returns at once unless the buffer is full or the topic is not known yet. Whoever is far ahead of brokers that keep
        answering rests for up to 10 ms where a batch begins: more memory would gain nothing.

        value: bytes-like, None is a tombstone; timestamp: ms since the epoch, None is now; headers: [(str, bytes or None)].
        Returns a view of its delivery: done(), result(timeout), exception(timeout), add_done_callback(fn), record.
        Raises SerializationError, RecordTooLarge, BufferFull, UnknownTopicOrPartition, KafkaTimeoutError (after max_block_ms),
        ProducerStoppedException, ForkedClientError. A record for which it raised was not accepted.
        """
        delivery: Delivery = self._appender.produce(topic, value, key, partition, timestamp, headers)
        return delivery

    def produce_columns(
        self, topic: str, columns: RecordColumns, *, timestamp: int | None = None, row_numbers: Sequence[int] | None = None
    ) -> list[Delivery]:
        """Accept many records, in order, as `produce()` would one after another; waits for room in the buffer up to max_block_ms each time.

        timestamp: ms since the epoch, of all of them; None is now. row_numbers: what errors call the rows; None is 0, 1, ... Returns the deliveries of
        those that began a batch; each one's `batch` tells what becomes of all in it (`done`, `error`, `base_offset`, `count`). Raises what
        `produce()` raises, with the number of the row where it is the row's fault; the rows before it were accepted, but for a partition
        column that names one that the topic does not have: that is found before any is. With interceptors, serializers or a partitioner
        of your own each record goes by itself, through `produce()`.
        """
        run = ColumnRun(topic, columns, row_numbers)
        self.check_process()
        self._check_open()
        stamp = self._slow_path.timestamp(timestamp)
        count = self.know_topic(run.topic)
        if not self.takes_lanes:
            return run.produce_each(self.produce, count, timestamp)
        return run.append(self._appender, self.produce_slow, count, stamp)

    def end_batch(self, topic: str, partition: int) -> None:
        """Let the partition's open batch take no more records: it goes out as it is."""
        self.check_process()
        self._batches.end(topic, partition)

    def has_open_batch(self, topic: str, partition: int) -> bool:
        """Is there a batch that the partition's next record may still join?"""
        return self._appender.is_open(topic, partition)

    def answer_with(
        self, future_class: type[Delivery], refused: Callable[[KafkaException], Any], retold: Callable[[KafkaException], None]
    ) -> None:
        """For skins: what `send`, which is `Appender.send`, gives back, and what puts their words into an error that it raises."""
        self._appender.answer_with(future_class, refused)
        self._retold = retold

    def retry_what_was_not_sent(self) -> None:
        """For skins: a try that found no connection, or no leader, is none of `retries`; delivery_timeout_ms ends such tries."""
        self._driver.sender.delivery_limits.counts_unsent = False

    # -- the slow way of a record ----------------------------------------------------------------------------------------
    def produce_slow(self, topic: Any, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Delivery:
        """What the appender's fast path does not take: checks, conversions, waiting for metadata or room, rolling full batches."""
        self.check_process()
        self._check_open()
        if self._driver.worker.task is None:
            self._driver.worker.start()
        self._driver.pace.keep()  # here, and not behind it: who is killed in one of these waits has produced nothing
        self._driver.pace.hand_over()
        self._handler.checkpoint()
        try:
            return self._slow_path.append(topic, value, key, partition, timestamp, headers)
        except KafkaException as exc:
            self._refused(exc)
            raise

    def _refused(self, error: KafkaException) -> None:
        """Put a skin's words into an error that is about to be raised."""
        if self._retold is not None:
            self._retold(error)

    def check_process(self) -> None:
        """What Handler.check_fork() raises; in a forked child, with on_fork="recreate", the producer goes on by itself instead."""
        while self._renewal.pid != os.getpid() and self.config.on_fork == "recreate" and not self._closed:
            self._renew()
        self._handler.check_fork()

    def _renew(self) -> None:
        """In a forked child: connections, workers and a producer id of its own, and none of the parent's records."""
        self._renewal.run(
            lambda: self._begin(self._cluster.renewed(self._handler.renewed())),
            partial(lifetime.watch, self),  # again: this process may end in another way than its parent
            self._handler.sleep,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerStoppedException("the producer was closed: make a new one with client.get_producer()")
        if self._last_intake is not None and self._last_intake != self._handler.current_id():
            raise ProducerStoppedException(
                "the interpreter ends, and nobody would send this record: end what produces, or close the producer, before the program ends"
            )
        if self._driver.fatal is not None:
            raise self._driver.fatal
        if self._transactions is not None:
            self._transactions.check_producing()

    def look_often(self) -> None:
        """The user's own code is called for each record, here or in a skin."""
        if self._handler.cooperative:
            self._appender.checkpoint_every = AFTER_OWN_CODE

    def checkpoint(self) -> None:
        """Called by the appender every few records: lets other greenlets run when this one had its time."""
        self.check_process()
        self._handler.checkpoint()

    def wait(self, batch: Batch, timeout: float | None, index: int) -> None:
        """Wait until a record of a batch is settled; used by its deliveries. Raises KafkaTimeoutError."""
        patience = self.config.delivery_timeout_ms + self.config.request_timeout_ms
        limit = patience / 1000 if timeout is None else check_time_left("timeout", timeout)
        self.check_process()
        if batch.part(index).done:
            return
        deadline = self._handler.monotonic() + limit
        self._driver.hurry_batch(batch)
        now = 0.0
        while not batch.part(index).done:
            if now >= deadline:
                raise KafkaTimeoutError(
                    f"{batch.topic}-{batch.partition}: no result within {limit:g} s; the record is still being delivered",
                    topic=batch.topic,
                    partition=batch.partition,
                )
            self._driver.wait_for(batch, deadline, index)
            self.check_process()
            now = self._handler.monotonic()

    def send_now(self) -> None:
        """Let no batch linger any longer."""
        self.check_process()
        for batch in self._appender.open_batches():
            self._driver.hurry_batch(batch)

    def hurry(self, deadline: float) -> None:
        """Have a broker that cannot be reached tried several times before the deadline, however long it would rest."""
        self._driver.hurry(deadline)

    def wait_for_outcome(self, seconds: float, settled: int) -> None:
        """Wait until more than `settled` records have an outcome, at most so long."""
        self._driver.results.news.clear()
        if self._driver.results.settled_records <= settled:
            self._driver.results.news.wait(seconds)

    def unsent_records(self) -> int:
        """Records that were accepted and are not in a request yet."""
        return sum(batch.count for batch in self.unsettled() if not batch.attempts)

    def unsettled_records_of(self, broker_id: int) -> int:
        """Records without an outcome whose partition this broker leads now."""
        leader = self._cluster.metadata.leader
        return sum(batch.count for batch in self.unsettled() if (leader(batch.topic, batch.partition) or (-1,))[0] == broker_id)

    def know_topic(self, topic: str) -> int:
        """How many partitions the topic has; from now on the fast path takes it. Waits up to max_block_ms for metadata."""
        return self._slow_path.know_topic(topic, self._handler.monotonic() + self.config.max_block_ms / 1000)

    def led_partitions(self, topic: str) -> list[int]:
        """The ids of a known topic's partitions that have a leader; of all while none has."""
        info = self._cluster.metadata.topic(topic)
        partitions = sorted(info.partitions.values(), key=lambda p: p.id) if info is not None else []
        return [p.id for p in partitions if p.leader >= 0] or [p.id for p in partitions]

    @property
    def takes_lanes(self) -> bool:
        """Does nothing of the user's stand in front of the append? Else a lane would pass it by."""
        return self._interceptors is None and not Intake.is_needed(self.config)

    def lane(self, owner: Any, topic: str) -> Lane:
        """The fast path of a producer of this one topic, see `gkafka.records.Lane`."""
        return records.Lane(owner, self._appender, topic, seed=self._handler.random().getrandbits(64))

    def raise_fatal(self) -> None:
        """Raise what ended the producer, if something did."""
        if self._driver.fatal is not None:
            raise self._driver.fatal

    def rest(self, seconds: float) -> None:
        """Let the worker sleep that long, not a second, while there is nothing to send."""
        self._driver.worker.idle_s = seconds

    # -- flush and close -------------------------------------------------------------------------------------------------------
    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything produced before this call is delivered or failed, and its callbacks were called.

        timeout: seconds, None is delivery_timeout_ms. Raises KafkaTimeoutError if it passes (nothing is lost, delivery goes on; callbacks
        alone are no reason to), and DeliveryError listing the records that failed since the last flush() or close(): all of them, but for
        those whose memory newer records needed meanwhile, which are counted. Raises ProducerStoppedException if close() gave records up
        while this waited: close() lists them.
        """
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else check_wait("timeout", timeout)
        self.check_process()
        deadline = self._handler.monotonic() + limit
        waited = self._wait_settled(limit)
        self._driver.callbacks.wait(deadline)
        if self._closed and any(batch.error is not None for batch in waited):
            raise ProducerStoppedException(
                "the producer was closed while flush() waited: close() lists the records that were not delivered"
            )
        self._raise_failures()

    def _wait_settled(self, timeout: float) -> list[Batch]:
        """Wait for all that is not settled now; returns those batches."""
        flush = Flush(self._driver, self._handler, timeout, self.config.delivery_timeout_ms, self.check_process)
        with self._batches.lock:
            pass  # whoever is about to accept a record has done so, or finds the producer closed
        return flush.wait()

    def wait_settled(self) -> None:
        """For skins: flush() that tells of no failure; close() does."""
        self.check_process()
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S
        deadline = self._handler.monotonic() + limit
        self._wait_settled(limit)
        self._driver.callbacks.wait(deadline)

    def heard(self, error: BaseException) -> None:
        """For skins: somebody was given this error of one record's delivery, so that neither flush() nor close() tells of it."""
        self._driver.failures.heard(error)

    def _raise_failures(self) -> None:
        error = self._driver.failures.take()
        if error is not None:
            raise error

    @ends
    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left, have the callbacks called, then stop. Idempotent.

        timeout: seconds, None is delivery_timeout_ms. Records that are not delivered by then are failed. Raises DeliveryError listing
        every record that was not delivered since the last flush(), as flush() does; KafkaTimeoutError if a commit was under way and nobody
        knows how it ended.
        """
        began = self._handler.monotonic()
        limit = self.config.delivery_timeout_ms / 1000 + TICK_S if timeout is None else check_wait("timeout", timeout)
        if not self._driver.closed:
            self._handler.check_may_wait()
        try:
            if not self._driver.closed:
                self.check_process()
        except ForkedClientError:
            self._driver.closed = True
            raise
        finally:
            self._closed = True
            self._appender.fast = False
        if self._driver.closed:
            if self._delivered:  # nothing is left but what a close() that was cut short did not say
                self._driver.stop()
                self._close_own_cluster()
                self._raise_failures()
            return
        self._cluster.wake()  # whoever waits in produce() for a topic is refused
        left = limit
        if self._transactions is not None:
            rest = self._transactions.close(timeout)
            left = limit if rest is None else rest
        # Whoever is killed while it waits here leaves the rest to the next close(); one that comes meanwhile waits too.
        try:
            self._wait_settled(left)
        except KafkaTimeoutError:
            given_up = KafkaTimeoutError(f"the producer was closed: close() waited {limit:g} s for the record, then gave it up")
            self.gave_up = self.unsettled_by_topic()
            self._driver.give_up(given_up)
        self._delivered = True
        self._driver.stop(began + limit)
        self._close_own_cluster()
        if self._transactions is not None and self._transactions.failures_are_told:
            self._driver.failures.take()
        self._raise_failures()
        if self._transactions is not None and self._transactions.unclear is not None:
            raise self._transactions.unclear

    def _close_own_cluster(self) -> None:
        """After a fork with on_fork="recreate": nobody else ends what was made there."""
        if self.generation > 1:
            self._cluster.close()
            self._handler.stop(self._handler.monotonic() + TICK_S)

    @property
    def handler(self) -> Handler:
        """What runs its workers."""
        return self._handler

    @property
    def cluster(self) -> Cluster:
        """The connections it uses; of its own after a fork with on_fork="recreate"."""
        return self._cluster

    @property
    def making(self) -> Any:
        """A lock for whoever builds on this producer; nothing waits under it."""
        return self._batches.lock

    def end_intake(self) -> None:
        """By who ends the interpreter, and may still produce: hooks of the program come behind. All others are refused from here on."""
        self._last_intake = self._handler.current_id()
        self._appender.fast = False

    @property
    def is_inherited(self) -> bool:
        """Is this process a forked child that has made nothing of its own here? What is held belongs to the parent then."""
        return self._renewal.pid != os.getpid()

    @property
    def holds_records(self) -> bool:
        """Is it this process's to send, and is something not delivered yet? Also behind a close() that was cut short: nothing is given up by that."""
        return not self.is_inherited and not self._driver.closed and self._driver.owes

    @property
    def open_transaction(self) -> str | None:
        """The state of its transaction, if that is this process's to commit and has not ended."""
        if self.is_inherited or self._driver.closed or self._transactions is None:
            return None
        return self._transactions.uncommitted

    def unsettled_by_topic(self) -> Counter[str]:
        """Records without an outcome, by topic."""
        counts: Counter[str] = Counter()
        for batch in self.unsettled():
            counts[batch.topic] += batch.count
        return +counts

    def unsettled(self) -> list[Batch]:
        """What has no outcome, for whoever may not take its locks."""
        return self._driver.unsettled()

    @property
    def settled_records(self) -> int:
        """Records whose outcome is known, good or bad."""
        settled: int = self._driver.results.settled_records
        return settled

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._closed

    def __enter__(self) -> NativeProducer:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {id(self):#x} (acks={self.config.acks}, closed={self._closed})>"

    def __del__(self) -> None:
        if hasattr(self, "_renewal") and self.holds_records and not self.reported:
            counts = self.unsettled_by_topic()
            log.error(
                "a producer was dropped without close(): %d undelivered record(s) are lost: %s", sum(counts.values()), lifetime.told(counts)
            )

    def stats(self) -> dict[str, Any]:
        """Counters: delivered, retried, split and unsettled records and batches, requests, epoch bumps, buffer."""
        self.check_process()
        unsettled = self.unsettled()
        return {
            "delivered_records": self._driver.results.delivered,
            "failed_records": self._driver.results.settled_records - self._driver.results.delivered,
            "unsettled_batches": len(unsettled),
            "unsettled_records": sum(b.count for b in unsettled),
            "retried_batches": self._driver.sender.retried,
            "split_batches": self._driver.sender.splitter.splits,
            "requests": self._driver.sender.sent_requests,
            "restarts": self._driver.restarts,
            "epoch_bumps": self._driver.sender.epoch_bumps,
            "idempotence": self._driver.sender.state.value,
            "transaction": self._transactions.machine.state.value if self._transactions is not None else None,
            "producer_id": self._driver.sender.producer[0] if self._driver.sender.producer else -1,
            "buffer_bytes_free": self._appender.available,
            "interceptor_failures": self._interceptors.failures if self._interceptors is not None else 0,
        }
