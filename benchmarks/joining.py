"""How long a group takes until every partition delivers: three consumers join, each partition holds a record. Prints one JSON line: seconds."""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid

import gkafka


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--members", type=int, default=3)
    given = parser.parse_args()
    group, lock, done = f"joining-{uuid.uuid4()}", threading.Lock(), threading.Event()
    seen: set[int] = set()
    ended: list[float] = []
    began = time.perf_counter()

    def member() -> None:
        with gkafka.KafkaClient(given.bootstrap) as client, client.get_consumer(given.topic, group) as consumer:
            while not done.is_set():
                found = {m.partition_id for m in consumer.consume_batch(timeout_ms=50)}
                with lock:
                    seen.update(found)
                    if len(seen) == given.partitions and not ended:
                        ended.append(time.perf_counter())
                        done.set()

    members = [threading.Thread(target=member) for _ in range(given.members)]
    for each in members:
        each.start()
    done.wait(60)
    done.set()
    for each in members:
        each.join()
    assert ended, f"{len(seen)} of {given.partitions} partitions have delivered after 60 s"
    print(json.dumps({"seconds": ended[0] - began}))


if __name__ == "__main__":
    main()
