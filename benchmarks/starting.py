"""How long it takes until something is there: a bare interpreter, gkafka's modules, kafka-tools as a whole process on a local broker.

    python -m benchmarks.starting [--tries 15] [--hosts HOST:PORT]

Each line is the median and the least of several new processes: elapsed time, and the processor's, both in ms. The lines take turns, so that whatever
else the machine does meets all of them. Without --hosts the broker is one in this process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from gkafka.testing import MockCluster

TOOL = ["-m", "gkafka.cli"]


def once(arguments: list[str]) -> tuple[float, float]:
    """(elapsed, processor's) ms of a new interpreter with these arguments. Raises CalledProcessError if it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=60)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=15)
    parser.add_argument("--hosts", help="a running broker, in place of one in this process")
    given = parser.parse_args()
    with ExitStack() as stack:
        hosts = given.hosts or stack.enter_context(MockCluster(1, {f"topic-{n}": 4 for n in range(10)})).bootstrap
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = hosts
        cases = {
            "python": ["-c", "pass"],
            "import gkafka": ["-c", "import gkafka"],
            "import gkafka.client": ["-c", "import gkafka.client"],
            "import gkafka.kafka": ["-c", "import gkafka.kafka"],
            "kafka-tools --help": [*TOOL, "--help"],
            "kafka-tools version": [*TOOL, "version"],
            "kafka-tools topics": [*TOOL, "topics"],
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for number in range(given.tries + 1):
            for name, arguments in cases.items():
                times = once(arguments)
                if number:  # the first one compiles what was never imported, and fills the file system's cache
                    taken[name].append(times)
    print(f"{'':24}{'elapsed ms':>12}{'least':>8}{'processor ms':>15}{'least':>8}")
    for name, found in taken.items():
        elapsed, used = zip(*found, strict=True)
        print(f"{name:24}{statistics.median(elapsed):12.0f}{min(elapsed):8.0f}{statistics.median(used):15.0f}{min(used):8.0f}")


if __name__ == "__main__":
    main()
