"""Takes records out of the queues for callers of consume methods: one caller at a time, within bounds.

A caller that is interrupted leaves one mark: its positions go back to where they stood, and a worker
fetches again from there what was not handed out (FetchDriver.restart).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Any, TypeVar

from gkafka.atwork import Call
from gkafka.exceptions import ConfigurationError, ConsumerStoppedException, SerializationError
from gkafka.queuereader import CHUNK, QueueReader
from gkafka.records import STEPS_ARE_WHOLE

if TYPE_CHECKING:
    import pyarrow as pa

    from gkafka.assignment import Assignment
    from gkafka.atwork import AtWork, Stood
    from gkafka.config import ConsumerConfig
    from gkafka.consumerqueues import Queue
    from gkafka.deserializing import GoBack
    from gkafka.fetchdriver import FetchDriver
    from gkafka.handlers import Handler
    from gkafka.records import Message

__all__ = ["RecordTaker"]

TICK_S = 4.0
LOOK_S = 0.02
"""How often a call asks whether records that are there may be handed out again."""
DEFAULT_BATCH = 1 << 30
MOST_TROUBLES = 100
"""Troubles that are kept for a caller; the oldest are forgotten."""
RUN_S = 0.02
"""How long records are taken one by one without a look at anything else. With greenlets it is TURN_S,
as the hub must not stand still."""
ENOUGH_ROWS = 4096
"""So many rows are handed out without a look at other partitions."""
TURN_S = SHARE_S = 0.003
"""SHARE_S: how long a call reads with greenlets before it hands out: reading switches to nobody."""
READ_S = 1.0
"""How long a call without a timeout reads what is there."""
T = TypeVar("T")
Take = Callable[[Call, int, float], list[T]]
"""take(call, wanted, until): no more than so many, of what is there; reads no batch behind that time."""


class RecordTaker:
    """Hands out records to the callers of one consumer.

    run: hands out single records of a batch that is begun, without a look at anything else. given:
    where the partitions stood before calls that the application may not have finished, each with the
    value of `run.handed_out`. troubles: errors of workers; while there are any, calls return at once,
    without a record. may_deliver: see ask_before_delivery(). comes_back: see come_back_when().
    """

    def __init__(self, driver: FetchDriver, assignment: Assignment, at_work: AtWork, config: ConsumerConfig, handler: Handler) -> None:
        self._driver, self._assignment, self._at_work, self._handler = driver, assignment, at_work, handler
        self._lock, self._filled, self._order = driver.lock, driver.filled, driver.order
        self._taking, self.run = driver.taking, driver.run
        self._max_bytes = config.consume_max_bytes
        self.reader = QueueReader(driver, assignment, config, handler)
        self._share_of_time = SHARE_S if handler.cooperative else float("inf")
        self._one_by_one = TURN_S if handler.cooperative else RUN_S
        self.given: list[tuple[int, Sequence[Stood]]] = []
        self.may_deliver: Callable[[], bool] | None = None
        self._delivers_until: Callable[[], float] = lambda: float("inf")
        self.comes_back: Callable[[], bool] | None = None
        self.troubles: deque[BaseException] = deque(maxlen=MOST_TROUBLES)
        self._waked = 0  # how often wake_up() was called

    # -- what ends a wait, and what allows a delivery ----------------------------------------------
    def wake_up(self) -> None:
        """Make consume calls return, so that their callers look around. Called by workers."""
        self._waked += 1
        self._filled.set()

    def tell(self, trouble: BaseException) -> None:
        """Make consume calls return, so that a caller raises this first. Called by workers."""
        self.troubles.append(trouble)
        self.run.left = 0
        self.wake_up()

    def ask_before_delivery(self, may_deliver: Callable[[], bool] | None, until: Callable[[], float] = lambda: float("inf")) -> None:
        """Ask may_deliver() before records are handed out: are the partitions this consumer's, for sure?

        until(): how long they are, if nothing is heard, for a run that asks no more. None: no other
        consumer can have them.
        """
        self.may_deliver = self._driver.may_deliver = may_deliver
        self._delivers_until = until

    def come_back_when(self, comes_back: Callable[[], bool]) -> None:
        """Make waiting calls return without a record when comes_back() is true.

        It is asked when new metadata have come, or when somebody has woken the caller.
        """
        self.comes_back = comes_back
        self._driver.cluster.sleepers.add(self._filled)

    def may_hand_out(self) -> bool:
        """May this member still hand out what it has? Callers of `run` ask before each time."""
        return self.may_deliver is None or self.may_deliver()

    def check_running(self) -> None:
        """Raise ConsumerStoppedException after stop(), and ForkedClientError in a child process."""
        self._handler.check_fork()
        if self._driver.stopped:
            raise ConsumerStoppedException("the consumer was stopped: make a new one; pykafka's can also start() again")

    # -- calls -------------------------------------------------------------------------------------
    def consume(self, take: Take[T], max_messages: int | None, timeout_ms: float | None, call: Call | None = None) -> list[T]:
        """Return what take() finds, as soon as it finds something; [] after timeout_ms.

        call: is filled with what was taken, for consume_through(). None: the records count as handed out.
        """
        call = Call() if call is None else call
        deadline, waked = self._handler.monotonic() + (timeout_ms or 0) / 1000, self._waked
        reads_until = deadline if timeout_ms else deadline + READ_S
        # Before anything is taken: a caller that is killed here has lost nothing. And before anything is
        # raised: one that tries again at once would keep the hub from whoever could mend it.
        self._handler.checkpoint()
        self.check_running()
        if max_messages is not None and (isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1):
            raise ConfigurationError(f"max_messages={max_messages!r}: must be a whole number, 1 or more")
        wanted = DEFAULT_BATCH if max_messages is None else max_messages
        while True:
            self._assignment.raise_errors()
            try:
                with self._taking:
                    self.run.left = 0  # it would take what comes behind, which a deserializer that fails goes back over
                    is_torn = self._driver.step.cause is not None  # a worker begins anew: until then nothing may be read
                    call.wants_more = is_torn
                    may_take = not is_torn and not self.troubles and self.may_hand_out()
                    taken = take(call, wanted, reads_until) if may_take else []
                    if taken and call.worker is None:
                        self._note_given(call)
                if call.wants_more:
                    self._driver.kick()
                if taken:
                    return taken
                call.forget()  # what was read held no record
            except BaseException as exc:  # a signal handler's: nobody gets what was taken
                self._take_back(call.stood.values(), exc)
                call.forget()
                raise
            self._assignment.raise_errors()
            now = self._handler.monotonic()
            if self.troubles or self._waked != waked:
                return []
            if now >= deadline and not (may_take and now < reads_until and self._is_any_open()):
                return []
            # Batches without records may have filled the turn: the next ones are there now, so after a turn of others they are read, too.
            self._wait_filled(max(0.0, min(deadline, self._handler.looks_at(now, TICK_S)) - now), waked)
            self.check_running()
            if self.comes_back is not None and self.comes_back():
                return []

    def consume_through(
        self,
        deserialize: Callable[[list[Message], GoBack], tuple[Sequence[Message], list[T]]],
        max_messages: int | None,
        timeout_ms: float | None,
        shape: Callable[[list[T]], Any] | None = None,
    ) -> Any:
        """Return what deserialize(messages, go_back) makes of the records that are taken, in this shape.

        Until it returns nobody has them, and no commit covers them. Records of partitions of which
        AtWork.end_on() came meanwhile are left out.

        deserialize(): returns some of the messages, and what is handed out for each.
        go_back(partition, offset): what was taken from that offset on is not handed out. Where
        deserialize() raises SerializationError it has gone back to the record; a caller that is
        interrupted goes back by itself. Raises ConsumerStoppedException if AtWork.end_all() came
        meanwhile: other consumers go on from where it stood.
        """
        call = self._at_work.begin(self._handler.current_id())
        try:
            messages, made = deserialize(self.consume(self.take, max_messages, timeout_ms, call), partial(self._at_work.go_back, call))
            with self._taking:
                with self._lock:
                    is_ours = self._at_work.end(call)
                    if made:  # only now: a call of another worker meanwhile did not say that this is finished
                        self._note_given(call)
                if is_ours and call.begun is not None and not self._at_work.calls:  # with others at work, each record is one call's
                    self._allow_a_run(call.begun)
            if not is_ours:
                raise ConsumerStoppedException(
                    "the consumer was stopped while the deserializer was at work: who goes on where it stood gets these messages"
                )
            if call.ended:
                made = [
                    item for message, item in zip(messages, made, strict=True) if (message.topic, message.partition_id) not in call.ended
                ]
            shaped = made if shape is None else shape(made)
            self._finish(call)
            return shaped
        except BaseException as exc:  # no `finally` around the return: a signal handler may raise in it
            try:
                if isinstance(exc, SerializationError):
                    if (exc.topic, exc.partition) in call.ended:
                        return []  # whoever has the partition now meets it
                elif call.stood:
                    self._take_back(call.stood.values(), exc)
                raise
            finally:
                self._finish(call)

    def _finish(self, call: Call) -> None:
        self._at_work.end(call)
        if call.stood:
            self._filled.set()  # others may wait for what it was at work on

    def few_by(self, several: Callable[[int], list[T]]) -> Callable[[int], list[T]]:
        """Return a function that gives what several(most), a method of `run`, takes.

        If a signal handler raises before the caller has it, the next call gets it. It must be a
        function of Python's own: behind a call of any other one a signal handler may raise.
        """
        run, take_back = self.run, self._take_back

        def few(most: int) -> list[T]:
            if run.queue is None:
                return []
            position = run.queue.position
            stood = position, position.term, position.consumed, position.consumed_epoch
            try:
                return several(most)
            except SerializationError:
                raise  # nothing was taken
            except BaseException as exc:
                take_back([stood], exc)
                raise

        return few

    def one_by(
        self, take_one: Callable[..., T | None], args: tuple[Any, ...], several: Callable[[int], list[Any]]
    ) -> Callable[[], T | None]:
        """Return a function that gives what take_one(*args), a method of `run`, takes. several: see few_by().

        It must be a function of Python's own, as that of few_by(). Python looks for signals behind
        each call of another one, but not between the steps of a loop: no signal handler raises
        where a record is taken and its caller does not have it.
        """
        if not STEPS_ARE_WHOLE:
            few = self.few_by(several)

            def first() -> T | None:
                things = few(1)
                return things[0] if things else None

            return first
        ones = starmap(take_one, repeat(args))

        def one() -> T | None:
            for thing in ones:
                return thing
            raise AssertionError("starmap() has ended")

        return one

    def _note_given(self, call: Call) -> None:
        self.run.handed_out += 1
        self.given = [each for each in self.given if each[0] > self.run.seen]
        self.given.append((self.run.handed_out, list(call.stood.values())))

    def _take_back(self, taken: Iterable[Stood], cause: BaseException) -> None:
        """Give what an interrupted call took to the next one: with what others took since, twice rather than never."""
        with self._lock:
            self.run.left = 0
            self._driver.step.cause = cause  # readers stand where nobody else does
            for position, term, before, before_epoch in taken:
                if position.term == term and before < position.consumed:
                    position.consumed, position.consumed_epoch = before, before_epoch

    def _allow_a_run(self, queue: Queue) -> None:
        """Let `run` go on with what a call has begun, for a moment: in a fraction of the time for each record.

        Whatever is to be looked at first ends it: an error, a trouble, a stop, a rebalance that waits
        for the application. It sees seeks and pauses.
        """
        run = self.run
        run.queue, run.until = queue, min(self._handler.monotonic() + self._one_by_one, self._delivers_until())
        run.left = 0 if self._driver.errors or self._driver.stopped or self.troubles else CHUNK

    # -- waiting -----------------------------------------------------------------------------------
    def _wait_filled(self, seconds: float, waked: int) -> None:
        """Wait until there may be something to hand out.

        waked: `_waked` when the caller looked around last. What has come since then, and set what is
        cleared here, ends the wait.
        """
        self._filled.clear()
        if self._driver.errors or self._driver.stopped or self._waked != waked:
            self._filled.set()
            return
        if not self.may_hand_out():
            seconds = min(seconds, LOOK_S)  # what is there already must wait, too
        elif self._is_any_open():
            self._filled.set()  # another worker that has looked and is about to wait must see it, too
            self._handler.checkpoint()
            return
        self._handler.check_fork()
        deadline = self._handler.monotonic() + seconds
        self._filled.wait(max(0.0, deadline - self._handler.monotonic()))
        self._handler.checkpoint()  # who filled it used this turn of the hub; what the application does now may take as long

    def _is_any_open(self) -> bool:
        """May something be handed out? Each call that waits asks twice: no function is called for an empty queue."""
        if self._driver.step.cause is not None:
            return False
        return any((queue.reader is not None or queue.spans) and self._is_open(queue) for queue in list(self._order))

    def _is_open(self, queue: Queue) -> bool:
        """May the caller take from it? Not while another worker's deserializer is at work on what was taken of it."""
        if not queue.is_open:
            return False
        if not self._at_work.calls:
            return True
        return self._at_work.may_take(queue.position, self._handler.current_id())

    # -- taking, by one caller at a time -----------------------------------------------------------
    def taking(self, shape: Callable[[list[Message]], Any]) -> Take[Any]:
        """Return take() in another shape: what consume() may go back over includes making it."""
        return lambda call, wanted, until: shape(self.take(call, wanted, until))

    def take(self, call: Call, wanted: int, until: float) -> list[Message]:
        """Return records of the partition whose turn it is, and of the next ones while there is room and time."""
        taken: list[Message] = []
        if not self._is_any_open():
            return taken
        room = self._max_bytes
        turn_ends = self._handler.monotonic() + self._share_of_time
        for _ in range(len(self._order)):
            queue = self._order[0]
            while len(taken) < wanted and room >= 0 and self._is_open(queue):
                room = self.reader.read(call, queue, wanted - len(taken), room, taken)
                now = self._handler.monotonic()
                if now >= until or now >= turn_ends:
                    wanted = len(taken)
            self._order.rotate(-1)
            if len(taken) >= wanted or room < 0:
                if call.worker is None:
                    self._allow_a_run(queue)
                else:
                    call.begun = queue  # no run before its deserializer is done
                break
        return taken

    def take_columns(self, call: Call, wanted: int, until: float, columns: tuple[str, ...]) -> list[pa.RecordBatch]:
        """Return rows of the partition whose turn it is; of the next ones, too, while they are few."""
        taken: list[pa.RecordBatch] = []
        wanted_rows, rows, room = min(wanted, ENOUGH_ROWS), 0, self._max_bytes
        turn_ends = self._handler.monotonic() + self._share_of_time
        for _ in range(len(self._order)):
            queue = self._order[0]
            while rows < wanted_rows and room >= 0 and self._is_open(queue):
                room = self.reader.read_columns(call, queue, wanted - rows, room, columns, taken)
                rows = sum(piece.num_rows for piece in taken)
                now = self._handler.monotonic()
                if now >= until or now >= turn_ends:
                    wanted_rows = rows
            self._order.rotate(-1)
            if rows >= wanted_rows or room < 0:
                break
        return taken
