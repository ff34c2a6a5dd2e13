"""What the guide of gevent says of the first client of a process: it imports what those after it need, so that they keep no hub."""

from __future__ import annotations

import json
import subprocess
import sys

from gkafka.testing import MockCluster

LIMIT_S = 120
PROGRAM = """
import json, sys
from gkafka import KafkaClient

def loaded():
    return {name for name in sys.modules if name.startswith("gkafka.")}

imported = len(loaded())
KafkaClient("127.0.0.1:9", handler="gevent").close()
made = loaded()
with KafkaClient(sys.argv[1], handler="gevent") as client:
    client.get_producer().produce("t", b"x").result(60)
    with client.get_consumer("t", auto_offset_reset="earliest") as consumer, client.get_consumer(["t"], group="g") as member:
        assert consumer.consume(timeout_ms=60_000).value == b"x"
        member.consume(timeout_ms=200)
print(json.dumps({"imported": imported, "made": len(made), "later": sorted(loaded() - made)}))
"""


def test_later_clients_import_next_to_nothing() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        command = [sys.executable, "-c", PROGRAM, cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["later"]) <= {"gkafka.producermemory"}
    assert told["made"] > told["imported"] + 20, "to import gkafka.client is not enough: the guide says to make a client"
