#!/usr/bin/env python3
"""Interleaved benchmark of Python Kafka clients.

  client_bench.py run    [options]     interleave clients x cells, print medians and ratios
  client_bench.py worker [options]     one measurement in this process, one JSON line

Every measurement is its own process.  `run` starts the wire-speed stub broker
(stub_broker.c, 127.0.0.1) unless --bootstrap is given (then any broker, e.g. real
Apache Kafka).  Correctness gates speed: a produce run is read back by an
independent reader (count, bytes, sum of crc32, per-partition order); a consume
run keeps every 1009th value for comparison and then re-reads everything, untimed,
through the same adapter and checks count + checksum + order.  A run that fails
either is reported as FAIL and has no rate.

Payload i of a run is POOL[i % K]; its first 4 bytes are i % K, the rest
semi-compressible text.  Message i goes to partition i % P (--partitioning explicit)
or wherever the client's default partitioner puts it (--partitioning none).

Clients: kafka-python aiokafka confluent pykafka gkafka gkafka-pk native (BENCH_ADAPTER=module:Class) ; append "+gevent"
to run under gevent.monkey.patch_all() (a ticker greenlet then measures how long the
hub was blocked), "+ticker" to measure the same with a thread, "confluent+gevent+offload" to
call consume() in gevent's threadpool, "confluent+default" for librdkafka's own consumer defaults.
pykafka (MessageSet v0/v1) cannot be read back compressed from the stub broker (it never
looks inside a wrapper message): use an older real broker for pykafka with a codec.
"""

# ruff: noqa: UP031

import argparse
import importlib
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
import zlib
from typing import ClassVar

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = 1009
# Slow clients get fewer messages for the same wall time.
NSCALE = {"native": 1.0, "confluent": 1.0, "gkafka": 1.0, "gkafka-pk": 1.0, "kafka-python": 0.25, "aiokafka": 0.25, "pykafka": 0.15}


# ----------------------------------------------------------------- payloads
def make_pool(size):
    k = 4096 if size <= 2000 else 512
    rnd = random.Random(12345)
    words = [bytes(rnd.choice(b"abcdefghijklmnopqrstuvwxyz") for _ in range(rnd.randint(3, 9))) for _ in range(400)]
    blob = bytearray()
    while len(blob) < size + 65536:
        blob += rnd.choice(words)
        blob += b'="%d",' % rnd.randint(0, 99999)
    pool = []
    for i in range(k):
        o = rnd.randint(0, 65535)
        pool.append(i.to_bytes(4, "big") + bytes(blob[o : o + size - 4]))
    return pool


def expected(pool, n):
    k = len(pool)
    crcs = [zlib.crc32(p) for p in pool]
    full, rem = divmod(n, k)
    return (full * sum(crcs) + sum(crcs[:rem])) & (2**64 - 1)


class Checker:
    """Order, count and checksum of (partition, value) pairs."""

    def __init__(self, pool, nparts, ordered):
        self.pool, self.k, self.np, self.ordered = pool, len(pool), nparts, ordered
        self.crcs = [zlib.crc32(p) for p in pool]
        self.n = self.bytes = self.sum = self.bad = self.disorder = 0
        self.nxt = {}

    def add(self, part, v):
        i = int.from_bytes(v[:4], "big")
        c = zlib.crc32(v)
        if i >= self.k or c != self.crcs[i]:
            self.bad += 1
        if self.ordered:
            if self.nxt.get(part, part % self.k) != i:
                self.disorder += 1
            self.nxt[part] = (i + self.np) % self.k
        self.n += 1
        self.bytes += len(v)
        self.sum = (self.sum + c) & (2**64 - 1)

    def ok(self, n):
        return self.n == n and not self.bad and not self.disorder and self.sum == expected(self.pool, n)

    def why(self, n):
        return "n=%d/%d bad=%d disorder=%d sum_ok=%s" % (self.n, n, self.bad, self.disorder, self.sum == expected(self.pool, n))


# ----------------------------------------------------------------- adapters
class Meter:
    """Started by the adapter just before the first produce()/ on the first received message."""

    def __init__(self):
        self.t0 = self.n0 = None

    def start(self, n0=0):
        if self.t0 is None:
            self.t0, self.n0 = time.perf_counter(), n0


class Adapter:
    """produce(): send a.n payloads, return the number the client CONFIRMED after its flush.
    consume(): read a.n messages, touching every value (len) and keeping every SAMPLE-th;
    return (n, total_bytes, samples).  read(): generator of (partition, value), untimed.
    latency(): return (list of ack seconds, list of end-to-end seconds)."""

    def __init__(self, a):
        self.a = a


