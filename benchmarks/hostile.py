"""A hostile broker against gkafka and other clients: when the caller hears of it, what it is told, and what memory it costs.

    python benchmarks/hostile.py                 # every case, every client that is installed
    python benchmarks/hostile.py --case bomb --client gkafka

Each pair of client and case runs in a process of its own, with limits: 5 s of patience given to the client, 12 s and 4 GiB of address space to
the process. A server on the loopback plays the broker. Cases at start-up answer the client's first requests; the bombs stand in a log, which a
right broker (`gkafka.testing`) serves. The table shows: how it ended for the caller, after how many seconds, and the peak of memory over what
the process had when the client was made.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S, LIMIT_S, LIMIT_BYTES = 5, 12, 4 << 30
OURS = ("gkafka.client", "gkafka.nativeconsumer")
CLIENTS = {
    "gkafka": OURS,
    "gkafka, greenlets": (*OURS, "gkafka.handlers.greenlets"),
    "confluent-kafka": ("confluent_kafka",),
    "kafka-python": ("kafka",),
}
"""What is imported before time and memory count."""

# -- what the broker answers -------------------------------------------------------------------------------------------
Answer = Callable[[socket.socket, int, int], None]


def _size(size: int, then: bytes = b"", mib: int = 0) -> Answer:
    def answer(conn: socket.socket, correlation_id: int, _version: int) -> None:
        conn.sendall(struct.pack(">ii", size, correlation_id) + then)
        for _ in range(mib):
            conn.sendall(bytes(1 << 20))

    return answer


def _drip(conn: socket.socket, correlation_id: int, _version: int) -> None:
    for byte in struct.pack(">ii", 5000, correlation_id) + bytes(5000):
        conn.sendall(bytes([byte]))
        time.sleep(1)


def _raw(text: bytes) -> Answer:
    return lambda conn, *_: conn.sendall(text)


def _silent(_conn: socket.socket, _correlation_id: int, _version: int) -> None:
    time.sleep(LIMIT_S)


START_UP: dict[str, Answer] = {
    "2 GiB claimed, 600 MiB sent": _size(2**31 - 1, mib=600),
    "negative length": _size(-1),
    "HTTP text": _raw(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "TLS alert": _raw(b"\x15\x03\x03\x00\x02\x02\x50"),
    "12 bytes, body of zeros": lambda conn, *_: conn.sendall(struct.pack(">i", 8) + bytes(8)),
    "array of 2**31 elements": _size(10, b"\0\0\x7f\xff\xff\xff"),
    "wrong correlation id": lambda conn, cid, _: conn.sendall(struct.pack(">iihi", 10, cid + 7, 0, 0)),
    "1 byte/s": _drip,
    "silence": _silent,
}
BOMBS = ("256 MiB in 8 kB of zstd", "4 GiB claimed by 15 bytes of snappy")


@contextlib.contextmanager
def hostile_broker(answer: Answer) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(conn: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), conn:
            while size := conn.recv(4, socket.MSG_WAITALL):
                request = conn.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                _, version, correlation_id = struct.unpack_from(">hhi", request)
                answer(conn, correlation_id, version)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@contextlib.contextmanager
def broker_with_bomb(case: str) -> Iterator[str]:
    """A right broker, with a batch as another producer could have sent it."""
    from gkafka.records import crc32c
    from gkafka.testing import MockCluster

    if "zstd" in case:
        import zstandard

        codec, packer = 4, zstandard.ZstdCompressor(level=1).compressobj()
        body = b"".join([packer.compress(bytes(1 << 20)) for _ in range(256)]) + packer.flush()
    else:
        codec, body = 2, bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]) + bytes(10)
    behind_crc = struct.pack(">hiqqqhii", codec, 0, 0, 0, -1, -1, -1, 1) + body
    batch = struct.pack(">qiibI", 0, len(behind_crc) + 9, 0, 2, crc32c(behind_crc)) + behind_crc
    with MockCluster(topics={"t": 1}, versions="3.9") as cluster:
        cluster.append("t", 0, batch)
        yield cluster.bootstrap


# -- the clients, each in a process of its own -------------------------------------------------------------------------
def memory(name: str) -> int:
    """MiB: VmHWM is the peak, VmRSS what there is."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) >> 10


