"""Pauses after failures."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.core.backoff import Backoff, Retry


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.1), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (60, 1.0)])
def test_a_pause_doubles_up_to_its_limit(failures: int, pause: float) -> None:
    assert 0.8 * pause <= Backoff(0.1, 1.0).pause_s(failures, Random(failures)) <= 1.2 * pause


@given(st.floats(0, 10), st.floats(0, 100), st.integers(0, 10_000), st.integers())
def test_whatever_the_options_a_pause_is_finite_and_not_above_the_limit_and_its_jitter(
    base: float, limit: float, failures: int, seed: int
) -> None:
    assert 0 <= Backoff(base, limit).pause_s(failures, Random(seed)) <= 1.2 * limit + 1e-9


def test_clients_do_not_march_in_step() -> None:
    chance = Random(1)
    pauses = {Backoff(1.0, 1.0).pause_s(3, chance) for _ in range(50)}
    assert len(pauses) == 50
    assert max(pauses) - min(pauses) > 0.3


def test_a_success_ends_the_pause_and_the_count() -> None:
    retry, chance = Retry(), Random(1)
    for now in (10.0, 11.0, 12.0):
        retry.failed(Backoff(0.1, 1.0), now, chance)
    assert retry.failures == 3
    assert 12.32 <= retry.not_before <= 12.48
    retry.succeeded()
    assert (retry.failures, retry.not_before) == (0, 0.0)