class KafkaPython(Adapter):
    mod = "kafka"
    facade_kw: ClassVar[dict] = {}

    def _m(self):
        import importlib

        return importlib.import_module(self.mod)

    def _producer(self, linger=None):
        a = self.a
        kw = {
            "bootstrap_servers": a.bootstrap,
            "acks": int(a.acks) if a.acks != "all" else "all",
            "compression_type": None if a.codec == "none" else a.codec,
            "linger_ms": a.linger_ms if linger is None else linger,
            "batch_size": a.batch_size,
            "max_in_flight_requests_per_connection": 5,
            "max_request_size": 8 << 20,
            "enable_idempotence": bool(a.idempotent),
        }
        kw.update(self.facade_kw)
        return self._m().KafkaProducer(**kw)

    def _consumer(self):
        a, m = self.a, self._m()
        c = m.KafkaConsumer(
            bootstrap_servers=a.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=a.poll_batch,
            check_crcs=a.crc == "on",
            max_partition_fetch_bytes=a.partition_fetch_bytes,
            **self.facade_kw,
        )
        c.assign([m.TopicPartition(a.topic, p) for p in range(a.partitions)])
        c.seek_to_beginning()
        return c

    def produce(self, pool, meter):
        a = self.a
        p = self._producer()
        p.partitions_for(a.topic) if hasattr(p, "partitions_for") else None
        send, topic, np, n = p.send, a.topic, a.partitions, a.n
        vals = itertools.islice(itertools.cycle(pool), n)
        explicit = a.partitioning == "explicit"
        meter.start()
        if a.confirm == "each":
            futs = []
            add = futs.append
            if explicit:
                for i, v in enumerate(vals):
                    add(send(topic, v, partition=i % np))
            else:
                for v in vals:
                    add(send(topic, v))
            p.flush(120)
            n = sum(1 for f in futs if f.succeeded())
        else:
            if explicit:
                for i, v in enumerate(vals):
                    send(topic, v, partition=i % np)
            else:
                for v in vals:
                    send(topic, v)
            p.flush(120)
        t = time.perf_counter()
        p.close()
        return n, t

    def consume(self, meter):
        a = self.a
        c = self._consumer()
        n = tot = 0
        samp = []
        want, poll = a.n, c.poll
        nexts = 0
        while n < want:
            recs = poll(timeout_ms=200)
            if not recs:
                continue
            first = n == 0
            for rs in recs.values():
                for r in rs:
                    tot += len(r.value)
                k = len(rs)
                while nexts < n + k:
                    samp.append(rs[nexts - n].value)
                    nexts += SAMPLE
                n += k
            if first:
                meter.start(n)
        t = time.perf_counter()
        c.close()
        return n, tot, samp, t

    def read(self):
        a = self.a
        c = self._consumer()
        n = idle = 0
        while n < a.fill and idle < 50:
            recs = c.poll(timeout_ms=200)
            idle = 0 if recs else idle + 1
            for tp, rs in recs.items():
                for r in rs:
                    yield tp.partition, r.value
                n += len(rs)
        c.close()

    def latency(self, pool):
        a = self.a
        p, c = self._producer(linger=0), self._consumer()
        ack, e2e = [], []
        for i in range(a.n + 20):
            v = pool[i % len(pool)]
            t0 = time.perf_counter()
            p.send(a.topic, v, partition=i % a.partitions).get(30)
            t1 = time.perf_counter()
            while True:
                recs = c.poll(timeout_ms=1000)
                if recs:
                    got = [r.value for rs in recs.values() for r in rs]
                    assert got == [v], (len(got), i)
                    break
            t2 = time.perf_counter()
            if i >= 20:
                ack.append(t1 - t0)
                e2e.append(t2 - t0)
        p.close()
        c.close()
        return ack, e2e


class GKafka(KafkaPython):
    """gkafka through its kafka-python-style facade :
    GKAFKA_FACADE names the module that has KafkaProducer, KafkaConsumer, TopicPartition."""

    mod = os.environ.get("GKAFKA_FACADE", "gkafka.kafka")


