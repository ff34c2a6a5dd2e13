"""DESIGN.md shows the states of each machine as its table of moves has them: `python -m tests.statetables` writes them there."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gkafka.core import batchstate, connection, consumergroupstate, groupstate, numbering, transaction

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- states: written by `python -m tests.statetables` -->\n", "<!-- end of the states -->\n"
MANY = 4
"""From so many states on, a move that all of them have in common stands in a line of its own."""
TABLES: dict[str, Mapping[tuple[Any, Any], Any]] = {
    "A connection (core/connection.py)": connection.MOVES,
    "A batch of a producer (core/batchstate.py)": batchstate.MOVES,
    "A producer's id (core/numbering.py)": numbering.MOVES,
    "A producer's transaction (core/transaction.py)": transaction.MOVES,
    "A member of a classic group (core/groupstate.py)": groupstate.MOVES,
    "A member of a KIP-848 group (core/consumergroupstate.py)": consumergroupstate.MOVES,
}


def drawn(moves: Mapping[tuple[enum.Enum, enum.Enum], enum.Enum]) -> str:
    """Return the lines of one table: a state, and the event that leads from it to each other one."""
    sources: dict[tuple[str, str], list[str]] = {}
    for (state, event), target in moves.items():
        sources.setdefault((event.name, target.name), []).append(state.name)
    own: dict[str, list[str]] = {state.name: [] for state in type(next(iter(moves))[0])}
    shared = []
    for (event, target), states in sources.items():
        step = f"{event} -> {target}"
        if len(states) >= MANY:
            shared.append(f"{step}, from {', '.join(states)}")
        else:
            for state in states:
                own[state].append(step)
    width = max(map(len, own))
    lines = [f"{state:{width}}  {';  '.join(steps)}" for state, steps in own.items() if steps] + shared
    return "\n".join(textwrap.fill(line, 100, initial_indent="  ", subsequent_indent=" " * 6) for line in lines)


def page() -> str:
    """Return all tables, as they stand in DESIGN.md between BEGIN and END."""
    text = "\n\n".join(f"{name}\n{drawn(moves)}" for name, moves in TABLES.items())
    return f"{BEGIN}```text\n{text}\n```\n{END}"


def main() -> None:
    """Write them there."""
    design = ROOT / "DESIGN.md"
    before, _, rest = design.read_text().partition(BEGIN)
    design.write_text(before + page() + rest.partition(END)[2])


if __name__ == "__main__":
    main()
