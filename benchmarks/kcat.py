"""kafka-tools beside kcat: a million records of 100 bytes written and read through a pipe, by the wall clock, in turns.

    python benchmarks/kcat.py [--rounds 3] [--records 1000000]

Needs kcat (Debian has it). Both talk to the stub broker, which is as fast as the wire. Prints seconds and the ratio of kcat's to kafka-tools'.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PATIENCE_S = 300.0
TOOL = [sys.executable, "-m", "gkafka.cli"]


def seconds(command: list[str], stdin: Path | None = None) -> float:
    """Raises CalledProcessError where it fails."""
    began = time.perf_counter()
    with open(stdin or "/dev/null", "rb") as lines:
        subprocess.run(command, stdin=lines, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=True, cwd=ROOT)
    return time.perf_counter() - began


def run(records: int, rounds: int) -> None:
    """Print a line for each way."""
    from benchmarks.figures import create, stub_broker
    from gkafka import KafkaClient

    with tempfile.TemporaryDirectory() as folder, stub_broker() as broker:
        lines = Path(folder) / "lines"
        lines.write_bytes(b"".join(b"%08d%s\n" % (number, b"x" * 92) for number in range(records)))
        for topic in ("full", "theirs", "ours"):
            create(broker, topic, 1)
        with KafkaClient(broker) as client, client.get_producer() as producer:
            for number in range(records):
                producer.produce("full", b"%08d%s" % (number, b"x" * 92), partition=0)
            producer.flush(PATIENCE_S)
        read, kcat = [*TOOL, "consume", "full", "-b", broker], ["kcat", "-C", "-b", broker, "-t", "full", "-e", "-q", "-o", "beginning"]
        ways: dict[str, tuple[list[str], list[str], Path | None]] = {
            "consume, text": (kcat, read, None),
            "consume, json": ([*kcat, "-J"], [*read, "--json"], None),
            "consume, time and key": ([*kcat, "-f", "%T %k %s\\n"], [*read, "--show", "timestamp,key"], None),
            "produce": (["kcat", "-P", "-b", broker, "-t", "theirs"], [*TOOL, "produce", "ours", "-b", broker], lines),
        }
        print(f"{'':24} {'kcat, s':>8} {'ours, s':>8} {'ratio':>6}")
        for name, (theirs, ours, stdin) in ways.items():
            taken = [(seconds(theirs, stdin), seconds(ours, stdin)) for _ in range(rounds)]
            peer, mine = (statistics.median(values) for values in zip(*taken, strict=True))
            print(f"{name:24} {peer:8.2f} {mine:8.2f} {peer / mine:6.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    given = parser.parse_args()
    if shutil.which("kcat") is None:
        print("kcat is not installed: apt install kcat", file=sys.stderr)
        return 1
    run(given.records, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