def with_gkafka(hosts: str, case: str, handler: str = "threading") -> None:
    from gkafka import KafkaClient

    with KafkaClient(hosts, handler=handler, api_timeout_ms=PATIENCE_S * 1000, connect_timeout_ms=PATIENCE_S * 1000) as client:
        if case in START_UP:
            client.connect(PATIENCE_S)
        else:
            consumer = client.get_consumer()
            consumer.assign([("t", 0)])
            consumer.seek(("t", 0), 0)
            if consumer.consume(timeout_ms=PATIENCE_S * 1000) is None:
                raise TimeoutError("nothing")


def with_confluent(hosts: str, case: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    if case in START_UP:
        Producer({"bootstrap.servers": hosts, "log_level": 0}).list_topics(timeout=PATIENCE_S)
        return
    consumer = Consumer({"bootstrap.servers": hosts, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    if message is None:
        raise TimeoutError("nothing")
    if message.error():
        raise RuntimeError(str(message.error()))


def with_kafka_python(hosts: str, case: str) -> None:
    import logging

    from kafka import KafkaConsumer, TopicPartition

    logging.disable(logging.CRITICAL)
    consumer = KafkaConsumer(bootstrap_servers=hosts, bootstrap_timeout_ms=PATIENCE_S * 1000, auto_offset_reset="earliest")
    if case in START_UP:
        consumer.topics()
        return
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek(TopicPartition("t", 0), 0)
    if not consumer.poll(timeout_ms=PATIENCE_S * 1000):
        raise TimeoutError("nothing")


PLAY: dict[str, Callable[[str, str], None]] = {
    "gkafka": with_gkafka,
    "gkafka, greenlets": lambda hosts, case: with_gkafka(hosts, case, "gevent"),
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
}


def play(client: str, case: str, hosts: str) -> None:
    """In the child: the outcome as one line of JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    for module in CLIENTS[client]:
        importlib.import_module(module)
    before, began = memory("VmRSS"), time.monotonic()
    told = "went on as if nothing was wrong"
    try:
        PLAY[client](hosts, case)
    except Exception as exc:
        told = f"{type(exc).__name__}: {exc}"
    took = time.monotonic() - began
    print(json.dumps({"told": told, "seconds": took, "mib": max(0, memory("VmHWM") - before)}), flush=True)
    os._exit(0)  # what a client does at its end is not the question


# -- the table ---------------------------------------------------------------------------------------------------------
def outcome(client: str, case: str) -> dict[str, Any]:
    broker = hostile_broker(START_UP[case]) if case in START_UP else broker_with_bomb(case)
    with broker as hosts:
        command = [sys.executable, __file__, "--play", client, case, hosts]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
        except subprocess.TimeoutExpired:
            return {"told": f"did not come back within {LIMIT_S} s", "seconds": float(LIMIT_S), "mib": None}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"told": f"the process died (status {done.returncode}): {last}", "seconds": None, "mib": None}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only the cases with this in their name")
    parser.add_argument("--client", default="", help="only the clients with this in their name")
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(*given.play)
    clients = [name for name, modules in CLIENTS.items() if given.client in name and importlib.util.find_spec(modules[0].split(".")[0])]
    print(f"Limits given to the clients: {PATIENCE_S} s. Seconds to the answer of the call; MiB over the start.\n")
    print("| case | client | seconds | MiB | what the caller is told |\n|---|---|---|---|---|", flush=True)
    for case in (case for case in (*START_UP, *BOMBS) if given.case in case):
        for client in clients:
            found = outcome(client, case)
            seconds = "-" if found["seconds"] is None else f"{found['seconds']:.2f}"
            told = " ".join(str(found["told"]).replace("|", "/").split())
            print(f"| {case} | {client} | {seconds} | {'-' if found['mib'] is None else found['mib']} | {told[:150]} |", flush=True)


if __name__ == "__main__":
    main()
