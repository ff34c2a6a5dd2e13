"""The oracle by hand: as many examples as one wants, and the fixed log through every way.

    python -m tests.reading --examples 20000 --seed 7              # in GKAFKA_IMPL's implementation
    python -m tests.reading --examples 2000 --seed 7 --way arrow   # only the ways of such a name
    python -m tests.reading --fixed                                # one damaged log, as a table

Status 1 if a way does not do what the model says. A silent skip is a record that was passed over
without an error, and a position, or a group's offset, behind damage of which nobody was told.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from gkafka.records import IMPLEMENTATION
from tests.kit.clock import now
from tests.reading.damagedlogs import FIXED, Shape, shapes
from tests.reading.playing import Deviation, Play, SilentSkip, Stage, plays
from tests.reading.ways import CHEAP, WAYS, LegacyProcesses, Way

FIXED_LOGS = (("v2", "none"), ("v2", "gzip"), ("v1", "none"), ("v0", "gzip"))
ROW = "{:<44} {:<9} {:<7} {:<14} {:>5} {:>8} {:>9} {:<20} {}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.reading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", default="", help="only ways whose name holds this")
    parser.add_argument("--fixed", action="store_true", help="play the fixed log through every way, and print a table")
    given_ = parser.parse_args(arguments)
    logging.getLogger("gkafka").setLevel(logging.CRITICAL)
    ways = [way for way in WAYS if given_.way in way.name]
    if not ways:
        parser.error(f"--way {given_.way!r}: none of {', '.join(way.name for way in WAYS)}")
    if given_.fixed:
        return play_fixed(ways)
    return play_examples([way for way in ways if way in CHEAP] or list(CHEAP), given_.examples, given_.seed)


def play_examples(ways: Sequence[type[Way]], examples: int, number: int) -> int:
    """Play drawn logs until one shows a fault, and print what was played."""
    begun, count, failed = now(), 0, 0
    skips = 0
    with Stage() as stage:

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=False,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(shape=shapes(), played=st.lists(plays(ways), min_size=1, max_size=2))
        def holds(shape: Shape, played: list[Play]) -> None:
            nonlocal count
            count += 1
            stage.turn()
            for play in played:
                stage.play(shape, play)

        try:
            holds()
        except Deviation as error:
            failed += 1
            skips += isinstance(error, SilentSkip)
            print(f"{type(error).__name__}: {error}")
        print_counts(stage.played)
    seconds = now() - begun
    print(
        f"{IMPLEMENTATION}, seed {number}: {count} examples in {seconds:.0f} s, silent skips: {skips}, other deviations: {failed - skips}"
    )
    return 1 if failed else 0


def print_counts(played: Counter[tuple[str, str, str, str]]) -> None:
    """Print how often each way, handler, format and codec was played, and their combinations."""
    for at, what in enumerate(("way", "handler", "format", "codec")):
        totals: Counter[str] = Counter()
        for combination, times in played.items():
            totals[combination[at]] += times
        print(f"by {what}: " + ", ".join(f"{name} {times}" for name, times in sorted(totals.items())))
    print(f"combinations of way, handler, format and codec: {len(played)}, readings: {sum(played.values())}")


def play_fixed(ways: Sequence[type[Way]]) -> int:
    """Play the fixed log, and print a row for each way, handler and format."""
    print(f"{IMPLEMENTATION}: offsets 0..13, record 7 cannot be decoded; its batch ends at 11 (each plain message stands alone)")
    print(ROW.format("way", "handler", "log", "records", "error", "position", "committed", "after a seek", "silent skip"))
    skips = failed = 0
    with Stage() as stage:
        for way in ways:
            for handler in way.handlers:
                for form, codec in FIXED_LOGS[:1] if way is LegacyProcesses else FIXED_LOGS:
                    log = f"{form} {codec}"
                    try:
                        first, second = stage.play(FIXED, Play(way, handler, form, codec, way.levels[0]))
                    except Deviation as error:
                        is_skip = isinstance(error, SilentSkip)
                        skips += is_skip
                        failed += 1
                        print(
                            ROW.format(way.name, handler, log, *"-----", "YES" if is_skip else "no"),
                            str(error).partition(": ")[2].partition("\n")[0][:160],
                        )
                        continue
                    position, committed = ("-" if at is None else at for at in (first.position, first.committed))
                    behind = span([offset for offset in second.records if offset < 14])
                    print(ROW.format(way.name, handler, log, span(first.records), first.error, position, committed, behind, "no"))
    print(f"silent skips: {skips}, other deviations: {failed - skips}")
    return 1 if failed else 0


def span(offsets: Sequence[int]) -> str:
    return f"{offsets[0]}..{offsets[-1]}" if offsets else "none"


if __name__ == "__main__":
    sys.exit(main())
