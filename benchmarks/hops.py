"""How long the way through gkafka is: functions, files and CPU time of what is sent and read.

    python benchmarks/hops.py [--rounds 3] [--handler threading] [--json FILE]

functions: how often a Python function of gkafka/ is entered, on all threads. A generator that is
resumed is entered once more. A comprehension is a function up to Python 3.11. Compiled functions
are not seen. distinct, files: how many functions these are, and in how many files. Both leave out
functions that are entered less than once for 100 batches, records or answers.

moves: how often the file changes along the calls and returns of one thread. A call from one file of
gkafka to another is a move, and its return is another. Frames of other packages in between do not
count, nor does a call from outside gkafka. With `--handler gevent` all greenlets share one thread:
moves are counted along the stack of each greenlet, a switch to another greenlet is not a move.

user us, system us: CPU time of the client's process, without a profiler. The kernel samples how the
time divides into the two, so their sum is more exact than either. records: how many a batch or an
answer held while the time was taken.

Each measurement runs in a process of its own, on the stub broker, after a warm-up. Functions are
counted in one process and time is taken in another. Figures are medians over the rounds.
"""

from __future__ import annotations

import abc
import argparse
import itertools
import json
import os
import resource
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import ROOT, create, failed, machine, stub_broker, worker
from benchmarks.shapes import PATIENCE_S, SECONDS, VALUE

if TYPE_CHECKING:
    from gkafka import KafkaClient

OURS = str(ROOT / "gkafka") + os.sep
BATCH_BYTES = 131072
LARGE, IN_A_BATCH = b"x" * 10240, 12
"""A record of 10 KiB, and how many of them fill a batch of BATCH_BYTES."""
FILLED, MARGIN = 3_000_000, 100_000
"""Records of the topic that is read, and how many are left unread, so that no fetch waits for more."""
RARE = 0.01
"""A function that is entered less often belongs to work in the background."""
TOPICS = {"null-4": 4, "null-1000": 1000, "filled": 1}
"""Name and partitions. The stub broker drops records of topics whose names begin with "null-"."""


# -- what is measured ------------------------------------------------------------------------------------------------------------
class Work(abc.ABC):
    """records: how many were handed over or taken."""

    records = 0

    @abc.abstractmethod
    def step(self) -> bool:
        """Do a part of the work. Return False if there is not enough left for another part."""

    def settle(self) -> None:  # noqa: B027  # nothing to wait for, unless a kind of work has something
        """Wait until all that was begun has its outcome."""

    def done(self) -> int:
        """Return how many batches, records or answers there were."""
        return self.records


class Batches(Work):
    """Send `in_turn` equal records to one partition, then to the next. Counts batches by the answers."""

    def __init__(self, client: KafkaClient, topic: str, value: bytes, in_turn: int, **options: Any) -> None:
        self._producer = client.get_producer(**options)
        self._topic, self._value, self._in_turn = topic, value, in_turn
        self._partitions = itertools.cycle(range(TOPICS[topic]))
        self._batches = 0
        sender = self._producer._driver.sender
        on_answer = sender.on_answer

        def counted(outgoing: Any, response: Any, error: Any, now: float) -> Any:
            self._batches += len(outgoing.batches)
            return on_answer(outgoing, response, error, now)

        sender.on_answer = counted  # type: ignore[method-assign]  # of this one producer

    def step(self) -> bool:
        produce, partition = self._producer.produce, next(self._partitions)
        for _ in range(self._in_turn):
            produce(self._topic, self._value, partition=partition)
        self.records += self._in_turn
        return True

    def settle(self) -> None:
        self._producer.flush(PATIENCE_S)

    def done(self) -> int:
        return self._batches


class Confirmed(Work):
    """Send a record and wait for its outcome."""

    def __init__(self, client: KafkaClient, **options: Any) -> None:
        self._producer = client.get_producer(**options)

    def step(self) -> bool:
        self._producer.produce("null-4", VALUE, partition=0).result(PATIENCE_S)
        self.records += 1
        return True


class Answers(Work):
    """Read one partition; each call takes all that is there. Counts the answers of Fetch."""

    def __init__(self, client: KafkaClient) -> None:
        self._consumer = client.get_consumer("filled")

    def step(self) -> bool:
        self.records += len(self._consumer.consume_batch(timeout_ms=1000 * PATIENCE_S))
        return self.records < FILLED - MARGIN

    def done(self) -> int:
        return int(self._consumer.stats()["fetches"])


WAYS: dict[str, tuple[Callable[[KafkaClient], Work], int]] = {
    "full batch of 128 KiB": (lambda client: Batches(client, "null-4", LARGE, IN_A_BATCH, batch_bytes=BATCH_BYTES), 1000),
    "batch, 1,000 partitions": (lambda client: Batches(client, "null-1000", VALUE, 1), 10_000),
    "confirmed record": (Confirmed, 500),
    "confirmed record, linger_ms=0": (lambda client: Confirmed(client, linger_ms=0), 500),
    "answer of Fetch": (Answers, 20),
}
"""What begins the work, and its steps before anything is measured."""


