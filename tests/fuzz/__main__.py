"""Long runs: `python -m tests.fuzz`, or `make fuzz`. Prints for each target what was tried and found; findings are kept as files of the corpus.

    python -m tests.fuzz --executions 100000              # of each target, by the mutators of tests/fuzz/mutators.py
    python -m tests.fuzz --target batches --seconds 60
    python -m tests.fuzz.guided frames                    # guided by coverage, if the package atheris is installed

A finding is an exception that is not gkafka's, or an input that takes longer than 50 ms, again, when it is tried alone. Five seconds without an
end are a hang. Both are times of the processor: a run may go on beside others, and be stopped for a while. The status is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from tests.fuzz.targets import CORPUS, TARGETS, Target, corpus, survives
from tests.kit.clock import epoch_s, figure, now

SLOW_S, HANG_S = 0.05, 5.0


class Hang(BaseException):
    """An input took too long."""


class Tally(NamedTuple):
    """What a run found. Each finding is kept once, by what was raised and where."""

    executions: int
    seconds: float
    foreign: dict[str, bytes]
    hangs: list[bytes]
    slow: list[bytes]


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Hang in the main thread when it has run for HANG_S. What C does without a word, or what waits, cannot be ended so; then the run stands still,
    which is seen, too."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    _wind_up()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _wind_up() -> None:
    signal.setitimer(signal.ITIMER_PROF, HANG_S)


def run(target: Target, name: str, *, executions: int, seconds: float, seed: int) -> Tally:
    chance = random.Random(f"{seed}{name}")
    pool = [*target.seeds(), *corpus(name)]
    tally = Tally(0, 0.0, {}, [], [])
    done, began = 0, now()
    with alarm():
        while done < executions and figure(now() - began) < seconds:
            data = target.mutate(chance.choice(pool), chance, pool)
            done += 1
            if done % 100 == 0:
                _wind_up()
            _try(target, data, tally)
    return tally._replace(executions=done, seconds=figure(now() - began))


def _try(target: Target, data: bytes, tally: Tally) -> None:
    before = time.thread_time()
    try:
        survives(target, data)
    except Hang:
        if _hangs(target, data):
            tally.hangs.append(data)
        _wind_up()
        return  # how long it takes is known
    except Exception as exc:
        last = traceback.extract_tb(exc.__traceback__)[-1]
        tally.foreign.setdefault(f"{type(exc).__name__} at {last.filename}:{last.lineno}: {exc}"[:200], data)
    if time.thread_time() - before > SLOW_S and _seconds(target, data) > SLOW_S:
        tally.slow.append(data)


def _hangs(target: Target, data: bytes) -> bool:
    """Again, alone: the clock counts a hundred inputs."""
    _wind_up()
    try:
        survives(target, data)
    except Hang:
        return True
    except Exception:
        return False
    return False


def _seconds(target: Target, data: bytes) -> float:
    """The best of three: one may have met a garbage collection."""
    took = []
    for _ in range(3):
        _wind_up()
        before = time.thread_time()
        with contextlib.suppress(Exception, Hang):
            survives(target, data)
        took.append(time.thread_time() - before)
    return min(took)


def keep(name: str, kind: str, data: bytes) -> None:
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}.bin").write_bytes(data)


def report(name: str, tally: Tally) -> bool:
    """One line; True if there is a finding."""
    rate = tally.executions / max(tally.seconds, 0.001)
    print(
        f"{name:20} {tally.executions:>10,} executions {rate:>9,.0f}/s   foreign {len(tally.foreign)}   hangs {len(tally.hangs)}   "
        f"over 50 ms {len(tally.slow)}",
        flush=True,
    )
    for text, data in tally.foreign.items():
        print(f"    {text}")
        keep(name, "foreign", data)
    for kind, inputs in (("hang", tally.hangs), ("slow", tally.slow)):
        for data in inputs[:5]:
            keep(name, kind, data)
    return bool(tally.foreign or tally.hangs or tally.slow)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], help="only targets with this in their name")
    parser.add_argument("--executions", type=int, default=100_000, help="of each target")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most, for each target")
    parser.add_argument("--seed", type=int, default=int(epoch_s()))
    given = parser.parse_args()
    chosen = {name: target for name, target in TARGETS.items() if not given.target or any(part in name for part in given.target)}
    print(f"seed {given.seed}")
    logging.disable(logging.CRITICAL)  # what is wrong with each of a million inputs
    found, total = False, 0
    for name, target in chosen.items():
        tally = run(target, name, executions=given.executions, seconds=given.seconds, seed=given.seed)
        total += tally.executions
        found = report(name, tally) or found
    print(f"{total:,} executions in all: {'findings are in tests/fuzz/corpus' if found else 'no finding'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
