"""The recipes of docs/recipes.md that serve nobody, by their lines; the others are run by the acceptance tests 16, 17, 18 and 33."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tests.gevent.live.recipes import lines, run
from tests.handlers.hub import ROOT
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer


def test_a_plain_gevent_program(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    (line,) = lines("greenlets.py")
    topic = new_topic(4)
    said = run(line, "--hosts", kafka.hosts, "--topic", topic)
    assert re.match(r"10000 records of 500 greenlets acknowledged in [\d.]+ s, 10000 read back, 0 of them twice\n", said), said
    log = [(record.key, record.value) for record in Peer(kafka.hosts, kafka.release).read(topic, 10_000, 4)]
    for worker in range(500):
        key = b"%d" % worker
        assert [value for k, value in log if k == key] == [b"%d.%d" % (worker, number) for number in range(20)]


def test_a_batch_job_on_threads(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    (line,) = lines("batch_threads.py")
    topic = new_topic(4)
    said = run(line, "--hosts", kafka.hosts, "--topic", topic)
    files = {name: (ROOT / name).read_bytes().splitlines() for name in ("README.md", "CHANGELOG.md")}
    count = sum(map(len, files.values()))
    assert said.startswith(f"{count} lines of 2 files delivered by 4 threads in "), said
    log = Peer(kafka.hosts, kafka.release).read(topic, count, 4)
    assert Counter(record.key for record in log) == {name.encode(): len(text) for name, text in files.items()}
    for name, text in files.items():
        assert [record.value for record in log if record.key == name.encode()] == text