class AioKafka(Adapter):
    def _run(self, coro):
        import asyncio

        return asyncio.run(coro)

    async def _producer(self, linger=None):
        from aiokafka import AIOKafkaProducer

        a = self.a
        p = AIOKafkaProducer(
            bootstrap_servers=a.bootstrap,
            acks=int(a.acks) if a.acks != "all" else "all",
            compression_type=None if a.codec == "none" else a.codec,
            linger_ms=a.linger_ms if linger is None else linger,
            max_batch_size=a.batch_size,
            max_request_size=8 << 20,
            enable_idempotence=bool(a.idempotent),
        )
        await p.start()
        return p

    async def _consumer(self):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        a = self.a
        c = AIOKafkaConsumer(
            bootstrap_servers=a.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=a.poll_batch,
            check_crcs=a.crc == "on",
            max_partition_fetch_bytes=a.partition_fetch_bytes,
        )
        await c.start()
        c.assign([TopicPartition(a.topic, p) for p in range(a.partitions)])
        await c.seek_to_beginning()
        return c

    def produce(self, pool, meter):
        async def go():
            a = self.a
            p = await self._producer()
            await p.partitions_for(a.topic)
            send, topic, np, n = p.send, a.topic, a.partitions, a.n
            vals = itertools.islice(itertools.cycle(pool), n)
            futs = [] if a.confirm == "each" else None
            explicit = a.partitioning == "explicit"
            meter.start()
            for i, v in enumerate(vals):
                f = await (send(topic, v, partition=i % np) if explicit else send(topic, v))
                if futs is not None:
                    futs.append(f)
            await p.flush()
            if futs is not None:
                n = sum(1 for f in futs if f.done() and f.exception() is None)
            t = time.perf_counter()
            await p.stop()
            return n, t

        return self._run(go())

    def consume(self, meter):
        async def go():
            a = self.a
            c = await self._consumer()
            n = tot = 0
            samp = []
            nexts = 0
            while n < a.n:
                recs = await c.getmany(timeout_ms=200, max_records=a.poll_batch)
                if not recs:
                    continue
                first = n == 0
                for rs in recs.values():
                    for r in rs:
                        tot += len(r.value)
                    k = len(rs)
                    while nexts < n + k:
                        samp.append(rs[nexts - n].value)
                        nexts += SAMPLE
                    n += k
                if first:
                    meter.start(n)
            t = time.perf_counter()
            await c.stop()
            return n, tot, samp, t

        return self._run(go())

    def read(self):
        async def go():
            c = await self._consumer()
            out, n, idle = [], 0, 0
            while n < self.a.fill and idle < 50:
                recs = await c.getmany(timeout_ms=200, max_records=10000)
                idle = 0 if recs else idle + 1
                for tp, rs in recs.items():
                    out.extend((tp.partition, r.value) for r in rs)
                    n += len(rs)
            await c.stop()
            return out

        return iter(self._run(go()))

    def latency(self, pool):
        async def go():
            a = self.a
            p, c = await self._producer(linger=0), await self._consumer()
            ack, e2e = [], []
            for i in range(a.n + 20):
                v = pool[i % len(pool)]
                t0 = time.perf_counter()
                await p.send_and_wait(a.topic, v, partition=i % a.partitions)
                t1 = time.perf_counter()
                while True:
                    recs = await c.getmany(timeout_ms=1000)
                    if recs:
                        assert [r.value for rs in recs.values() for r in rs] == [v]
                        break
                t2 = time.perf_counter()
                if i >= 20:
                    ack.append(t1 - t0)
                    e2e.append(t2 - t0)
            await p.stop()
            await c.stop()
            return ack, e2e

        return self._run(go())


