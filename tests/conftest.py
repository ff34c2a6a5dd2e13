"""For every suite: which implementation and which handlers are under test, and how Hypothesis runs.

GKAFKA_IMPL=python or cython: the implementation of the records. GKAFKA_HANDLERS=recording: handlers that write down what gkafka asks of them,
and are judged at the end of each test. GKAFKA_PROFILE=folder: what each test costs is written there (tests/kit/profile.py).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from gkafka.records import IMPLEMENTATION
from tests.kit import limits
from tests.kit.lacking import note_what_is_left_out
from tests.kit.profile import Profile
from tests.live.classes import spark_options
from tests.turns import by_turn, scheduler, told_apart

if TYPE_CHECKING:
    from gkafka.testing import MockCluster

RECORDING = os.environ.get("GKAFKA_HANDLERS") == "recording"
NOT_RECORDED = {
    "tests.public.test_recording": "it brings recording handlers of its own",
    "tests.public.test_leaks": "what is written down keeps things alive",
    "tests.public.test_bad_input": "one client serves all its tests",
    "tests.reading.test_reading": "the same",
    "tests.public.test_interrupted": "its signals would strike in what records, which is not made for that",
    "tests.public.test_interrupted_consumers": "the same",
    "tests.public.test_group_consumer_interrupted": "the same",
    "tests.public.test_sealing": "the same",
    "tests.public.test_signal_handlers": "the same, and its handlers take locks on top of any that the call below them holds",
}
"""Module -> why its clients have plain handlers even then."""

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell script's background job, and so it would be in each program that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())

# A patched os.waitpid() waits for ever now and then: with gevent 26.9.0 and nothing of gkafka 8 of some 3,000 children of
# multiprocessing had ended and nobody was told.
os.environ.setdefault("GEVENT_NOWAITPID", "1")

# Examples are the same in each run: a failure in CI can be repeated, and a green run does not turn red by chance.
settings.register_profile("gkafka", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gkafka")


PLAYED = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(limits, "limits")
    if folder := os.environ.get("GKAFKA_PROFILE"):
        config.pluginmanager.register(Profile(Path(folder)), "profile")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is collected is kept: looking for garbage in it takes an eighth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    told_apart(items)
    yield
    items[:] = by_turn(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that is tried again, by whatever plugin, with what it needs or without: each is played once."""
    _played_once(item, "setup")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _played_once(item, "call")


def _played_once(item: pytest.Item, part: str) -> None:
    played = item.stash.setdefault(PLAYED, set())
    if part in played:
        pytest.fail(f"a second try of {item.nodeid}: a test that fails on a busy machine is mended or leaves", pytrace=False)
    played.add(part)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    config.pluginmanager.register(ToldAtOnce(config), "told-at-once")


class ToldAtOnce:
    """With several processes what has failed is told when all has run. One line of each at once: a run may be ended before that."""

    def __init__(self, config: pytest.Config) -> None:
        self._say = config.get_terminal_writer().line

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            note_what_is_left_out(report.longrepr[2])
        if report.failed:
            why = report.longreprtext.strip().splitlines() or [""]
            told = next((line for line in reversed(why) if line.startswith("E ")), why[-1])
            self._say(f"\nfailed: {report.nodeid} ({report.when}, {report.duration:.0f} s): {told[:300]}")


def pytest_report_header() -> str:
    return f"gkafka.records: {IMPLEMENTATION}, handlers: {'recording' if RECORDING else 'plain'}"


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every client that this process makes by its handler's name has one that records. Programs that a test starts are not recorded."""
    if not RECORDING or request.module.__name__ in NOT_RECORDED:
        yield
        return
    from tests.public.recording import Recorders, Watch, instead_of, judge

    recorders = Recorders()
    for taken_from in ("gkafka.client", "gkafka.skins"):
        monkeypatch.setattr(f"{taken_from}.resolve_handler", partial(instead_of, recorders))
    with Watch(recorders) as watch:
        yield
        judge(watch)


@pytest.fixture(autouse=True)
def _hub_knows_the_time() -> None:
    """gevent's own timeouts, as of joinall(), count from when the hub last turned: after a minute of tests with threads all are over at once."""
    if (gevent := sys.modules.get("gevent")) and (hub := gevent._hub_local.get_hub_if_exists()):
        hub.loop.update_now()


@pytest.fixture(autouse=True)
def whole_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """With greenlets a call hands out what it has after some milliseconds, which is less on a slow machine: here all that is there."""
    if (module := sys.modules.get("gkafka.taking")) is not None:
        monkeypatch.setattr(module, "SHARE_S", 60.0)


@pytest.fixture
def usual_topics() -> dict[str, int]:
    """What clusters have that were told no topics."""
    return {"t": 1}


@pytest.fixture
def make_cluster(usual_topics: dict[str, int]) -> Iterator[Callable[..., MockCluster]]:
    """Makes clusters in this process that end with the test."""
    from gkafka.testing import MockCluster

    made: list[MockCluster] = []

    def make(brokers: int = 1, topics: dict[str, int] | None = None, **options: Any) -> MockCluster:
        made.append(MockCluster(brokers, usual_topics if topics is None else topics, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
        assert not cluster.errors, cluster.errors


@pytest.fixture
def cluster(make_cluster: Callable[..., MockCluster]) -> MockCluster:
    """One broker with the usual topics."""
    return make_cluster()


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_this_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a session holds (300,000 objects: its tests, what Hypothesis remembers) is none: collecting garbage takes 1 ms instead of 100.

    What a module left open it is told of, not the next one. Beside real Kafka other clients run (kafka-python, PySpark), which leave sockets open:
    that is no failure of theirs.
    """
    gc.freeze()
    yield
    with warnings.catch_warnings():
        if "live" in request.path.parts:
            warnings.simplefilter("ignore", ResourceWarning)
        elif getattr(request.module, "KAFKA_PYTHON_RUNS_HERE", False):  # its sockets name their protocol, gkafka's do not
            warnings.filterwarnings("ignore", r"unclosed <socket\.socket .*proto=6", ResourceWarning)
        gc.collect()
