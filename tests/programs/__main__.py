"""Each program beside its original, as a table: `make programs`, or `python -m tests.programs [NAME ...]`.

The original library plays it on a real Kafka 2.8.2, gkafka with threads and with greenlets on the same one, and again on 4.2. What is compared: the lines
that it prints, how it ends, and the offsets that its group has committed. Below the table stands each difference with its reason, which is the last
column of README.md's table; the status is 1 if a difference has none, or a reason no difference.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from tests.live.kafka import KafkaCluster
from tests.programs.kit import HANDLERS, PROGRAMS, SAME, Outcome, Place, UserProgram, by_python, reasons
from tests.programs.originals import RELEASES, python_of

ORIGINAL = "original"
FIRST, AGAIN = "2.8.2", "4.2.0"
COLUMNS = {handler: {version: f"{version} {handler}" for version in (FIRST, AGAIN)} for handler in HANDLERS}


@contextlib.contextmanager
def kafka(version: str) -> Iterator[Place]:
    with KafkaCluster(version) as cluster, Place(cluster.hosts, cluster.zookeeper) as place:
        yield place


def played(programs: Sequence[UserProgram]) -> dict[str, dict[str, Outcome]]:
    """Program -> by what it was played -> what came of it."""
    found: dict[str, dict[str, Outcome]] = {program.name: {} for program in programs}
    for version in (FIRST, AGAIN):
        with kafka(version) as place:
            for program in programs:
                if version == FIRST:
                    python = python_of(program.library, program.release)
                    found[program.name][ORIGINAL] = by_python(place, program, ORIGINAL, program.source, python)
                elif "zookeeper" in program.needs:
                    continue
                theirs, said = found[program.name][ORIGINAL], []
                for handler in HANDLERS:
                    ours = found[program.name][COLUMNS[handler][version]] = by_python(place, program, handler, program.copy(handler))
                    said.append(f"{handler} {'the same' if ours.lines == theirs.lines else 'differs'}")
                print(f"Kafka {version}: {program.name}: {', '.join(said)}", file=sys.stderr, flush=True)
    return found


def judged(program: UserProgram, outcomes: dict[str, Outcome], reason: str) -> tuple[dict[str, str], list[str]]:
    """(column -> a word for the table, what is wrong). reason: the last column of README.md's table."""
    theirs = outcomes[ORIGINAL]
    words, wrong = {}, []
    for column, ours in outcomes.items():
        if column == ORIGINAL:
            continue
        words[column] = "same" if ours.lines == theirs.lines else "listed" if _is_listed(program, theirs, ours, reason) else "DIFFERS"
        if words[column] == "DIFFERS":
            wrong += unified_diff(theirs.lines, ours.lines, "original", f"gkafka, {column}", n=99, lineterm="")
            wrong += [f"  {line}" for line in ours.stderr.splitlines()[-5:]]
    if "listed" not in words.values() and (program.original or reason != SAME):
        wrong.append("a difference is listed, and there is none")
    return words, wrong


def _is_listed(program: UserProgram, theirs: Outcome, ours: Outcome, reason: str) -> bool:
    return reason not in ("", SAME) and theirs.lines == list(program.original) and program.as_expected(ours)


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {program.name for program in PROGRAMS}
    if unknown:
        raise SystemExit(f"no such program: {', '.join(sorted(unknown))}")
    programs = [program for program in PROGRAMS if not names or program.name in names]
    why, columns, below, failed = reasons(), [COLUMNS[handler][version] for version in (FIRST, AGAIN) for handler in HANDLERS], [], False
    print(f"| program | original | {' | '.join(columns)} |\n|{'---|' * (2 + len(columns))}")
    outcomes = played(programs)
    for program in programs:
        reason = why.get(program.name, "")
        words, wrong = judged(program, outcomes[program.name], reason)
        original = f"{program.library.replace('_', '-')} {program.release or RELEASES[program.library]}"
        print(f"| {program.name} | {original} | {' | '.join(words.get(column, '-') for column in columns)} |")
        if "listed" in words.values():
            below.append(f"{program.name}: {reason}")
        if wrong:
            below += [f"{program.name}: no reason is given for this", *(f"  {line}" for line in wrong)]
            failed = True
    print("\n" + ("\n".join(below) or "no difference"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