class Confluent(Adapter):
    def _producer(self, linger=None):
        from confluent_kafka import Producer

        a = self.a
        return Producer(
            {
                "bootstrap.servers": a.bootstrap,
                "acks": a.acks,
                "compression.type": a.codec,
                "linger.ms": a.linger_ms if linger is None else linger,
                "batch.size": a.batch_size,
                "batch.num.messages": 1000000,
                "queue.buffering.max.messages": 2000000,
                "queue.buffering.max.kbytes": 65536,
                "max.in.flight": 5,
                "message.max.bytes": 8 << 20,
                "enable.idempotence": bool(a.idempotent),
            }
        )

    def _consumer(self):
        from confluent_kafka import Consumer, TopicPartition

        a = self.a
        conf = {
            "bootstrap.servers": a.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "check.crcs": a.crc == "on",
            "max.partition.fetch.bytes": a.partition_fetch_bytes,
            "fetch.wait.max.ms": 500,
        }
        if not a.defaults:
            # librdkafka's default pauses a partition's fetch for fetch.queue.backoff.ms (1 s) once
            # queued.min.messages (100k) are queued: 5x slower on small messages.  Give it its best.
            conf.update({"queued.min.messages": 1000000, "fetch.queue.backoff.ms": 2})
        c = Consumer(conf)
        c.assign([TopicPartition(a.topic, p, 0) for p in range(a.partitions)])
        return c

    def produce(self, pool, meter):
        a = self.a
        p = self._producer()
        p.list_topics(a.topic, timeout=10)
        produce, poll, topic, np, n = p.produce, p.poll, a.topic, a.partitions, a.n
        done = [0]

        def cb(err, msg):
            if err is None:
                done[0] += 1

        each = a.confirm == "each"
        explicit = a.partitioning == "explicit"
        vals = itertools.islice(itertools.cycle(pool), n)
        meter.start()
        for i, v in enumerate(vals):
            while True:
                try:
                    if each:
                        if explicit:
                            produce(topic, v, partition=i % np, on_delivery=cb)
                        else:
                            produce(topic, v, on_delivery=cb)
                    elif explicit:
                        produce(topic, v, partition=i % np)
                    else:
                        produce(topic, v)
                    break
                except BufferError:
                    poll(0.005)
            if not i & 1023:
                poll(0)
        left = p.flush(120)
        t = time.perf_counter()
        return (done[0] if each else n - left), t

    def consume(self, meter):
        a = self.a
        c = self._consumer()
        n = tot = 0
        samp = []
        nexts = 0
        get, want, pb = c.consume, a.n, a.poll_batch
        if a.gevent and a.offload:
            from gevent import get_hub

            tp = get_hub().threadpool
            raw = c.consume

            def get(num_messages, timeout):
                return tp.apply(raw, (num_messages, timeout))

        while n < want:
            ms = get(num_messages=pb, timeout=0.02)
            if not ms:
                continue
            first = n == 0
            for m in ms:
                if m.error():
                    raise RuntimeError(m.error())
                tot += len(m.value())
            k = len(ms)
            while nexts < n + k:
                samp.append(ms[nexts - n].value())
                nexts += SAMPLE
            n += k
            if first:
                meter.start(n)
        t = time.perf_counter()
        c.close()
        return n, tot, samp, t

    def read(self):
        c = self._consumer()
        n = idle = 0
        while n < self.a.fill and idle < 50:
            ms = c.consume(5000, 0.1)
            idle = 0 if ms else idle + 1
            for m in ms:
                if m.error():
                    raise RuntimeError(m.error())
                yield m.partition(), m.value()
            n += len(ms)
        c.close()

    def latency(self, pool):
        a = self.a
        p, c = self._producer(linger=0), self._consumer()
        ack, e2e = [], []
        done = []
        for i in range(a.n + 20):
            v = pool[i % len(pool)]
            t0 = time.perf_counter()
            p.produce(a.topic, v, partition=i % a.partitions, on_delivery=lambda e, m: done.append(e))
            while not done:
                p.poll(1)
            assert done.pop() is None
            t1 = time.perf_counter()
            while True:
                m = c.poll(1)
                if m is not None and not m.error():
                    assert m.value() == v
                    break
            t2 = time.perf_counter()
            if i >= 20:
                ack.append(t1 - t0)
                e2e.append(t2 - t0)
        c.close()
        return ack, e2e


