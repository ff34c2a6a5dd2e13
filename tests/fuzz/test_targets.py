"""Every decoder, by mutants of right inputs, by what Hypothesis makes up, and by what was once a finding (G18). `make fuzz` goes on where this stops."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import strategies as st

from gkafka.exceptions import KafkaException
from tests.effort import quick_and_thorough, tried
from tests.fuzz import __main__ as fuzzing
from tests.fuzz.__main__ import run
from tests.fuzz.targets import CORPUS, TARGETS, Target, corpus, survives

every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_seeds_are_right_inputs(name: str) -> None:
    """A target whose seeds are refused at once would try nothing."""
    target = TARGETS[name]
    right = 0
    for data in target.seeds():
        try:
            target.run(data)
            right += 1
        except KafkaException as error:
            right += str(error) == "the end"  # of a connection, after all that was right
    assert right >= 0.6 * len(target.seeds())


@every_target
def test_the_corpus_is_survived(name: str) -> None:
    for data in corpus(name):
        survives(TARGETS[name], data)


def test_every_folder_of_the_corpus_is_of_a_target() -> None:
    known = {*TARGETS, "batches-cython", "columns-cython"}  # which may not be compiled
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= known


@pytest.mark.parametrize("executions", quick_and_thorough(150, 2_000, 300_000))
@every_target
def test_g18_mutants_give_values_or_errors_of_gkafka_soon(name: str, executions: int) -> None:
    tally = run(TARGETS[name], name, executions=executions, seconds=1500, seed=executions)
    assert tally.executions == executions
    assert tally.foreign == {}
    assert tally.hangs == []


@pytest.mark.parametrize("examples", quick_and_thorough(15, 100))
@every_target
def test_what_hypothesis_makes_up_gives_values_or_errors_of_gkafka(name: str, examples: int) -> None:
    target = TARGETS[name]
    starts = st.sampled_from(list(target.seeds()))
    cut = st.builds(lambda data, at, tail: data[: at % (len(data) + 1)] + tail, starts, st.integers(0, 1 << 16), st.binary(max_size=40))
    tried(lambda data: survives(target, data), st.one_of(st.binary(max_size=300), cut), seed=1, examples=examples)


def test_what_would_be_a_finding_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_(data: bytes) -> None:
        if data[:1] == b"\xff":
            raise IndexError("not gkafka's")

    tally = run(Target(run_, lambda: [b"abc"], lambda *_: b"\xff"), "none", executions=10, seconds=50, seed=1)
    assert list(tally.foreign.values()) == [b"\xff"]
    monkeypatch.setattr(fuzzing, "SLOW_S", 0.0)
    slow = run(Target(lambda _: sum(range(1000)), lambda: [b"abc"]), "none", executions=1, seconds=50, seed=1)
    assert len(slow.slow) == 1


def test_what_never_ends_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_(_: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzzing, "HANG_S", 0.1)
    tally = run(Target(run_, lambda: [b"abc"], lambda *_: b"x"), "none", executions=1, seconds=50, seed=1)
    assert tally.hangs == [b"x"]


def test_a_run_that_stands_still_for_a_while_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped while somebody measures: wherever it was, what it was busy with is no finding."""

    def stopped(*_: object) -> bytes:
        time.sleep(0.2)
        return b"x"

    monkeypatch.setattr(fuzzing, "HANG_S", 0.1)
    tally = run(Target(lambda data: data, lambda: [b"abc"], stopped), "none", executions=2, seconds=50, seed=1)
    assert (tally.executions, tally.hangs) == (2, [])


def test_mutants_are_the_same_for_the_same_seed() -> None:
    for target in TARGETS.values():
        seeds = list(target.seeds())
        twice = [[target.mutate(seeds[0], random.Random(seed), seeds) for seed in range(5)] for _ in range(2)]
        assert twice[0] == twice[1]
