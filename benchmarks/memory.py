"""How much memory a producer takes that runs at full speed into a broker that has stopped answering.

The broker process is stopped (SIGSTOP) after the first acknowledgement and goes on when the measurement is over; then everything
that produce() accepted has to be delivered. Prints one JSON line: grown_mib (peak of the resident memory over its start),
buffer_mib, accepted, refused (produce() raised BufferFull), delivered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time

import gkafka
from gkafka.exceptions import BufferFull

MIB = 1 << 20


def resident_kb(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key + ":"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--buffer-mib", type=int, default=32)
    given = parser.parse_args()
    client = gkafka.KafkaClient(given.bootstrap)
    producer = client.get_producer(buffer_bytes=given.buffer_mib * MIB, max_block_ms=100)
    value = b"x" * 100
    producer.produce(given.topic, value).result(30)
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here
    before = resident_kb("VmRSS")
    accepted = refused = 0
    os.kill(given.pid, signal.SIGSTOP)
    try:
        end = time.perf_counter() + given.seconds
        while time.perf_counter() < end:
            try:
                for _ in range(1000):
                    last = producer.produce(given.topic, value)
                    accepted += 1
            except BufferFull:
                refused += 1
        peak = resident_kb("VmHWM")
    finally:
        os.kill(given.pid, signal.SIGCONT)
    producer.flush(90)
    delivered = last.result(1).offset == accepted
    producer.close(10)
    client.close(10)
    result = {
        "grown_mib": (peak - before) / 1024,
        "buffer_mib": given.buffer_mib,
        "accepted": accepted,
        "refused": refused,
        "delivered": delivered,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
