"""`from gkafka import KafkaClient` imports what clients, producers and consumers need: where one is made a hub is not kept for that."""

from __future__ import annotations

import json
import subprocess
import sys

from gkafka.testing import MockCluster

LIMIT_S = 120
PROGRAM = """
import json, sys
import gevent
from gkafka import KafkaClient

def loaded():
    return {name for name in sys.modules if name.startswith("gkafka.")}

imported = loaded()
with KafkaClient(sys.argv[1], handler="gevent") as client:
    client.get_producer().produce("t", b"x").result(60)
    with client.get_consumer("t", auto_offset_reset="earliest") as consumer, client.get_consumer(["t"], group="g") as member:
        assert consumer.consume(timeout_ms=60_000).value == b"x"
        member.consume(timeout_ms=200)
    topic = client.topics["t"]
    with topic.get_producer(delivery_reports=True) as producer:
        producer.produce(b"y")
        assert producer.get_delivery_report(timeout=60)[1] is None
    topic.get_simple_consumer(consumer_timeout_ms=200).consume()
    topic.get_balanced_consumer("h", managed=True, consumer_timeout_ms=200).stop()
print(json.dumps(sorted(loaded() - imported)))
"""


def test_clients_import_nothing_later() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        command = [sys.executable, "-c", PROGRAM, cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
