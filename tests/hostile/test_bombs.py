"""G17, G19: what a few bytes may cost a whole client, measured in a process of its own: memory over what it had. benchmarks/hostile.py
shows what the error costs in time."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from tests.effort import one_of

SCRIPT = """
    import json, struct, sys, zlib
    from gkafka import KafkaClient
    from gkafka.exceptions import KafkaException
    from gkafka.records.compression import compress
    from gkafka.testing import Corrupt, MockCluster
    from tests.kit.clock import now
    from tests.records.handmade import batch, fix_crc, record, values

    case, handler = sys.argv[1:]
    CODECS = {"gzip": 1, "lz4": 3, "zstd": 4, "zstd with a window of 128 MiB": 4}

    def memory(name):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name))

    def packed(codec, body):
        whole = bytearray(batch([record(0, b"x")], base_offset=1, attributes=0)[:61] + body)
        struct.pack_into(">i", whole, 8, len(whole) - 12)
        whole[22] = codec
        return fix_crc(bytes(whole))

    def zeros(case, mib):  # streamed: the process must not have been large before
        begin = b""
        if case == "zstd":
            import zstandard
            packer = zstandard.ZstdCompressor(level=1).compressobj()
        elif "window" in case:  # by hand, since a compressor would take as much: runs of 128 KiB, three bytes and the one that is repeated
            runs = [((1 << 17) << 3 | 2 | (i == mib * 8 - 1)).to_bytes(3, "little") + b"A" for i in range(mib * 8)]
            return bytes([0x28, 0xB5, 0x2F, 0xFD, 0]) + bytes([(27 - 10) << 3]) + b"".join(runs)
        elif case == "gzip":
            packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        else:
            import lz4.frame
            packer = lz4.frame.LZ4FrameCompressor(block_linked=False)
            begin = packer.begin()
        return begin + b"".join([packer.compress(bytes(1 << 20)) for _ in range(mib)]) + packer.flush()

    with MockCluster(topics={"t": 1}) as cluster, KafkaClient(cluster.bootstrap, handler=handler) as client:
        cluster.append("t", 0, values(1))
        if case in CODECS:
            body = zeros(case, 256)
            assert len(body) <= {1: 300 << 10, 3: 1200 << 10, 4: 12 << 10}[CODECS[case]], len(body)
            cluster.append("t", 0, packed(CODECS[case], body))
        elif case == "snappy":
            body = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]) + bytes(10)  # 4 GiB - 1, in 15 bytes
            cluster.append("t", 0, packed(2, body))
        consumer = client.get_consumer(["t"], fetch_error_backoff_ms=5, fetch_wait_max_ms=50)
        assert consumer.consume(timeout_ms=60_000).offset == 0
        if case == "claim":
            cluster.on("Fetch", Corrupt(lambda frame: struct.pack(">i", 2**31 - 1) + frame[4:]), times=None)
        before = memory("VmRSS")
        deadline, error = now() + 60, None
        while error is None and now() < deadline:
            try:
                consumer.consume(timeout_ms=20)
            except KafkaException as exc:
                error = exc
        grown = memory("VmHWM") - before
        cluster.clear_script()
        usable = client.get_producer().produce("t", b"y").result(60).offset
        about = {**getattr(error, "about", {}), "text": error}
        print(json.dumps([type(error).__name__, {k: str(v) for k, v in about.items()}, grown, usable]))
"""
MiB = 1 << 10  # KiB


def outcome(case: str, handler: str) -> tuple[str, dict[str, str], int, int]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), case, handler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    name, about, grown, usable = json.loads(done.stdout)
    return name, about, grown, usable


@pytest.mark.parametrize("handler", one_of("gevent", "threading"))
@pytest.mark.parametrize("case", ["zstd", "zstd with a window of 128 MiB", "gzip", "lz4", "snappy"])
def test_g19_a_bomb_is_an_error_that_names_its_place_and_takes_no_more_than_its_limit(case: str, handler: str) -> None:
    name, about, grown, usable = outcome(case, handler)
    assert name == "CorruptRecordError"
    assert (about["topic"], about["partition"], about["offset"]) == ("t", "0", "1")
    assert grown <= (16 if case == "snappy" else 64 + 16) * MiB, f"{grown >> 10} MiB"
    assert usable == 2


@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_g17_a_claim_of_2_gib_costs_a_client_nothing_and_it_stays_usable(handler: str) -> None:
    name, about, grown, usable = outcome("claim", handler)
    assert (name, about["api"]) == ("ProtocolError", "Fetch")
    assert "claims a size of 2147483647 bytes" in about["text"]
    assert grown <= 16 * MiB
    assert usable == 1
