"""The programs of tests/programs with gkafka, on one real Kafka with ZooKeeper: kafka-python's with threads, pykafka's with greenlets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.pool import POOL
from tests.programs.kit import HANDLERS, PROGRAMS, Outcome, Place, UserProgram, by_forks

USUAL = {"pykafka": "gevent", "kafka_python": "threading"}
Played = Callable[[str], dict[str, Outcome]]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """By handler, what came of each program that is wanted with it in this run."""
    chosen = [item.callspec.params for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    kafka = POOL.get("2.8.2")
    found: dict[str, dict[str, Outcome]] = {}

    def of(how: str) -> dict[str, Outcome]:
        if how not in found:
            programs = [params["program"] for params in chosen if params["how"] == how]
            with Place(kafka.hosts, kafka.zookeeper) as place:
                found[how] = by_forks(place, programs, how, tmp_path_factory.mktemp(how))
        return found[how]

    return of


@pytest.mark.parametrize("version", ["2.8.2"])
@pytest.mark.parametrize(
    ("program", "how"),
    [
        pytest.param(program, how, id=f"{program.name}-{how}", marks=[] if how == USUAL[program.library] else pytest.mark.thorough)
        for program in PROGRAMS
        for how in HANDLERS
    ],
)
def test_a_program_prints_on_real_kafka_what_its_reader_expects(program: UserProgram, how: str, version: str, played: Played) -> None:
    outcome = played(how)[program.name]
    assert program.as_expected(outcome), f"{outcome.lines}\n{outcome.stderr}"
    assert "Traceback" not in outcome.stderr, outcome.stderr