class PyKafka(Adapter):
    mod = "pykafka"
    legacy = True  # reads/writes MessageSet v0/v1 only

    def _client(self):
        import importlib

        m = importlib.import_module(self.mod)
        self.keep = getattr(self, "keep", [])  # pykafka holds its client and cluster by weak reference
        c = m.KafkaClient(hosts=self.a.bootstrap, use_greenlets=bool(self.a.gevent), broker_version="0.10.2")
        self.keep.append(c)
        return c

    def _producer(self, linger=None, reports=False):
        a = self.a
        rr = itertools.count()

        def part(partitions, key):
            return partitions[next(rr) % len(partitions)]

        from importlib import import_module

        ct = import_module(self.mod + ".common").CompressionType
        t = self._client().topics[a.topic]
        kw = {
            "linger_ms": a.linger_ms if linger is None else linger,
            "required_acks": -1 if a.acks == "all" else int(a.acks),
            "compression": getattr(ct, {"none": "NONE", "gzip": "GZIP", "snappy": "SNAPPY", "lz4": "LZ4"}[a.codec]),
            "min_queued_messages": 1 if linger == 0 else max(1, a.batch_size // (a.size + 26)),
            "max_queued_messages": 100000,
            "max_request_size": 8 << 20,
            "delivery_reports": reports,
            "partitioner": part,
        }
        return t.get_producer(**kw)

    def _consumer(self):
        from importlib import import_module

        ot = import_module(self.mod + ".common").OffsetType
        t = self._client().topics[self.a.topic]
        return t.get_simple_consumer(
            auto_offset_reset=ot.EARLIEST,
            reset_offset_on_start=True,
            consumer_timeout_ms=5000,
            fetch_message_max_bytes=self.a.partition_fetch_bytes,
            queued_max_messages=20000,
        )

    def produce(self, pool, meter):
        a = self.a
        each = a.confirm == "each"
        p = self._producer(reports=each)
        send, n = p.produce, a.n
        vals = itertools.islice(itertools.cycle(pool), n)
        meter.start()
        ok = 0
        for i, v in enumerate(vals):
            send(v)
            if each and not i % 10000:
                ok += self._drain(p)
        if each:
            while ok < n:
                _m, e = p.get_delivery_report(timeout=60)
                ok += e is None
        else:
            p.stop()
            ok = n
        t = time.perf_counter()
        if each:
            p.stop()
        return ok, t

    def _drain(self, p):
        import queue

        k = 0
        try:
            while True:
                _m, e = p.get_delivery_report(block=False)
                k += e is None
        except queue.Empty:
            return k

    def consume(self, meter):
        a = self.a
        c = self._consumer()
        n = tot = 0
        samp = []
        want, get = a.n, c.consume
        while n < want:
            m = get()
            if m is None:
                break
            if n == 0:
                meter.start(1)
            v = m.value
            tot += len(v)
            if not n % SAMPLE:
                samp.append(v)
            n += 1
        t = time.perf_counter()
        c.stop()
        return n, tot, samp, t

    def read(self):
        c = self._consumer()
        for _ in range(self.a.fill):
            m = c.consume()
            if m is None:
                break
            yield m.partition_id, m.value
        c.stop()

    def latency(self, pool):
        a = self.a
        p, c = self._producer(linger=0, reports=True), self._consumer()
        ack, e2e = [], []
        for i in range(a.n + 20):
            v = pool[i % len(pool)]
            t0 = time.perf_counter()
            p.produce(v)
            m, e = p.get_delivery_report(timeout=10)
            assert e is None
            t1 = time.perf_counter()
            m = c.consume()
            assert m.value == v
            t2 = time.perf_counter()
            if i >= 20:
                ack.append(t1 - t0)
                e2e.append(t2 - t0)
        p.stop()
        c.stop()
        return ack, e2e


class GKafkaPK(PyKafka):
    """gkafka through its pykafka-style API : GKAFKA_PYKAFKA names the module with
    KafkaClient and .common; it must use RecordBatch v2, so legacy = False."""

    mod = os.environ.get("GKAFKA_PYKAFKA", "gkafka")
    legacy = False


ADAPTERS = {
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "confluent": Confluent,
    "pykafka": PyKafka,
    "gkafka": GKafka,
    "gkafka-pk": GKafkaPK,
}
# The client name "native": "module:Class" with Adapter's methods; gkafka's own API unless BENCH_ADAPTER says otherwise.
_module, _class = os.environ.get("BENCH_ADAPTER", "native_adapter:Native").split(":")
ADAPTERS["native"] = getattr(importlib.import_module(_module), _class)


# ----------------------------------------------------------------- worker
class Ticker:
    """Sleeps 2 ms over and over in a greenlet (or thread) and records by how much it was late."""

    def __init__(self, use_gevent):
        self.late, self.stop, self.t = [], False, time.perf_counter()
        if use_gevent:
            import gevent

            self.g = gevent.spawn(self.loop)
        else:
            import threading

            self.g = threading.Thread(target=self.loop, daemon=True)
            self.g.start()

    def loop(self):
        while not self.stop:
            self.t = time.perf_counter()
            time.sleep(0.002)
            self.late.append(time.perf_counter() - self.t - 0.002)

    def result(self):
        self.stop = True
        self.late.append(max(0, time.perf_counter() - self.t - 0.002))  # a hub that never came back counts too
        s = sorted(self.late) or [0.0]
        return {
            "ticks": len(self.late),
            "lag_p50_ms": 1e3 * s[len(s) // 2],
            "lag_p99_ms": 1e3 * s[int(len(s) * 0.99)],
            "lag_max_ms": 1e3 * s[-1],
        }


def rss_kb(key="VmRSS"):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key + ":"))


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime, r.ru_utime, r.ru_stime


def pct(s, q):
    return s[min(len(s) - 1, int(len(s) * q))]


def worker(a):
    ad = ADAPTERS[a.client](a)
    pool = make_pool(a.size)
    out = {"client": a.label or a.client, "mode": a.mode, "size": a.size, "codec": a.codec, "acks": a.acks, "partitions": a.partitions}
    meter = Meter()
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass
    base = rss_kb()
    tick = Ticker(a.gevent) if (a.gevent or a.ticker) else None
    if a.gevent:
        time.sleep(0)
    c0 = cpu()
    w0 = time.perf_counter()
    if a.mode == "produce":
        n, t1 = ad.produce(pool, meter)
        c1 = cpu()
        dt = t1 - meter.t0
        out.update(
            n=n, seconds=dt, rate=n / dt, mbps=n * a.size / dt / 1e6, ok=n == a.n, note="" if n == a.n else "confirmed %d of %d" % (n, a.n)
        )
        ncpu = n
    elif a.mode == "consume":
        n, tot, samp, t1 = ad.consume(meter)
        c1 = cpu()
        dt = t1 - meter.t0
        k = n - meter.n0
        known = set(pool)
        ok = n >= a.n and tot == n * a.size and len(samp) >= n // SAMPLE and all(v in known for v in samp)
        out.update(
            n=n,
            seconds=dt,
            rate=k / dt,
            mbps=k * a.size / dt / 1e6,
            first_s=meter.t0 - w0,
            ok=ok,
            note="" if ok else "timed pass: n=%d bytes=%d samples=%d" % (n, tot, len(samp)),
        )
        ncpu = n
    else:
        ack, e2e = ad.latency(pool)
        c1 = cpu()
        ack.sort()
        e2e.sort()
        out.update(
            n=len(e2e),
            ok=len(e2e) == a.n,
            note="",
            ack_p50_us=1e6 * pct(ack, 0.5),
            ack_p99_us=1e6 * pct(ack, 0.99),
            e2e_p50_us=1e6 * pct(e2e, 0.5),
            e2e_p99_us=1e6 * pct(e2e, 0.99),
            rate=len(e2e) / sum(e2e),
        )
        ncpu = len(e2e)
    out.update(
        cpu_s_per_M=(c1[0] - c0[0]) / ncpu * 1e6,
        user_s_per_M=(c1[1] - c0[1]) / ncpu * 1e6,
        sys_s_per_M=(c1[2] - c0[2]) / ncpu * 1e6,
        rss_peak_mb=rss_kb("VmHWM") / 1024,
        rss_grow_mb=(rss_kb("VmHWM") - base) / 1024,
    )
    if tick:
        out["ticker"] = tick.result()
    if a.mode == "consume" and a.verify and out["ok"]:
        ch = Checker(pool, a.partitions, a.partitioning == "explicit")
        for part, v in ad.read():
            ch.add(part, v)
        out["ok"] = ch.ok(a.fill)
        if not out["ok"]:
            out["note"] = "verify pass: " + ch.why(a.fill)
    print("RESULT " + json.dumps(out), flush=True)
    os._exit(0)


