"""33: Spark's Python workers write by a client of each partition: on OS threads, and delivered when the task ends. Recipe and mapPartitions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.gevent.live.recipes import environment, lines, run
from tests.handlers.hub import ROOT
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

ROWS = 100_000
FEW = 1_000
# "gkafka with nothing around it": no handler is named, nothing is flushed by hand, no close() but that of the block.
MAP_PARTITIONS = """
import json, sys
sys.path.insert(0, "examples")
from spark_foreach import session
from gkafka import KafkaClient

hosts, topic, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])

def write(numbers):
    with KafkaClient(hosts) as client, client.get_producer() as producer:
        for number in numbers:
            producer.produce(topic, b"%d" % number)
        yield client.handler.name

spark = session(2)
print(json.dumps(spark.sparkContext.parallelize(range(rows), 4).mapPartitions(write).collect()))
spark.stop()
"""


@pytest.mark.thorough  # the recipe below is the same in one more Spark
def test_33_a_hundred_thousand_records_are_delivered_when_the_tasks_of_map_partitions_end(
    kafka: KafkaCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    done = subprocess.run(
        [sys.executable, "-c", MAP_PARTITIONS, kafka.hosts, topic, str(ROWS)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["threading"] * 4
    log = Peer(kafka.hosts, kafka.release).read(topic, ROWS, 4)
    assert sorted(int(record.value or b"-1") for record in log) == list(range(ROWS))


def test_33_the_recipe_writes_each_row_once(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    (line,) = lines("spark_foreach.py")
    topic = new_topic(4)
    said = run(line, "--hosts", kafka.hosts, "--topic", topic, "--rows", FEW)
    assert said == f"{FEW} rows delivered from 2 partitions\n"
    log = Peer(kafka.hosts, kafka.release).read(topic, FEW, 4)
    assert sorted((int(record.value or b"-1"), int(record.key or b"-1")) for record in log) == [(n, n % 100) for n in range(FEW)]
