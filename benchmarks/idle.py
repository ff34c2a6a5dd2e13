"""How much CPU a producer takes that has sent something and has nothing more to do. Prints one JSON line: cpu_percent."""

from __future__ import annotations

import argparse
import json
import time

import gkafka


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--handler", default="threading")
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    with gkafka.KafkaClient(given.bootstrap, handler=given.handler) as client, client.get_producer() as producer:
        producer.produce(given.topic, b"x").result(30)
        began, used = time.perf_counter(), time.process_time()
        client.handler.sleep(given.seconds)
        percent = 100 * (time.process_time() - used) / (time.perf_counter() - began)
    print(json.dumps({"cpu_percent": percent}))


if __name__ == "__main__":
    main()