def verify(a):
    pool = make_pool(a.size)
    ch = Checker(pool, a.partitions, a.partitioning == "explicit")
    for part, v in Confluent(a).read():
        ch.add(part, v)
    print("RESULT " + json.dumps({"ok": ch.ok(a.fill), "note": ch.why(a.fill)}), flush=True)
    os._exit(0)


# ----------------------------------------------------------------- runner
class Stub:
    def __init__(self, pin, *options):
        cache = os.path.expanduser(os.environ.get("GKAFKA_CACHE") or "~/.cache/gkafka")
        os.makedirs(cache, exist_ok=True)
        exe = os.path.join(cache, "stub_broker")
        src = os.path.join(HERE, "stub_broker.c")
        if not os.path.exists(exe) or os.path.getmtime(exe) < os.path.getmtime(src):
            new = "%s.%d" % (exe, os.getpid())
            subprocess.check_call([os.environ.get("CC", "cc"), "-O2", "-o", new, src])
            os.rename(new, exe)
        cmd = [exe, "--stdin-exit", "--partitions", "1", *options]
        if pin:
            cmd = ["taskset", "-c", "1", *cmd]
        self.p = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addr = self.p.stdout.readline().split()[1]

    def cpu(self):
        with open("/proc/%d/stat" % self.p.pid) as stat:
            f = stat.read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.p.stdin.close()
        self.p.stdout.close()
        self.p.wait(10)


def sub(args, python, env=None, timeout=120, pin=False, cmd="worker"):
    line = [python, os.path.abspath(__file__), cmd, *args]
    if pin and cmd == "worker":
        line = ["taskset", "-c", "0", *line]
    try:
        p = subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        return {"ok": False, "note": "timeout"}
    for ln in p.stdout.splitlines():
        if ln.startswith("RESULT "):
            return json.loads(ln[7:])
    return {"ok": False, "note": "rc=%s %s" % (p.returncode, (p.stderr.strip().splitlines() or [""])[-1][:200])}


def admin(python, bs, what, topic, parts):
    code = (
        "import sys,time\nfrom confluent_kafka.admin import AdminClient,NewTopic\n"
        "a=AdminClient({'bootstrap.servers':sys.argv[1]})\n"
        "f=a.create_topics([NewTopic(sys.argv[3],int(sys.argv[4]),1)]) if sys.argv[2]=='create' else a.delete_topics([sys.argv[3]])\n"
        "[x.result(20) for x in f.values()]\n"
        "time.sleep(float(sys.argv[5]))\n"
    )
    subprocess.run([python, "-c", code, bs, what, topic, str(parts), "0"], check=what == "create", stderr=subprocess.DEVNULL)


def run(a):
    stub = None
    if not a.bootstrap:
        stub = Stub(a.pin)
        a.bootstrap = stub.addr
    py = a.python
    results = []
    seq = itertools.count()
    tag = "%x" % (int(time.time()) & 0xFFFFFF)
    try:
        for mode in a.modes.split(","):
            for size in map(int, a.sizes.split(",")):
                for codec in a.codecs.split(","):
                    for acks in a.acks_list.split(","):
                        for parts in map(int, a.partition_list.split(",")):
                            cell(a, py, mode, size, codec, acks, parts, stub, results, seq, tag)
    finally:
        if stub:
            stub.stop()
        if a.json:
            with open(a.json, "a") as f:
                for r in results:
                    f.write(json.dumps(r) + "\n")


