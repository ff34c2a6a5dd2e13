"""The public suite: each test runs on threads and on greenlets (unpatched), against brokers in this process.

Which implementation of the records is used is the environment's: GKAFKA_IMPL=python and GKAFKA_IMPL=cython run the suite twice.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import MockCluster
from tests.kit.clock import now
from tests.public.aids import Runner

Connect = Callable[..., KafkaClient]
HERE = Path(__file__).parent
LATE = (
    "client.STOP_S",
    "deliveryreports.TICK_S",
    "balancedconsumer.STOP_S",
    "managedbalancedconsumer.STOP_S",
    "fetchdriver.TICK_S",
    "taking.TICK_S",
    "consumer.TICK_S",
    "membership.TICK_S",
)


SAME_ON_THE_TWIN = {"test_bad_consumer_input", "test_bad_input", "test_cut_ends", "test_exit_in_listeners", "test_secrets"}
"""Files whose claims are decided where no record is read or written, and whose waits others have recorded: played once."""
WHOLE = {"test_closing_wakes", "test_cut_ends", "test_interrupted_consumers", "test_recording", "test_signal_handlers"}
"""Files in which each set of parameters is played with both handlers: it is how somebody waits, or where a signal comes."""
INTERRUPTED = {
    *("test_interrupted", "test_interrupted_consumers", "test_interrupted_greenlets", "test_cut_ends"),
    *("test_group_consumer_interrupted", "test_signal_handlers"),
}
"""Files in which an exception comes anywhere, also between the call that makes a socket and the line that keeps it: such a one the collector closes."""
OF_RECORDS = {
    *("test_consuming", "test_consuming_arrow", "test_damage", "test_producing", "test_producing_columns"),
    *("test_raw", "test_refused_records", "test_too_large", "test_truncation"),
}
"""Files of which the Python twin plays each set of parameters."""
ON_THE_TWIN = os.environ.get("GKAFKA_IMPL") == "python" and os.environ.get("GKAFKA_HANDLERS") == "recording"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE]
    for item in mine:
        if item.path.stem in INTERRUPTED:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    in_turn([item for item in mine if item.path.stem not in (WHOLE | OF_RECORDS if ON_THE_TWIN else WHOLE)])
    if ON_THE_TWIN:
        left = {item for item in mine if item.path.stem in SAME_ON_THE_TWIN}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def in_turn(items: Sequence[pytest.Item]) -> None:
    """Have a test with more parameters than its handler play each set of them with one handler, in turn; with the other one it is thorough.

    The first set is played with threads. Which comes when is by the positions of the parameters: neither a name nor a run changes it.
    """
    tests: dict[str, list[tuple[int, pytest.Item]]] = defaultdict(list)
    for item in items:
        call = getattr(item, "callspec", None)
        is_long = any(item.get_closest_marker(mark) for mark in ("thorough", "soak"))
        if call is None or is_long or call.params.get("run") not in ("threading", "gevent"):
            continue
        together = [mark.args[0] for mark in item.iter_markers("parametrize")]
        names = [name if isinstance(name, str) else ",".join(name) for name in together]
        follow = {other.strip() for name in names for other in name.split(",")[1:]}
        at = sum(index for name, index in call.indices.items() if name not in {*follow, "run"})
        tests[item.nodeid.partition("[")[0]].append((at % 2, item))
    for sets in tests.values():
        if len({at for at, _ in sets}) == 2:
            for at, item in sets:
                if at != (item.callspec.params["run"] == "gevent"):  # type: ignore[attr-defined]
                    item.add_marker(pytest.mark.thorough)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown topic is given up after less than the 5 s that a real cluster may need to tell all its brokers: for tests that want that error."""
    monkeypatch.setattr("gkafka.cluster.UNKNOWN_TOPIC_PATIENCE_S", 0.5)


@pytest.fixture(autouse=True)
def no_help_from_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mends or ends by itself a few seconds later, although nobody has seen to it, takes so long here that the test fails."""
    for late in LATE:
        monkeypatch.setattr(f"gkafka.{late}", 100.0)


@pytest.fixture(params=["threading", "gevent"])
def run(request: pytest.FixtureRequest) -> Runner:
    """The way of concurrency under test."""
    return Runner(request.param)


@pytest.fixture
def connect(run: Runner, make_cluster: Callable[..., MockCluster]) -> Iterator[Connect]:
    """Makes clients; each is closed at the end, before its cluster, and must have ended its workers then."""
    made: list[KafkaClient] = []

    def make(hosts: MockCluster | str, **options: Any) -> KafkaClient:
        address = hosts if isinstance(hosts, str) else hosts.bootstrap
        made.append(KafkaClient(address, **{"handler": run.name, **options}))
        return made[-1]

    yield make
    for client in made:
        begun = now()
        with contextlib.suppress(KafkaException):  # what could not be delivered is the test's business
            client.close(2.0)
        assert now() - begun < 30, "close() took long"
        run.until(lambda handler=client.handler: not any(w.is_alive() for w in handler.workers()))


@pytest.fixture
def client(connect: Connect, cluster: MockCluster) -> KafkaClient:
    """A client of `cluster`."""
    return connect(cluster)
