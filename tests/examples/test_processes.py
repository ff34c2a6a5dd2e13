"""docs/processes.md: which test plays each row of its tables, and the programs of multiprocessing and concurrent.futures."""

from __future__ import annotations

import ast
import json
import re
import sys
from typing import Any, NamedTuple

import pytest

from gkafka.testing import MockCluster
from tests.gevent.live.recipes import LINGER_S, Program
from tests.handlers.hub import ROOT

PAGE = (ROOT / "docs" / "processes.md").read_text(encoding="utf-8")


# -- which test plays which row --------------------------------------------------------------------------------------------------
def named(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{file}.py::test_{name}" for name in names)


HERE, RECYCLED, OTHERS = "examples/test_processes", "examples/test_recycled_workers", "public/test_other_processes"
GUNICORN, UWSGI, CELERY = (f"gevent/live/test_{name}" for name in ("16_gunicorn", "17_uwsgi", "18_celery"))
OF_GUNICORN = (
    *named(GUNICORN, "16_gunicorns_workers_deliver_and_send_what_is_pending_at_sigterm"),
    *named(RECYCLED, "workers_that_are_replaced_lose_nothing"),
)
OF_UWSGI = (
    *named(UWSGI, "17_uwsgis_workers_deliver_and_send_what_is_pending_at_sigterm"),
    *named(UWSGI, "17_a_client_that_its_workers_make_works_wherever_the_application_is_loaded"),
    *named(RECYCLED, "a_worker_of_uwsgi_with_threads_sends_what_it_holds_as_it_ends"),
)

TOLD = {
    "it gives a client, a producer, a consumer, a topic or an admin to another process (`pickle`)": named(
        OTHERS, "each_kind_of_object_says_that_it_belongs_to_its_process"
    ),
    "it uses in a forked child what its parent has created": (
        *named("public/test_forks", "a_child_is_told_by_each_call_of_each_consumer_and_stops_nothing_of_the_parents"),
        *named("public/test_forks_recreate", "every_call_of_producers_and_deliveries_tells_a_child"),
    ),
    "it gives a delivery to another process": named(OTHERS, "a_delivery_says_what_can_be_sent_and_that_can"),
}
"""The first table: what the program does -> the tests that do it."""
WHERE = {
    "`multiprocessing`, spawn and forkserver": (
        *named(OTHERS, "a_process_that_is_given_a_producer_does_not_start"),
        *named(HERE, "a_process_sends_what_its_producer_holds"),
    ),
    "`multiprocessing`, fork": named(
        HERE,
        "a_forked_process_is_told_by_each_call",
        "a_process_sends_what_its_producer_holds",
        "a_producer_that_goes_on_in_a_forked_process_sends_what_it_holds_there",
    ),
    "`multiprocessing.Pool`": named(
        HERE,
        "a_pool_tells_what_it_cannot_have",
        "a_forked_process_is_told_by_each_call",
        "a_pool_sends_what_its_producers_hold_unless_it_is_terminated",
    ),
    "`ProcessPoolExecutor`": named(
        HERE,
        "an_executor_tells_what_it_cannot_have",
        "a_forked_process_is_told_by_each_call",
        "an_executor_delivers_and_sends_what_its_producers_hold",
    ),
    "gunicorn": (*named(GUNICORN, "16_a_client_that_each_worker_makes_at_import_works"), *OF_GUNICORN),
    "gunicorn `--preload` (`preload_app`)": (
        *named(GUNICORN, "16_a_client_of_the_master_is_refused_in_its_workers_at_once"),
        *OF_GUNICORN,
    ),
    "uWSGI `--lazy-apps`": OF_UWSGI,
    "uWSGI": (*named(UWSGI, "17_a_client_of_the_master_is_refused_in_its_workers_at_once"), *OF_UWSGI),
    "Celery `-P prefork`": named(
        CELERY,
        "18_in_a_pool_of_processes_each_task_says_that_it_has_to_be_made_there",
        "18_each_task_of_a_worker_is_one_record",
        "18_what_tasks_did_not_wait_for_is_sent_at_the_end",
        "18_a_process_that_is_replaced_sends_what_its_tasks_did_not_wait_for",
    ),
    "Celery `-P gevent`, `threads` and `solo`": named(
        CELERY,
        "18_tasks_of_five_hundred_greenlets_share_the_modules_producer",
        "18_each_task_of_a_worker_is_one_record",
        "18_what_tasks_did_not_wait_for_is_sent_at_the_end",
    ),
}
"""The second table: where -> the tests that play its columns, in their order."""


def first_cells(header: str) -> list[str]:
    """Of the rows of the table whose first column has this header."""
    (table,) = re.findall(rf"^\| {header} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [line.split("|")[1].strip() for line in table.splitlines()]


def test_each_row_of_the_page_is_played_by_tests_that_are_there() -> None:
    assert first_cells("what the program does") == list(TOLD)
    assert first_cells("where") == list(WHERE)
    missing = []
    for test in {test for tests in (*TOLD.values(), *WHERE.values()) for test in tests}:
        file, _, function = test.partition("::")
        names = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
        missing += [] if function in names else [test]
    assert missing == []


# -- multiprocessing and concurrent.futures ------------------------------------------------------------------------------------
PROGRAM = PAGE.partition("```python\n")[2].partition("```")[0]
CALLED = """
CONTEXT = multiprocessing.get_context(METHOD)


def hold():
    # The producer of this process, which sends nothing by itself before the test is over.
    global producer
    producer = KafkaClient(HOSTS).get_producer(linger_ms=LINGER_MS, exit_timeout_ms=100_000)


def send(value):
    producer.produce("orders", value)


def hold_and_send(value):
    hold()
    send(value)


def hold_and_say(accepted):
    global say
    hold()
    say = accepted.set


def send_and_go_on(value):
    send(value)
    say()
    time.sleep(600)


def give_back():
    return producer


def told(call, *arguments):
    try:
        return f"{call(*arguments)}"
    except Exception as error:
        return f"{type(error).__name__} {error}"


def use_the_parents():
    calls = (parents.flush, parents.stats, client.close, lambda: parents.produce("orders", b"x"), lambda: client.topics["orders"])
    return [told(call) for call in calls]


def use_the_parents_in_a_process(results):
    results.send(use_the_parents())


def send_the_parents(value):
    again.produce("orders", value)
"""
PLAYED = """
    said = {}
    client = KafkaClient(HOSTS)
    parents = client.get_producer()
    parents.produce("orders", b"parents").result(60)
    again = KafkaClient(HOSTS).get_producer(linger_ms=LINGER_MS, exit_timeout_ms=100_000, on_fork="recreate")
    again.produce("orders", b"again by the parent")

    child = CONTEXT.Process(target=hold_and_send, args=(b"process",))
    child.start()
    child.join()

    pool = CONTEXT.Pool(1, initializer=hold, maxtasksperchild=2)
    pool.map(send, [b"pool 0", b"pool 1", b"pool 2"], chunksize=1)
    said["pool"] = [told(pool.apply, id, (client,))]
    pool.close()
    pool.join()
    accepted = CONTEXT.Event()
    with CONTEXT.Pool(1, initializer=hold_and_say, initargs=(accepted,)) as pool:
        pool.apply_async(send_and_go_on, (b"terminated",))
        accepted.wait()

    with ProcessPoolExecutor(1, CONTEXT, initializer=hold) as pool:
        said["executor"] = [told(pool.submit(id, client).result), told(pool.submit(give_back).result)]
        list(pool.map(send, [b"executor 0", b"executor 1"]))

    if METHOD != "fork":
        said["pool"].append(told(CONTEXT.Pool, 1, print, (client,)))
    else:
        results, theirs = CONTEXT.Pipe()
        child = CONTEXT.Process(target=use_the_parents_in_a_process, args=(theirs,))
        child.start()
        said["forked"] = [results.recv()]
        child.join()
        with CONTEXT.Pool(1) as pool, ProcessPoolExecutor(1, CONTEXT) as executor:
            said["forked"] += [pool.apply(use_the_parents), executor.submit(use_the_parents).result()]

        child = CONTEXT.Process(target=send_the_parents, args=(b"again by the child",))
        child.start()
        child.join()
        parents.produce("orders", b"parents").result(60)
    print(json.dumps(said))
"""
BELONGS = (
    r"TypeError a {} cannot be pickled or copied, it belongs to the process that created it: create the client in the process that uses it"
)


class Played(NamedTuple):
    """printed: by the page's program; told: in words, by what was asked; values: of the records, in their order."""

    printed: str
    told: dict[str, Any]
    values: list[bytes]
    logged: list[str]

    def those(self, stem: bytes) -> list[bytes]:
        return [value for value in self.values if value.startswith(stem)]


@pytest.fixture(scope="module", params=["spawn", "forkserver", "fork"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The program of the page and what else its rows do, in one program for each way to start processes."""
    definitions, main, work = PROGRAM.partition('if __name__ == "__main__":\n')
    assert main
    program = tmp_path_factory.mktemp("processes") / "program.py"
    with MockCluster(topics={"orders": 1}) as cluster:
        head = f"METHOD, LINGER_MS = {request.param!r}, {LINGER_S * 1000}\nimport json\nimport time\n"
        source = (head + definitions + CALLED + main + work + PLAYED).replace('"127.0.0.1:9092"', repr(cluster.bootstrap))
        program.write_text(source.replace('"spawn"', "METHOD"))
        with Program([sys.executable, str(program)], program.parent) as running:
            status = running.wait(LINGER_S)
        values = [record.value or b"" for record in cluster.log("orders", 0)]
    assert status == 0, running.said()
    printed, *logged, told = running.said().splitlines()
    return Played(printed, json.loads(told), values, logged)


def test_a_process_sends_what_its_producer_holds(played: Played) -> None:
    assert played.those(b"process") == [b"process"]


def test_a_pool_sends_what_its_producers_hold_unless_it_is_terminated(played: Played) -> None:
    """Two processes, since each has two tasks; then one that is in the middle of a task when its pool's block ends."""
    assert played.those(b"pool") == [b"pool 0", b"pool 1", b"pool 2"]
    assert played.those(b"terminated") == []


def test_a_pool_tells_what_it_cannot_have(played: Played) -> None:
    assert played.told["pool"]
    assert all(re.match(BELONGS.format("KafkaClient"), told) for told in played.told["pool"]), played.told


def test_an_executor_delivers_and_sends_what_its_producers_hold(played: Played) -> None:
    """The first one is that of the page."""
    assert played.printed == "100 records are delivered"
    assert sorted(value for value in played.values if value.isdigit()) == sorted(b"%d" % number for number in range(100))
    assert played.those(b"executor") == [b"executor 0", b"executor 1"]


def test_an_executor_tells_what_it_cannot_have(played: Played) -> None:
    given, returned = played.told["executor"]
    assert re.match(BELONGS.format("KafkaClient"), given)
    assert re.search(BELONGS.format("NativeProducer"), returned)


@pytest.mark.parametrize("played", ["fork"], indirect=True)
def test_a_forked_process_is_told_by_each_call(played: Played) -> None:
    """Of multiprocessing, of a pool, and of an executor; the parent goes on."""
    of_processes = played.told["forked"]
    assert [len(told) for told in of_processes] == [5, 5, 5]
    for told in (told for process in of_processes for told in process):
        assert re.fullmatch(r"ForkedClientError created in pid \d+, used in pid \d+: create the client after the fork", told)
    assert played.those(b"parents") == [b"parents"] * 2


@pytest.mark.parametrize("played", ["fork"], indirect=True)
def test_a_producer_that_goes_on_in_a_forked_process_sends_what_it_holds_there(played: Played) -> None:
    """What its parent holds is the parent's. Only this child has to know; the others, which ended before, said nothing of it."""
    assert sorted(played.those(b"again")) == [b"again by the child", b"again by the parent"]
    said = [line for line in played.logged if "record(s)" in line]
    assert said == ["forked: 1 record(s) that the parent accepted are left to it: orders: 1"]