def cell(a, py, mode, size, codec, acks, parts, stub, results, seq, tag):
    base_n = a.n or max(20000, min(1500000, int(a.mb * 1e6 / (size + 60))))
    clients = a.clients.split(",")
    common = [
        "--bootstrap",
        a.bootstrap,
        "--mode",
        mode,
        "--size",
        str(size),
        "--codec",
        codec,
        "--acks",
        acks,
        "--partitions",
        str(parts),
        "--batch-size",
        str(a.batch_size),
        "--linger-ms",
        str(a.linger_ms),
        "--confirm",
        a.confirm,
        "--partitioning",
        a.partitioning,
        "--poll-batch",
        str(a.poll_batch),
        "--crc",
        a.crc,
        "--partition-fetch-bytes",
        str(a.partition_fetch_bytes),
    ]
    if a.idempotent:
        common += ["--idempotent"]
    fills = {}
    if mode == "consume":
        for legacy in sorted({ADAPTERS[c.split("+")[0]].__dict__.get("legacy", False) for c in clients}):
            t = "fill-%s-%d" % (tag, next(seq))
            admin(py, a.bootstrap, "create", t, parts)
            fc = "pykafka" if legacy else "confluent"
            fn = int(base_n * (NSCALE["pykafka"] if legacy else 1))
            r = sub([*common, "--client", fc, "--mode", "produce", "--topic", t, "--n", str(fn), "--confirm", "each"], py)
            if r.get("n") != fn:
                print("FILL FAILED", r)
                return
            fills[legacy] = (t, fn)
    rows = {c: [] for c in clients}
    verified = set()
    for rnd in range(a.rounds):
        order = clients[rnd % len(clients) :] + clients[: rnd % len(clients)]
        for c in order:
            name, *mods = c.split("+")
            cls = ADAPTERS[name]
            if mode == "consume":
                topic, fill = fills[cls.__dict__.get("legacy", False)]
                n = min(fill, int(base_n * NSCALE[name]))
            else:
                n = a.lat_n if mode == "latency" else int(base_n * NSCALE[name])
                fill = n
                topic = "%s-%s-%d" % (mode[:4], tag, next(seq))
                admin(py, a.bootstrap, "create", topic, parts)
            args = [*common, "--client", name, "--label", c, "--topic", topic, "--n", str(n), "--fill", str(fill)]
            if "gevent" in mods:
                args += ["--gevent"]
            if "offload" in mods:
                args += ["--offload"]
            if "ticker" in mods:
                args += ["--ticker"]
            if "default" in mods:
                args += ["--defaults"]
            if mode == "consume" and c not in verified:
                args += ["--verify"]
                verified.add(c)
            b0 = stub.cpu() if stub else 0
            r = sub(args, py, pin=a.pin)
            if mode == "produce" and r.get("ok"):
                r["broker_cpu_s"] = stub.cpu() - b0 if stub else None
                if a.partitioning != "none":
                    v = sub(args, py, cmd="verify")
                    if not v["ok"]:
                        r["ok"], r["note"] = False, "readback " + v["note"]
            if mode != "consume":
                admin(py, a.bootstrap, "delete", topic, parts)
            r.update(round=rnd, client=c, mode=mode, size=size, codec=codec, acks=acks, partitions=parts, confirm=a.confirm, pin=a.pin)
            rows[c].append(r)
            results.append(r)
    for t, _ in fills.values():
        admin(py, a.bootstrap, "delete", t, parts)
    table(mode, size, codec, acks, parts, rows, a)


def med(xs):
    xs = [x for x in xs if x is not None]
    return statistics.median(xs) if xs else None


