"""kafka-python 0.9's MultiProcessConsumer (kafka.consumer.multiprocess): processes that fetch, and hand over through pipes.

A process is a fresh interpreter (nothing is forked, and the program's main module is not read again), so neither threads nor greenlets of the
parent matter to it. It reads its partitions from the offsets that it is told and commits nothing. Two pipes join it to its parent: messages
come by one; by the other it learns what to do, and that its parent has ended, in whatever way, for then that pipe ends: so no process outlives
its parent. A full pipe holds the process up, which bounds what is fetched ahead.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Iterator
from multiprocessing import connection, spawn, util
from typing import Any, NamedTuple

from gkafka.checks import check_count, check_flag, check_seconds
from gkafka.common import TopicPartition
from gkafka.config import Secret
from gkafka.exceptions import ConfigurationError, ForkedClientError, KafkaException
from gkafka.kafka.ending import Turns
from gkafka.kafka.errors import WrongTypeError
from gkafka.kafka.legacy.base import AUTO_COMMIT_INTERVAL, AUTO_COMMIT_MSG_COUNT, Consumer, telling
from gkafka.kafka.legacy.client import KafkaClient
from gkafka.kafka.legacy.common import ConsumerProcessError
from gkafka.kafka.legacy.keywords import hinting
from gkafka.kafka.legacy.reading import LOOK_S, Reader, ends_now
from gkafka.logs import get_logger
from gkafka.skins import resolve_handler
from gkafka.undoing import Undoing

__all__ = ["MultiProcessConsumer"]

log = get_logger(__name__)

ITER_WAIT_S = 1.0
"""How long an iteration waits for a message before it looks whether there is one."""
START_S = 30.0
"""How long a new process may take to be ready."""
STOP_S = 5.0
"""How long stop() waits for processes to end before it kills them."""
STEP_S = 0.2
ENDING_S = 2.0
WATCH_S = 1.0
CHUNK = 1000
CHUNK_BYTES = 1 << 16
COMMAND = "import sys; sys.path[:] = {path!r}; from gkafka.kafka.legacy.multiprocess import serve; serve({orders}, {messages})"
READY, ERROR, MESSAGES = "ready", "error", "messages"


class Pipe(connection.Connection):
    """One end of a pipe. Its close() may be called again, by several at once, and may be cut short: the file descriptor is closed once, in one step."""

    def __init__(self, handle: int, **options: Any) -> None:
        self._file = io.FileIO(handle)
        super().__init__(handle, **options)

    def close(self) -> None:
        self._handle = None
        self._close()

    def _close(self) -> None:
        self._file.close()


class Process(NamedTuple):
    """One of the processes, as its parent sees it. orders, messages: the parent's ends of the pipes."""

    pid: int
    partitions: list[int]
    orders: Any
    messages: Any


