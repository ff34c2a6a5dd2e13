"""How much is tried of what has no end: a little by `make check` and `make test`, more by `make thorough`, most by `make soak`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy


def quick_and_thorough(quick: int, thorough: int, soak: int | None = None) -> list[Any]:
    """Two or three amounts, as the parameter of a test."""
    longest = [] if soak is None else [pytest.param(soak, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
    return [quick, pytest.param(thorough, marks=pytest.mark.thorough), *longest]


def seeds(count: int, *, quick: int = 1) -> list[Any]:
    """0 to count - 1, as the parameter of a test; those from `quick` on are thorough."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.thorough) for seed in range(count)]


def one_of(first: Any, *others: Any) -> list[Any]:
    """These, as the parameter of a test; all but the first are thorough, which it stands for."""
    return [first, *(pytest.param(other, marks=pytest.mark.thorough) for other in others)]


def tried(test: Callable[..., None], *strategies: SearchStrategy[Any], seed: int, examples: int = 100) -> None:
    """Calls a function with so many examples of the strategies. Each seed makes up others, the same in every run."""
    steady = settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    hypothesis.seed(seed)(steady(given(*strategies)(test)))()