def table(mode, size, codec, acks, parts, rows, a):
    print(
        "\n### %s size=%d codec=%s acks=%s partitions=%d confirm=%s batch=%d linger=%g rounds=%d%s"
        % (mode, size, codec, acks, parts, a.confirm, a.batch_size, a.linger_ms, a.rounds, " pinned" if a.pin else "")
    )
    key = "rate"
    m = {c: med([r.get(key) for r in rs if r.get("ok")]) for c, rs in rows.items()}

    # ratio = median over rounds of the same-round ratio
    def ratio(c, ref, k=key):
        if ref not in rows:
            return None
        xs = {r["round"]: r for r in rows[c] if r.get("ok")}
        ys = {r["round"]: r for r in rows[ref] if r.get("ok")}
        return med([xs[k2][k] / ys[k2][k] for k2 in xs.keys() & ys.keys() if ys[k2].get(k)])

    def f(v, s="%.2f"):
        return "-" if v is None else s % v

    if mode == "latency":
        print(
            "| client | ack p50 us | ack p99 | e2e p50 us | e2e p99 | cpu us/msg | e2e p50 / confluent | ok |\n|---|---|---|---|---|---|---|---|"
        )
        for c, rs in rows.items():

            def g(k, rs=rs):
                return med([r.get(k) for r in rs if r.get("ok")])

            print(
                "| %s | %s | %s | %s | %s | %s | %s | %s |"
                % (
                    c,
                    f(g("ack_p50_us"), "%.0f"),
                    f(g("ack_p99_us"), "%.0f"),
                    f(g("e2e_p50_us"), "%.0f"),
                    f(g("e2e_p99_us"), "%.0f"),
                    f(g("cpu_s_per_M"), "%.0f"),
                    f(ratio(c, "confluent", "e2e_p50_us")),
                    ok_note(rs),
                ),
                flush=True,
            )
        return
    print(
        "| client | msgs/s | spread | MB/s | cpu s/M (user+sys) | RSS grow MB | x confluent | x kafka-python | cpu x confluent | lag p99/max ms | ok |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for c, rs in rows.items():
        good = [r for r in rs if r.get("ok")]

        def g(k, good=good):
            return med([r.get(k) for r in good])

        sp = "-" if not good else "%.0f%%" % (100 * (max(r["rate"] for r in good) - min(r["rate"] for r in good)) / m[c])
        tk = [r["ticker"] for r in good if "ticker" in r]
        lag = "%.1f/%.0f" % (med([t["lag_p99_ms"] for t in tk]), med([t["lag_max_ms"] for t in tk])) if tk else ""
        print(
            "| %s | %s | %s | %s | %s (%s+%s) | %s | %s | %s | %s | %s | %s |"
            % (
                c,
                f(m[c], "%.0f"),
                sp,
                f(g("mbps"), "%.1f"),
                f(g("cpu_s_per_M")),
                f(g("user_s_per_M")),
                f(g("sys_s_per_M")),
                f(g("rss_grow_mb"), "%.0f"),
                f(ratio(c, "confluent"), "%.3f"),
                f(ratio(c, "kafka-python")),
                f(ratio(c, "confluent", "cpu_s_per_M")),
                lag,
                ok_note(rs),
            ),
            flush=True,
        )


def ok_note(rs):
    bad = [r for r in rs if not r.get("ok")]
    return "ok" if not bad else "%d/%d FAIL: %s" % (len(bad), len(rs), bad[0].get("note"))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sp = ap.add_subparsers(dest="cmd", required=True)
    for cmd in ("worker", "verify", "run"):
        s = sp.add_parser(cmd)
        s.add_argument("--bootstrap", default=None)
        s.add_argument("--batch-size", type=int, default=131072)
        s.add_argument("--linger-ms", type=int, default=5)
        s.add_argument("--confirm", choices=["flush", "each"], default="flush")
        s.add_argument("--partitioning", choices=["explicit", "none"], default="explicit")
        s.add_argument("--poll-batch", type=int, default=1000)
        s.add_argument("--crc", choices=["on", "off"], default="on")
        s.add_argument("--partition-fetch-bytes", type=int, default=1 << 20)
        s.add_argument("--idempotent", action="store_true")
        s.add_argument("--n", type=int, default=0)
        if cmd == "run":
            s.add_argument("--clients", default="confluent,kafka-python,aiokafka,pykafka")
            s.add_argument("--modes", default="produce,consume")
            s.add_argument("--sizes", default="100,1000")
            s.add_argument("--codecs", default="none,lz4")
            s.add_argument("--acks-list", default="1")
            s.add_argument("--partition-list", default="4")
            s.add_argument("--rounds", type=int, default=5)
            s.add_argument("--mb", type=float, default=200, help="payload+overhead megabytes per run for a client with NSCALE 1")
            s.add_argument("--lat-n", type=int, default=1000)
            s.add_argument("--python", default=sys.executable)
            s.add_argument("--json", default=None)
            s.add_argument("--pin", action="store_true", help="client on CPU 0, stub broker on CPU 1")
        else:
            s.add_argument("--client", default="confluent")
            s.add_argument("--label", default="")
            s.add_argument("--mode", choices=["produce", "consume", "latency"], default="produce")
            s.add_argument("--size", type=int, default=100)
            s.add_argument("--codec", default="none")
            s.add_argument("--acks", default="1")
            s.add_argument("--partitions", type=int, default=1)
            s.add_argument("--topic", default="bench")
            s.add_argument("--fill", type=int, default=0, help="messages that the topic holds")
            s.add_argument("--gevent", action="store_true")
            s.add_argument("--offload", action="store_true")
            s.add_argument("--ticker", action="store_true")
            s.add_argument("--defaults", action="store_true", help="client defaults instead of its best consumer settings")
            s.add_argument("--verify", action="store_true")
    a = ap.parse_args()
    {"run": run, "worker": worker, "verify": verify}[a.cmd](a)


if __name__ == "__main__":
    if "--gevent" in sys.argv:
        from gevent import monkey

        monkey.patch_all()
    main()
