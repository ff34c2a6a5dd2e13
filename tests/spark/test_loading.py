"""What Spark's processes import before they do anything: their garbage is looked for later."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from gkafka.spark.loading import nothing_collected


@pytest.mark.parametrize("is_on", [True, False])
def test_while_something_is_imported_nothing_is_searched_for_garbage(is_on: bool) -> None:
    was_on = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        with nothing_collected():
            assert not gc.isenabled()
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


IMPORTS = """
import gc, sys
from gkafka.spark.source import GKafkaDataSource, kafka_schema
from pyspark.sql.datasource import InputPartition

seen = {}

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gkafka.spark."):
            seen[name.removeprefix("gkafka.spark.")] = gc.isenabled()
            raise ImportError(name)

sys.meta_path.insert(0, Watch())
source, schema = GKafkaDataSource({"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}), kafka_schema()
for call in (
    lambda: source.reader(schema).partitions(),
    lambda: next(source.reader(schema).read(InputPartition(1))),
    lambda: source.streamReader(schema),
    lambda: source.writer(schema, False),
    lambda: source.streamWriter(schema, False),
):
    try:
        call()
    except ImportError:
        pass
assert gc.isenabled()
print(seen)
"""


def test_what_a_process_of_spark_imports_is_not_searched_for_garbage_meanwhile() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(dict.fromkeys(("driver", "fetch", "streamreader", "sink"), False))


KEEPS = """
import gc, os
from gkafka.spark.loading import keep_loaded
keep_loaded()
print(gc.get_freeze_count())
os.environ["SPARK_REUSE_WORKER"] = "1"
keep_loaded()
kept = gc.get_freeze_count()
cycle = []
cycle.append(cycle)
keep_loaded()
print(kept > 1000, gc.get_freeze_count() == kept)
del cycle
print(gc.collect() >= 1)
"""


def test_a_worker_of_spark_keeps_what_it_has_loaded_and_no_other_process_does() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n") == ["0", "True True", "True", ""]
