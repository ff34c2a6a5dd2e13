"""One stage for all faults of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.stage import Stage
from tests.live.kafka import MissingToolError
from tests.live.pool import POOL, skip_if_told


@pytest.fixture(scope="session")
def _stage() -> Iterator[Stage]:
    skip_if_told()
    POOL.stop()  # three nodes have the machine for themselves
    stage = Stage(seed=1)
    try:
        stage.start()
    except MissingToolError as error:
        pytest.fail(f"{error} (or set GKAFKA_LIVE=skip to leave out the tests on real Kafka)", pytrace=False)
    yield stage
    stage.stop()


@pytest.fixture
def stage(_stage: Stage) -> Iterator[Stage]:
    """Three nodes behind doors, whole before the test and after it."""
    _stage.heal()
    yield _stage
    _stage.heal()
