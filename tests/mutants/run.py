"""Do the tests notice? Each mutant is put into a copy of the tree, and the tests that should catch it run there.

    python tests/mutants/run.py [--jobs N] [--limit SECONDS] [name ...]

Prints a line for each as it ends. Fails if a mutant survives, does not apply, or cannot even be imported, and if the tests fail without any mutant.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.kit.clock import now  # noqa: E402
from tests.mutants.mutant import DoesNotApply, Mutant, mutants  # noqa: E402

TESTS_FAILED = 1  # pytest's exit code
FIRST = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Outcome(NamedTuple):
    """caught: a test failed, or the time limit passed. by: which test, or what else happened."""

    mutant: Mutant
    caught: bool
    by: str
    seconds: float


def copy_tree(to: pathlib.Path) -> pathlib.Path:
    """What the tests need, without any compiled Python: a changed file must not meet the cache of its old self."""
    for folder in ("gkafka", "tests"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def run_tests(tree: pathlib.Path, tests: list[str], impl: str | None, limit: float) -> tuple[int | None, str]:
    """(pytest's exit code, its output); None if the time was over. Only the library of this tree is imported."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    if impl is not None:
        env["GKAFKA_IMPL"] = impl
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-rfE", "-p", "no:cacheprovider", "--timeout=60", *tests]
    process = subprocess.Popen(
        command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def try_mutant(mutant: Mutant, tree: pathlib.Path, limit: float) -> Outcome:
    begun = now()
    try:
        texts = mutant.applied(ROOT)
    except DoesNotApply as error:
        return Outcome(mutant, False, f"does not apply: {error}", 0.0)
    for file, text in texts.items():
        (tree / file).write_text(text)
    try:
        code, output = run_tests(tree, mutant.tests, mutant.impl, limit)
    finally:
        for file in texts:
            shutil.copy(ROOT / file, tree / file)
    seconds = now() - begun
    failed = FIRST.search(output)
    if code is None:
        return Outcome(mutant, True, f"the time limit of {limit:g} s", seconds)
    if code == TESTS_FAILED and failed:
        return Outcome(mutant, True, failed.group(1), seconds)
    return Outcome(mutant, False, "SURVIVED" if code == 0 else f"pytest ended with {code}:\n{output[-2000:]}", seconds)


def check_unchanged(tree: pathlib.Path, chosen: list[Mutant], limit: float, jobs: int) -> str | None:
    """What is wrong without any mutant, or None: only then does a failure mean something."""
    where = subprocess.run(
        [sys.executable, "-c", "import gkafka; print(gkafka.__file__)"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not where.startswith(str(tree)):
        return f"the copy is not what is imported, but {where}"
    for impl in {mutant.impl for mutant in chosen}:
        runs = {tuple(mutant.tests) for mutant in chosen if mutant.impl == impl}
        for run, most_s in _together(runs, limit):
            code, output = run_tests(tree, ["-n", str(jobs), "--dist", "loadfile", *run], impl, most_s)
            if code != 0:
                return f"without any mutant, {' '.join(run)} ends with {code}:\n{output[-3000:]}"
    return None


def _together(runs: set[tuple[str, ...]], limit: float) -> list[tuple[list[str], float]]:
    """Return the arguments of as few runs of pytest as do the same, each with its time limit."""
    plain = {tests for run in runs if all(tests.startswith("tests/") for tests in run) for tests in run}
    whole = [tests for tests in sorted(plain) if tests.partition("::")[0] not in plain - {tests}]
    found = [(whole, limit * 2 + 20 * len(whole))] if whole else []
    chosen = [run for run in sorted(runs) if not set(run) <= plain and run[0] not in plain]
    return found + [(list(run), limit * 2) for run in chosen]


def show(outcome: Outcome) -> None:
    print(f"{outcome.mutant.name}: {'caught by' if outcome.caught else 'NOT CAUGHT:'} {outcome.by}  ({outcome.seconds:.1f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Put each mutant into a copy of the tree and run the tests that should catch it.")
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for each mutant's tests")
    asked = parser.parse_args()
    chosen = [mutant for mutant in mutants() if not asked.names or mutant.name in asked.names]
    if not chosen or len(chosen) < len(set(asked.names)):
        parser.error(f"there are: {', '.join(mutant.name for mutant in mutants())}")
    with tempfile.TemporaryDirectory(prefix="gkafka-mutants-") as folder:
        trees: queue.Queue[pathlib.Path] = queue.Queue()
        for n in range(asked.jobs):
            trees.put(copy_tree(pathlib.Path(folder, str(n))))

        def work(mutant: Mutant) -> Outcome:
            tree = trees.get()
            try:
                return try_mutant(mutant, tree, asked.limit)
            finally:
                trees.put(tree)

        wrong = check_unchanged(trees.queue[0], chosen, asked.limit, asked.jobs)
        if wrong is not None:
            print(wrong)
            return 1
        caught = 0
        with ThreadPoolExecutor(asked.jobs) as pool:
            for outcome in pool.map(work, chosen):
                show(outcome)
                caught += outcome.caught
    print(f"{caught} of {len(chosen)} mutants caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