@hinting
@telling
class MultiProcessConsumer(Consumer):
    """Consumes a topic's partitions in several processes at once; shares them with nobody. For one worker. Call stop(), or use it in a with block.

    num_procs: among so many processes the partitions are divided, though none is without one; partitions_per_proc: as many processes as that
    takes, instead, 0 is unset. client: a KafkaClient of this package, whose options each process makes a client of its own with. The other
    arguments are those of Consumer. What is wrong with a process, its death included, is raised by the next call, after the messages that came
    before that: ConsumerProcessError. Reference: kafka-python 0.9, MultiProcessConsumer.
    """

    def __init__(
        self,
        client: Any,
        group: str | bytes | None,
        topic: str,
        auto_commit: bool = True,
        auto_commit_every_n: int | None = AUTO_COMMIT_MSG_COUNT,
        auto_commit_every_t: float | None = AUTO_COMMIT_INTERVAL,
        num_procs: int = 1,
        partitions_per_proc: int = 0,
    ) -> None:
        self._stopped = True
        self.procs: list[Process] = []
        self._ready: set[int] = set()
        self._problem: ConsumerProcessError | None = None
        self._torn = False
        self._turns = Turns()
        check_count("num_procs", num_procs)
        check_count("partitions_per_proc", partitions_per_proc, low=0)
        self._division = num_procs, partitions_per_proc
        self._options = _picklable(client)
        super().__init__(client, group, topic, None, auto_commit, auto_commit_every_n, auto_commit_every_t)
        self._begin()

    def _begin(self) -> None:
        """Have processes read on from where this consumer stands."""
        self._waiting.clear()
        self._torn = False
        self._ready.clear()
        self._problem = None
        self._may_start_until = self._handler.monotonic() + START_S
        with Undoing(self.stop):
            for share in _shares(sorted(self.offsets), *self._division):
                self.procs.append(_start(self._options, self.topic, {p: self.offsets[p] for p in share}))
            self._check_open()  # whoever has stopped it meanwhile has ended only those that there were

    def fetch_last_known_offsets(self, partitions: Iterable[int] | None = None) -> None:
        """Go on where the group has committed, with new processes. partitions: None is all of them."""
        super().fetch_last_known_offsets(partitions)
        self._end_processes()
        self._begin()

    # -- consuming -------------------------------------------------------------------------------------------------------------
    def get_messages(self, count: int = 1, block: bool = True, timeout: float | None = 10) -> list[Any]:
        """Up to count messages as (offset, message). block: wait for so many up to timeout seconds, None is for ever; without it those that there are."""
        check_count("count", count)
        check_flag("block", block)
        wait_s = 0.0 if not block else float("inf") if timeout is None else check_seconds("timeout", timeout)
        self._wait(count, self._handler.monotonic() + wait_s)
        return self._hand_out(count, self.partition_info)

    def __iter__(self) -> Iterator[Any]:
        """The messages that there are; ends when there are no more."""
        while not self._stopped:
            self._wait(1, self._handler.monotonic() + ITER_WAIT_S)
            if not self._waiting:
                return
            yield from self._hand_out(1, self.partition_info)

    def _wait(self, count: int, until: float) -> None:
        """Have count messages wait, or those that come until then, and beyond that a first one if the brokers have any. Raises what is wrong with a
        process once no message waits."""
        self._check_open()
        if self._torn:  # a signal handler's exception: what came may be lost, and half of a message may stand in a pipe
            self._end_processes()
            self._begin()
        ends: dict[TopicPartition, int] | None = None
        while len(self._waiting) < count:
            if self._problem is not None:
                if self._waiting:
                    return
                raise self._problem
            now = self._handler.monotonic()
            if now < until and not (ends is not None and self._waiting):
                self._receive(min(until - now, STEP_S))
                continue
            if ends is None and not self._waiting and self.procs:
                ends = ends_now(self._client, [self._tp(p) for p in self.offsets], now + LOOK_S)
                if any(self.offsets[tp.partition] < end for tp, end in ends.items()):
                    all_ready = len(self._ready) == len(self.procs)
                    until = now + LOOK_S if all_ready else max(now + LOOK_S, self._may_start_until)
                    continue
            # Once more: what came while the ends were asked for, and all that stands in the pipes.
            before = len(self._waiting)
            self._receive(0)
            if len(self._waiting) == before:
                return

    def _receive(self, seconds: float) -> None:
        """Take in what the processes have sent, waiting so long for it."""
        open_pipes = {process.messages: process for process in self.procs if not process.messages.closed}
        for pipe in self._readable(list(open_pipes), seconds):
            process = open_pipes[pipe]
            self._torn = True
            try:
                kind, what = pipe.recv()
            except (EOFError, OSError):
                pipe.close()
                self._fails(process, f"has died ({self._ending(process.pid)})")
                self._torn = False
                continue
            if kind == READY:
                self._ready.add(process.pid)
            elif kind == ERROR:
                self._fails(process, f"failed: {what}")
            else:
                self._waiting += what
            self._torn = False

    def _readable(self, pipes: list[Any], seconds: float) -> list[Any]:
        if not self._handler.cooperative:
            if not pipes:
                self._handler.sleep(seconds)
            return connection.wait(pipes, seconds)
        until, pause = self._handler.monotonic() + seconds, 0.001  # nothing wakes a greenlet for a pipe of another process
        while not (ready := connection.wait(pipes, 0)):
            left = until - self._handler.monotonic()
            if left <= 0:
                break
            self._handler.sleep(min(left, pause))
            pause = min(pause * 2, 0.02)
        return ready

    def _ending(self, pid: int) -> str:
        """How a process has ended whose pipe did, which may be a moment earlier."""
        until = self._handler.monotonic() + ENDING_S
        while True:
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                return "its exit code is not known"
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return f"exit code {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"
            if self._handler.monotonic() >= until:
                return "its pipe is closed"
            self._handler.sleep(0.005)

    def _fails(self, process: Process, how: str) -> None:
        if self._problem is None:
            text = f"the process {process.pid} of partitions {process.partitions} of {self.topic!r} {how}: make a new consumer"
            self._problem = ConsumerProcessError(text, topic=self.topic)

    # -- the end ---------------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """End the processes and wait until they have ended; with auto_commit commit what was handed out. Idempotent, takes a few seconds at most; what is
        cut short is finished by the next one. A call that comes while another waits for the processes does not wait for them."""
        self._stopped = True
        try:
            self._end_processes()
        except ForkedClientError:
            return  # the processes are the parent's
        super().stop()

    def _end_processes(self) -> None:
        self._turns.run(self._end_them)

    def _end_them(self) -> None:
        if self.procs:
            self._handler.check_fork()
        self._torn = True  # nothing comes from these any more
        ending = list(self.procs)
        for process in ending:
            process.orders.close()
            process.messages.close()
        for patience_s, sign in ((STOP_S, None), (STOP_S, signal.SIGKILL)):
            until = self._handler.monotonic() + patience_s
            for process in ending if sign is not None else ():
                log.warning("process %d does not end: killing it", process.pid)
                os.kill(process.pid, signal.SIGKILL)
            while (ending := self._left(ending)) and self._handler.monotonic() < until:
                self._handler.sleep(0.005)
        for process in ending:
            self.procs.remove(process)

    def _left(self, ending: list[Process]) -> list[Process]:
        """Only those stay in `procs` that whoever comes behind one that is cut short has to wait for."""
        for process in ending:
            if _has_ended(process.pid):
                self.procs.remove(process)
        return [process for process in ending if process in self.procs]


class _Packer(pickle.Pickler):
    """For a process of our own, and a pipe that nobody else reads: secrets go with the rest."""

    def reducer_override(self, obj: Any) -> Any:
        return (Secret, (obj.reveal(),)) if type(obj) is Secret else NotImplemented


def _packed(options: Any) -> bytes:
    packed = io.BytesIO()
    _Packer(packed).dump(options)
    return packed.getvalue()


def _picklable(client: Any) -> dict[str, Any]:
    if not isinstance(client, KafkaClient):
        raise WrongTypeError(f"client={client!r}: must be a gkafka.kafka.legacy.KafkaClient: each process makes one with the same options")
    options = {**client.config, "handler": "threading"}
    for name, value in options.items():
        try:
            _packed(value)
        except Exception as exc:
            text = f"{name}={value!r} of the KafkaClient cannot be given to other processes: {exc}"
            raise ConfigurationError(text) from exc
    return options


def _shares(partitions: list[int], num_procs: int, partitions_per_proc: int) -> list[list[int]]:
    """Which process gets which: each partition once, no process none."""
    if partitions_per_proc:
        return [partitions[i : i + partitions_per_proc] for i in range(0, len(partitions), partitions_per_proc)]
    count = min(num_procs, len(partitions))
    return [partitions[i::count] for i in range(count)]


def _pipe() -> tuple[Pipe, Pipe]:
    """Where it is read, and where it is written."""
    there, here = os.pipe()
    return Pipe(there, writable=False), Pipe(here, readable=False)


def _start(options: dict[str, Any], topic: str, offsets: dict[int, int]) -> Process:
    """A process that reads these partitions from these offsets."""
    orders_there, orders = _pipe()
    messages, messages_there = _pipe()
    fds = [orders_there.fileno(), messages_there.fileno()]
    path = [entry or os.getcwd() for entry in sys.path]
    code = COMMAND.format(path=path, orders=fds[0], messages=fds[1])
    executable = os.fsdecode(spawn.get_executable() or sys.executable)
    arguments: Any = [executable, "-c", code]
    with Undoing(orders.close), Undoing(messages.close), orders_there, messages_there:
        pid = util.spawnv_passfds(os.fsencode(executable), arguments, sorted(fds))
    process = Process(pid, sorted(offsets), orders, messages)
    orders.send((os.getpid(), _packed(options), topic, offsets))
    return process


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # somebody else has heard of it, as libev does under gevent


# -- in the process ------------------------------------------------------------------------------------------------------------
def serve(orders_fd: int, messages_fd: int) -> None:
    """What such a process does until its parent wants it no more, or is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them: the parent decides
    orders, messages = connection.Connection(orders_fd), connection.Connection(messages_fd)
    try:
        parent, packed, topic, offsets = orders.recv()
    except (EOFError, OSError):
        os._exit(0)
    try:
        options = pickle.loads(packed)
        hosts, client_id, timeout_ms = (options.pop(name) for name in ("bootstrap_servers", "client_id", "request_timeout_ms"))
        resolve_handler("threading").spawn(_watch, parent, orders, _name="gkafka-parent")
        client = KafkaClient(hosts, client_id=client_id, timeout=timeout_ms / 1000, **options)
        reader = Reader(client._client, reset=-1)
        reader.assign({TopicPartition(topic, partition): offset for partition, offset in offsets.items()})
        messages.send((READY, None))
        while True:
            for chunk in _chunks(reader.consumer.consume_batch(CHUNK, 1000)):
                messages.send((MESSAGES, chunk))
    except (BrokenPipeError, EOFError):
        pass  # the parent is gone, or wants no more
    except KafkaException as exc:
        _tell(messages, exc)
    except BaseException as exc:
        log.exception("a process of MultiProcessConsumer failed")
        _tell(messages, exc)
    os._exit(1)


def _watch(parent: int, orders: Any) -> None:
    """End with the parent, or when it says so. Nothing more is ordered: the pipe ends when the parent closes it or has ended, unless a fork of the
    parent still has it."""
    while os.getppid() == parent and not orders.poll(WATCH_S):
        pass
    os._exit(0)


def _chunks(taken: list[Any]) -> Iterator[list[tuple[int, int, bytes | None, bytes | None]]]:
    """In pieces of about CHUNK_BYTES."""
    chunk: list[tuple[int, int, bytes | None, bytes | None]] = []
    size = 0
    for m in taken:
        chunk.append((m.partition_id, m.offset, m.key, m.value))
        size += len(m.key or b"") + len(m.value or b"")
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _tell(messages: Any, error: BaseException) -> None:
    with contextlib.suppress(OSError):
        messages.send((ERROR, f"{type(error).__name__}: {error}"))
