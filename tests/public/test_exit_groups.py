"""An interpreter that ends with members of groups that nobody stopped: they leave, so that others have their partitions at once, and commit nothing."""

from __future__ import annotations

import pytest

from gkafka.testing import Delay, MockCluster
from tests.public.forking import script
from tests.public.test_exit import run_to_its_end

WAYS = [("threading", False), ("gevent", False), ("gevent", True)]
HANDLERS = pytest.mark.parametrize(("handler", "patched"), WAYS)
CONSUMERS = {
    "classic": 'client.get_consumer("t", "g", auto_offset_reset="earliest", auto_commit_interval_ms=1)',
    "KIP-848": 'client.get_consumer("t", "g", auto_offset_reset="earliest", auto_commit_interval_ms=1, group_protocol="consumer")',
    "pykafka": 'client.topics["t"].get_balanced_consumer("g", managed=True, auto_commit_enable=True)',
    "kafka-python": 'KafkaConsumer("t", group_id="g", bootstrap_servers=BOOTSTRAP, handler=HANDLER, auto_offset_reset="earliest", auto_commit_interval_ms=1)',
}
BEGIN = """
from gkafka.kafka import KafkaConsumer
BOOTSTRAP, HANDLER = {bootstrap!r}, {handler!r}
producer = client.get_producer()
for value in (b"1", b"2"):
    producer.produce("t", value).result(60)
consumer = {consumer}
taken = []
while len(taken) < 2:
    found = consumer.poll(timeout_ms=60_000, max_records=1) if hasattr(consumer, "poll") else consumer.consume()
    taken.extend([found] if found else [])
"""


def begin(cluster: MockCluster, handler: str, kind: str = "classic") -> str:
    return BEGIN.format(bootstrap=cluster.bootstrap, handler=handler, consumer=CONSUMERS[kind])


def members(cluster: MockCluster) -> int:
    group = cluster.group("g")
    return len(group.members) if group is not None else -1


@pytest.mark.parametrize(
    ("kind", "handler", "patched"),
    [(kind, *way) for kind in CONSUMERS for way in WAYS if kind == "classic" or way != ("gevent", False)],
)
def test_a_member_that_was_not_stopped_leaves_and_commits_nothing_that_was_not_finished(
    cluster: MockCluster, kind: str, handler: str, patched: bool
) -> None:
    """The second message is in the program's hands. A worker of gunicorn that was replaced left partitions to nobody until its session had ended."""
    said, took = run_to_its_end(cluster, begin(cluster, handler, kind), handler, patched)
    assert members(cluster) == 0
    assert all(committed.offset <= 1 for committed in cluster.committed("g").values())
    assert said == ""
    assert took < 30


@HANDLERS
def test_a_static_member_stays_for_whoever_comes_after_it(cluster: MockCluster, handler: str, patched: bool) -> None:
    program = begin(cluster, handler).replace('"t", "g",', '"t", "g", group_instance_id="i",')
    said, _ = run_to_its_end(cluster, program, handler, patched)
    assert members(cluster) == 1
    assert said == ""


@HANDLERS
def test_a_coordinator_that_is_silent_does_not_hold_the_end_up_for_long_and_is_told_of(
    cluster: MockCluster, handler: str, patched: bool
) -> None:
    cluster.on("LeaveGroup", Delay(300), times=None)
    program = begin(cluster, handler) + "from gkafka import lifetime\nlifetime.LEAVE_S = lifetime.LEAVE_LAST_S = 0.2\n"
    said, took = run_to_its_end(cluster, program, handler, patched)
    assert "group 'g': the interpreter ends, and a member that was not stopped could not say that it leaves" in said
    assert took < 30


@HANDLERS
def test_a_member_whose_client_was_closed_holds_nothing_up_and_is_not_told_of_again(
    cluster: MockCluster, handler: str, patched: bool
) -> None:
    """close() has told it already."""
    cluster.on("LeaveGroup", Delay(300), times=None)
    said, took = run_to_its_end(cluster, begin(cluster, handler) + "client.close(0.1)\n", handler, patched)
    assert "the interpreter ends" not in said
    assert took < 30


COMMITS = """
producer = client.get_producer(linger_ms=60_000, exit_timeout_ms=100_000, on_delivery=lambda delivery: consumer.commit({("t", 0): 2}))
producer.produce("t", b"made of 1")
"""


@HANDLERS
def test_the_last_delivery_may_still_commit(cluster: MockCluster, handler: str, patched: bool) -> None:
    by_hand = begin(cluster, handler).replace("auto_commit_interval_ms=1", "auto_commit=False")
    said, _ = run_to_its_end(cluster, by_hand + COMMITS, handler, patched)
    assert {tp: committed.offset for tp, committed in cluster.committed("g").items()} == {("t", 0): 2}
    assert members(cluster) == 0
    assert said == ""


def test_a_member_in_a_hub_of_another_thread_leaves(cluster: MockCluster) -> None:
    program = """
    import threading
    ready = threading.Event()

    def work():
        import gevent
        client = KafkaClient(BOOTSTRAP, handler="gevent")
        keep.append(client.get_consumer("t", "g"))
        while not keep[0].assignment():
            gevent.sleep(0.01)
        ready.set()
        gevent.sleep(3600)

    keep = []
    threading.Thread(target=work, daemon=True).start()
    ready.wait()
    """
    said, took = run_to_its_end(cluster, program.replace("BOOTSTRAP", repr(cluster.bootstrap)), "gevent", False)
    assert members(cluster) == 0
    assert said == ""
    assert took < 30


CHILD = """
    import multiprocessing
    cluster = MockCluster(topics={"t": 1})

    def join(keep):
        client = KafkaClient(cluster.bootstrap, handler=HANDLER)
        keep.append(client.get_consumer("t", "g"))
        while not keep[0].assignment():
            client.handler.sleep(0.01)

    def work():
        join(mine)

    mine = []
    if INHERITS:
        join(mine)
        work = lambda: None
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    print(child.exitcode, len(cluster.group("g").members), cluster.count("LeaveGroup"))
    for consumer in mine:
        consumer.stop()
    cluster.close()
"""


@HANDLERS
def test_a_process_of_multiprocessing_leaves(handler: str, patched: bool) -> None:
    assert script(CHILD.replace("INHERITS", "False"), handler, patched) == ["0 0 1"]


@HANDLERS
def test_a_child_leaves_no_group_of_its_parents(handler: str, patched: bool) -> None:
    assert script(CHILD.replace("INHERITS", "True"), handler, patched) == ["0 1 0"]
