"""18: celery -P gevent and -P prefork, by the lines of docs/recipes.md; 5,000 tasks in a pool of 500 greenlets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import one_of, quick_and_thorough
from tests.gevent.live.recipes import Program, command, lines, run
from tests.handlers.hub import ROOT
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

QUEUED = 20
WORKERS = lines("celery_app.py", "worker")
(SEND,) = lines("celery_app.py", "send")


def values(peer: Peer, topic: str, count: int) -> list[bytes | None]:
    peer.wait_for(topic, count)
    return sorted((record.value for record in peer.read(topic, count)), key=lambda value: int(value or 0) if value != b"loaded" else -1)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fed(module: str, options: str, count: int, kafka: KafkaCluster, topic: str, folder: Path, **more: str) -> Program:
    """A worker of a module that feeds itself so many tasks."""
    command = [sys.executable, "-m", "celery", "-A", f"tests.gevent.live.{module}", "worker", "-l", "WARNING"]
    given = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")]),
        "CELERY_BROKER": "memory://",
        "FEED_COUNT": str(count),
        "KAFKA_HOSTS": kafka.hosts,
        "KAFKA_TOPIC": topic,
    }
    return Program([*command, "--without-gossip", "--without-mingle", *options.split()], folder, **given, **more)


@pytest.mark.parametrize("tasks", quick_and_thorough(1_500, 5_000))
def test_18_tasks_of_five_hundred_greenlets_share_the_modules_producer(
    tasks: int, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    with fed("celery_feeder", "-P gevent -c 500", tasks, kafka, topic, tmp_path, KAFKA_CREATE="import") as worker:
        worker.wait_until(lambda: "FED" in worker.said(), "done", 90)
        told = json.loads(worker.said().partition("FED ")[2].splitlines()[0])
        assert (told["ended"], told["handler"]) == ({"SUCCESS": tasks}, "gevent"), worker.said()
        worker.end()
        assert "Traceback" not in worker.said(), worker.said()
    assert values(Peer(kafka.hosts, kafka.release), topic, tasks + 1) == [b"loaded", *numbers(tasks)]


@pytest.mark.parametrize("pool", ["-P prefork -c 2", *one_of("-P gevent -c 50", "-P threads -c 4", "-P solo")])
def test_18_what_tasks_did_not_wait_for_is_sent_at_the_end(
    pool: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Of processes by worker_process_shutdown; where there is one process by the interpreter's own end."""
    topic = new_topic(1)
    with fed("celery_keeper", pool, QUEUED, kafka, topic, tmp_path) as worker:
        worker.wait_until(lambda: worker.said().count("KEPT") == QUEUED, "done")
        worker.end()
        assert "Traceback" not in worker.said(), worker.said()
    assert values(Peer(kafka.hosts, kafka.release), topic, QUEUED) == numbers(QUEUED)


def test_18_a_process_that_is_replaced_sends_what_its_tasks_did_not_wait_for(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Asked while the worker runs: of a transport without an event loop, which memory:// is, a thread of Celery's starts the new processes. Linux takes its
    end, which a warm shutdown begins with, for that of their parent, and kills them.
    """
    topic, options = new_topic(1), f"-P prefork -c 1 --max-tasks-per-child {QUEUED // 4}"
    with fed("celery_keeper", options, QUEUED, kafka, topic, tmp_path) as worker:
        assert values(Peer(kafka.hosts, kafka.release), topic, QUEUED) == numbers(QUEUED), worker.said()
        worker.end()
        assert "Traceback" not in worker.said(), worker.said()


@pytest.mark.parametrize("line", WORKERS, ids=range(len(WORKERS)))
def test_18_each_task_of_a_worker_is_one_record(line: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic, folder = new_topic(1), tmp_path / "queue"
    run(SEND, "--count", QUEUED, "--folder", folder)
    with Program(command(line, "--hosts", kafka.hosts, "--topic", topic, "--folder", folder), tmp_path) as worker:
        assert values(Peer(kafka.hosts, kafka.release), topic, QUEUED) == numbers(QUEUED), worker.said()
        assert "Traceback" not in worker.said(), worker.said()


def test_18_in_a_pool_of_processes_each_task_says_that_it_has_to_be_made_there(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, folder = new_topic(1), tmp_path / "queue"
    run(SEND, "--count", QUEUED, "--folder", folder)
    more = ["--hosts", kafka.hosts, "--topic", topic, "--folder", folder, "--create", "import"]
    with Program(command(WORKERS[0], "--pool", "prefork", *more), tmp_path) as worker:
        worker.wait_until(lambda: worker.said().count("raised unexpected: ForkedClientError") == QUEUED, "told of each task")
        assert "create the client after the fork" in worker.said()
    assert values(Peer(kafka.hosts, kafka.release), topic, 1) == [b"loaded"]