# -- one measurement, in a process of its own ---------------------------------------------------------------------------------------
class Hops:
    """What sys.setprofile tells while `counts` is set. Lists, because an append is atomic."""

    def __init__(self) -> None:
        self.counts = False
        self.entered: list[CodeType] = []
        self.moves: list[str] = []

    def look(self, frame: FrameType, event: str, arg: object) -> None:
        if not self.counts or event not in ("call", "return"):
            return
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return
        if event == "call":
            self.entered.append(code)
        below = frame.f_back
        while below is not None and not below.f_code.co_filename.startswith(OURS):
            below = below.f_back
        if below is not None and below.f_code.co_filename != code.co_filename:
            self.moves.append(event)

    def figures(self, done: int) -> dict[str, Any]:
        """Counts divided by `done`. entered: the functions, the most frequent first."""
        usual = {code: count / done for code, count in Counter(self.entered).most_common() if count >= RARE * done}
        entered = {
            f"{code.co_filename.removeprefix(OURS)}:{code.co_firstlineno} {getattr(code, 'co_qualname', code.co_name)}": count
            for code, count in usual.items()
        }
        counts = {"functions": len(self.entered) / done, "distinct": len(usual), "moves": len(self.moves) / done}
        return counts | {"files": len({code.co_filename for code in usual}), "entered": entered}


def measure(name: str, bootstrap: str, handler: str, what: str) -> dict[str, Any]:
    """what: "functions" or "time"."""
    if handler == "gevent":
        from gevent import monkey

        monkey.patch_all()
    hops = Hops()
    if what == "functions":
        threading.setprofile(hops.look)
        sys.setprofile(hops.look)
    from gkafka import KafkaClient

    begin, warm_up = WAYS[name]
    work = begin(KafkaClient(bootstrap, handler=handler))
    for _ in range(warm_up):
        work.step()
    work.settle()
    done, records, before = work.done(), work.records, resource.getrusage(resource.RUSAGE_SELF)
    hops.counts, end = True, time.perf_counter() + SECONDS
    while work.step() and time.perf_counter() < end:
        pass
    work.settle()
    hops.counts, after = False, resource.getrusage(resource.RUSAGE_SELF)
    done = work.done() - done
    if what == "functions":
        return hops.figures(done)
    times = {"user us": after.ru_utime - before.ru_utime, "system us": after.ru_stime - before.ru_stime}
    return {key: seconds * 1e6 / done for key, seconds in times.items()} | {"records": (work.records - records) / done}


# -- all of them ---------------------------------------------------------------------------------------------------------------------
COLUMNS = {"functions": 1, "distinct": 0, "files": 0, "moves": 1, "user us": 1, "system us": 1, "records": 1}
"""With how many decimals each is shown."""


def fill(bootstrap: str) -> None:
    from gkafka import KafkaClient

    with KafkaClient(bootstrap) as client, client.get_producer(batch_bytes=BATCH_BYTES, linger_ms=1000) as producer:
        for _ in range(FILLED):
            producer.produce("filled", VALUE, partition=0)


def row(name: str, bootstrap: str, handler: str, rounds: int) -> dict[str, Any]:
    """Raises SystemExit if a measurement fails."""
    runs = [worker("hops.py", "--measure", name, bootstrap, handler, what) for _ in range(rounds) for what in ("functions", "time")]
    if failed(runs):
        raise SystemExit(f"{name}: {failed(runs)}")
    medians = {column: statistics.median(run[column] for run in runs if column in run) for column in COLUMNS}
    return {"what": name, "handler": handler, **medians, "entered": runs[0]["entered"]}


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:6])), flush=True)
        os._exit(0)  # what is open is of no interest
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind (default: %(default)s)")
    parser.add_argument("--handler", choices=("threading", "gevent"), default="threading")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too, with the functions that were entered")
    given = parser.parse_args()
    from gkafka.records import IMPLEMENTATION

    print(f"{machine()}; gkafka.records in {IMPLEMENTATION}; handler {given.handler}; {given.rounds} rounds")
    print(f"{'for each':30}" + "".join(f"{column:>11}" for column in COLUMNS))
    rows = []
    with stub_broker() as bootstrap:
        for topic, partitions in TOPICS.items():
            create(bootstrap, topic, partitions)
        fill(bootstrap)
        for name in WAYS:
            rows.append(seen := row(name, bootstrap, given.handler, given.rounds))
            print(f"{name:30}" + "".join(f"{seen[column]:11,.{digits}f}" for column, digits in COLUMNS.items()), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
