"""client_bench adapter for gkafka's native API (client.get_producer(), consume_batch)."""

import itertools
import os
import time

import __main__ as cb  # client_bench.py is the main program: its Adapter and SAMPLE

Adapter = getattr(cb, "Adapter", object)
SAMPLE = getattr(cb, "SAMPLE", 1009)


class Native(Adapter):
    def _client(self):
        import gkafka

        a = self.a
        kw = {"handler": "gevent"} if a.gevent and os.environ.get("NATIVE_EXPLICIT") else {}
        self.client = gkafka.KafkaClient(hosts=a.bootstrap, **kw)
        return self.client

    def _producer(self):
        a = self.a
        return self._client().get_producer(
            acks="all" if a.acks == "all" else int(a.acks),
            enable_idempotence=bool(a.idempotent),
            linger_ms=a.linger_ms,
            batch_bytes=a.batch_size,
            compression=None if a.codec == "none" else a.codec,
        )

    def produce(self, pool, meter):
        a = self.a
        p = self._producer()
        send, topic, np, n = p.produce, a.topic, a.partitions, a.n
        vals = itertools.islice(itertools.cycle(pool), n)
        each, views = a.confirm == "each", []
        meter.start()
        if each:
            for i, v in enumerate(vals):
                views.append(send(topic, v, partition=i % np))
            p.flush()
            ok = sum(1 for v in views if v.result(30) is not None)
        else:
            for i, v in enumerate(vals):
                send(topic, v, partition=i % np)
            p.flush()
            ok = n
        t = time.perf_counter()
        p.close()
        return ok, t

    def _consumer(self):
        from gkafka.common import OffsetType

        t = self._client().topics[self.a.topic]
        return t.get_simple_consumer(
            auto_offset_reset=OffsetType.EARLIEST, reset_offset_on_start=True, fetch_message_max_bytes=self.a.partition_fetch_bytes
        )

    def consume(self, meter):
        c = self._consumer()
        n = tot = nexts = 0
        samp, want = [], self.a.n
        while n < want:
            ms = c.consume_batch(self.a.poll_batch, 5000)
            if not ms:
                break
            k = len(ms)
            if n == 0:
                meter.start(k)
            for m in ms:
                tot += len(m.value)
            while nexts < n + k:
                samp.append(ms[nexts - n].value)
                nexts += SAMPLE
            n += k
        t = time.perf_counter()
        c.stop()
        return n, tot, samp, t

    def latency(self, pool):
        a = self.a
        a.linger_ms = 0
        p, c = self._producer(), self._consumer()
        ack, e2e = [], []
        for i in range(a.n + 20):
            v = pool[i % len(pool)]
            t0 = time.perf_counter()
            p.produce(a.topic, v, partition=i % a.partitions).result(30)
            t1 = time.perf_counter()
            while not (ms := c.consume_batch(1, 5000)):
                pass
            assert bytes(ms[0].value) == v
            t2 = time.perf_counter()
            if i >= 20:
                ack.append(t1 - t0)
                e2e.append(t2 - t0)
        p.close()
        c.stop()
        return ack, e2e

    def read(self):
        c = self._consumer()
        n = 0
        while n < self.a.fill:
            ms = c.consume_batch(5000, 5000)
            if not ms:
                break
            for m in ms:
                yield m.partition_id, bytes(m.value)
            n += len(ms)
        c.stop()


class NativeIteration(Native):
    """Consumes one message at a time, by iteration."""

    def consume(self, meter):
        c = self._consumer()
        n = tot = nexts = 0
        samp, want = [], self.a.n
        for m in c:
            if n == 0:
                meter.start(1)
            tot += len(m.value)
            if n == nexts:
                samp.append(m.value)
                nexts += SAMPLE
            n += 1
            if n == want:
                break
        t = time.perf_counter()
        c.stop()
        return n, tot, samp, t
