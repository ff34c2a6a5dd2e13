"""`make faults`: every fault in its long form, and one table.

    python -m tests.faults --fault F03 --fault F07 --seed 7 --short

Status 1 if a run failed. Each run's counts are also printed as one line of JSON, with its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.faults.faults import GAMES
from tests.faults.groups import GroupLine
from tests.faults.runs import GOAL, LONG, SHORT, Line
from tests.faults.stage import Stage, Stuck
from tests.faults.writer import CLIENTS

HEAD = (
    "fault",
    "played",
    "client",
    "acked",
    "failed",
    "lost",
    "dup",
    "inv",
    "unres",
    "other",
    "retries",
    "bumps",
    "discon",
    "moves",
    "stall s",
    "control s",
    "ratio",
    "restarts",
    "with batches",
    "result",
)
GROUP_HEAD = (
    "fault",
    "played",
    "consumers",
    "read",
    "dup",
    "lost",
    "skips",
    "repeats",
    "rewound",
    "strange",
    "double ms",
    "late",
    "regr",
    "stuck",
    "rebal",
    "unowned s",
    "stall s",
    "control s",
    "figures (control)",
    "errors",
    "result",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Faults under load on a real three-node Kafka.")
    parser.add_argument("--fault", action="append", default=[], help="an id, or what it begins with; all if not given")
    parser.add_argument("--seed", type=int, help="repeats a run's choices")
    parser.add_argument("--short", action="store_true", help="fewer records")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only these")
    parser.add_argument("--logs", type=Path, help="a folder for gkafka's DEBUG logs and the consumers' diaries")
    given = parser.parse_args(arguments)
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    chosen = [id for id in GAMES if not given.fault or any(id.startswith(prefix) for prefix in given.fault)]
    if not chosen:
        parser.error(f"no fault begins with {', '.join(given.fault)}: there are {', '.join(GAMES)}")
    print(f"seed {seed}: {', '.join(chosen)}", file=sys.stderr)
    lines: list[Line | GroupLine] = []
    broken: list[str] = []
    with Stage(seed=seed) as stage:
        stage.logs = given.logs
        if given.logs is not None:
            given.logs.mkdir(parents=True, exist_ok=True)
        for id in chosen:
            try:
                played = GAMES[id].play(stage, SHORT if given.short else LONG, seed, given.client or CLIENTS)
            except Exception as error:  # one that broke must not take the others' table with it
                broken.append(f"{id} ({GAMES[id].title}): {error if isinstance(error, Stuck) else repr(error)}")
                traceback.print_exc()
                print(broken[-1], file=sys.stderr, flush=True)
                continue
            lines += played
            for line in played:
                print(line.json(), flush=True)
    print(table(lines))
    for why in broken:
        print(f"FAILED {why}")
    return 1 if broken or any(line.blame for line in lines) else 0


def table(lines: Sequence[Line | GroupLine]) -> str:
    """One for producers, one for consumers, as far as there are any."""
    producers = [_row(line) for line in lines if isinstance(line, Line)]
    consumers = [_group_row(line) for line in lines if isinstance(line, GroupLine)]
    parts = [_columns([head, *rows]) for head, rows in ((HEAD, producers), (GROUP_HEAD, consumers)) if rows]
    return "\n\n".join(parts)


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _group_row(line: GroupLine) -> tuple[str, ...]:
    f = line.findings
    counts = (f.read, f.dup, f.lost, f.skips, f.repeats, f.rewound, f.strangers + f.damaged)
    late = f"{f.late_reads}+{f.late_commits}"
    more = (
        f"{f.double_ms:g}",
        late,
        str(f.regressions),
        str(f.stuck + f.mispositioned),
        str(f.rebalances),
        f"{f.unowned_s:.1f}",
        f"{f.stall_s:.1f}",
    )
    control = f"{line.control['stall_s']:.1f}" if line.control else ""
    figures = ", ".join(
        f"{name} {value:g}" + (f" ({line.control[name]:g})" if name in line.control else "") for name, value in line.figures.items()
    )
    errors = ", ".join(f"{name} {count}" for name, count in f.errors.items())
    result = "control" if line.client == "confluent" else "FAILED: " + "; ".join(line.blame) if line.blame else "passed"
    return (line.fault, f"{line.played} ({line.form})", line.client, *map(str, counts), *more, control, figures, errors, result)


def _row(line: Line) -> tuple[str, ...]:
    v = line.verdict
    other = sum(n for name, n in v.wrong.items() if name not in ("lost", "duplicates", "inversions", "unresolved"))
    counts = (v.acknowledged, v.failed_no + v.failed_maybe, v.lost, v.duplicates, v.inversions, v.unresolved, other)
    more = (line.retries, line.bumps, line.disconnects, line.moves)
    control = line.client == "confluent"
    ratio = "" if control or not line.control_stall_s else f"{line.ratio:.2f}{'' if line.ratio <= GOAL else ' (!)'}"
    result = "control" if control else "FAILED: " + "; ".join(line.blame) if line.blame else "passed"
    times = (f"{v.stall_s:.2f}", f"{line.control_stall_s:.2f}", ratio)
    hit = ", ".join(f"{state.replace('_', ' ')} {count:,}" for state, count in line.hit.items())
    anew = (str(line.restarts or ""), hit)
    return (line.fault, line.played, line.client, *map(str, counts + more), *times, *anew, result)


if __name__ == "__main__":
    sys.exit(main())
