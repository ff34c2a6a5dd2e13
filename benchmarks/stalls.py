"""How long gkafka keeps gevent's hub from turning, and what a client costs that has nothing to do, held against limits: `make stalls`.

    python benchmarks/stalls.py [--only WORD]     one table: what | measured | limit | ok

It runs alone. The machine is looked at first, and while each figure is measured: with more than 0.3 cores of other work nothing is judged.
Exit status: 0 all within their limits; 1 a limit was passed; 2 not judged, since the machine was not quiet.

A gap is the time between two turns of a greenlet that sleeps 1 ms: its CPU (of the hub's thread), and by the clock, less what the thread waited for a
core. Garbage is not collected meanwhile, but where the collector is what is measured. Every scenario is played in three processes of its own that
gevent has patched (but for those of ONCE), against a MockCluster in another one, whose work does not count. The worst of the three is judged: a stall in one of
three is a stall.
"""

from __future__ import annotations

import sys

if "--measure" in sys.argv and "threading" not in sys.argv:
    from gevent import monkey

    monkey.patch_all()

import argparse
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import resource
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Values = Mapping[str, float]
"""What a scenario has measured, by the names of its figures."""

QUIET = 0.3
"""Cores that others may use."""
LOOK_S = 2.0
TIMES = 3
"""So often a round is measured while others work, then its figures are not judged."""
ROUNDS = 3
ONCE = ("idle", "idle on threads", "broker gone", "pieces", "imports", "hostile")
"""Scenarios that are measured once: for longer, or by the least or the median of some tries of their own."""
SHORT = "--short" in sys.argv
"""Little is done, and for a short time: a test plays the scenarios so, and judges nothing."""


def some(count: int) -> int:
    """So many, or a hundredth in the short form."""
    return max(1, count // 100) if SHORT else count


def lasting(seconds: float) -> float:
    """So long, or a twentieth in the short form."""
    return seconds / 20 if SHORT else seconds


LONGEST_S, ROUND_S = 160.0, 30.0
"""No round begins later, or takes longer."""
PATIENCE_S = 60.0


# -- what is judged -------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of a scenario, and the most that it may be. why: where the limit comes from."""

    scenario: str
    figure: str
    what: str
    limit: float
    unit: str
    why: str = ""


def gaps(scenario: str, what: str, cpu_ms: float, why: str) -> list[Row]:
    """The two gaps of a scenario. 20 ms more by the clock: what else runs on a machine that is quiet; a call that blocks for 50 ms passes it."""
    return [
        Row(scenario, "cpu_ms", f"{what}: longest gap of the hub, CPU", cpu_ms, "ms", why),
        Row(scenario, "wall_ms", f"{what}: longest gap of the hub, by the clock", cpu_ms + 20, "ms", why),
    ]


SHARED = "gkafka's greenlets share 4 ms of each turn (hubs.BUDGET_S); what they began they end"
MANY = f"{SHARED}; to start, wake and end thousands of greenlets is gevent's own"
ROWS: list[Row] = [
    *gaps("tight loop", "100,000 produce() in a loop", 15, f"{SHARED}; 5 to 10 ms here"),
    *gaps("sends", "5,000 greenlets, each sends 10 records and waits for each", 20, MANY),
    *gaps("consume", "100,000 records of 1 KB consumed in large fetches", 20, SHARED),
    *gaps("codecs", "batches of 1 MB in gzip, there and back", 20, f"{SHARED}; a batch is unpacked in the hub, 5 ms in one piece"),
    *gaps("opens and closes", "30 clients open, produce, consume, close", 10, SHARED),
    *gaps("brokers fail", "brokers stop, come back and cut connections while records are sent and consumed", 10, SHARED),
    *gaps("group", "a member commits every 200 ms while another joins and leaves", 10, SHARED),
    *gaps("brokers down", "all brokers down: 9 calls wait for 1 s", 10, SHARED),
    Row("brokers down", "late_s", "the same: the latest behind its deadline", 0.1, "s", "nothing else is done; to the tenth of a second"),
    Row(
        "close",
        "late_s",
        "close() of a producer and a client, 1 s, broker silent or gone: the latest off its deadline",
        0.1,
        "s",
        "to the tenth of a second",
    ),
    *gaps("close", "the same", 10, SHARED),
    Row("close on threads", "late_s", "the same on threads", 0.1, "s", "to the tenth of a second"),
    *gaps("partitions", "3,000 partitions are assigned", 20, "in steps of 200 partitions"),
    *gaps("starting", "the first client is made, and reads and sends its first record", 15, "what it needs is imported with KafkaClient"),
    *gaps("small batches", "20,000 batches of one record are read", 20, f"{SHARED}; an answer is taken in by slices of 250 batches"),
    *gaps("read 100", "100 partitions are read", 20, f"{SHARED}; an answer is taken in by slices of 250 batches"),
    *gaps(
        "read 1,000", "1,000 partitions are read", 40, "a request for 1,000 partitions is made in one go, and its answer is decoded in one"
    ),
    *gaps("send 1,000", "records are sent to 1,000 partitions in turn", 20, SHARED),
    Row(
        "idle",
        "percent",
        "idle producer and member of a group: CPU of a core",
        0.5,
        "%",
        "0.3 % here; a fault that polls takes 1 % and more",
    ),
    Row("idle", "wakeups", "the same: turns of the hub's loop", 20, "/s", "each worker looks around every one to four seconds"),
    Row("idle", "greenlets", "the same: greenlets", 16, "", "as many as there are workers"),
    Row("idle", "threads", "the same: threads", 2, "", "the main one, and one of gevent's own"),
    *gaps("idle", "the same", 10, SHARED),
    Row("idle on threads", "percent", "the same on threads: CPU of a core", 0.5, "%", "as with greenlets"),
    Row("idle on threads", "wakeups", "the same on threads: times that a thread went to sleep", 20, "/s", "as with greenlets"),
    Row("idle on threads", "threads", "the same on threads: threads", 16, "", "as many as there are workers"),
    *gaps(
        "callbacks",
        "20,000 records with a callback each, and 60 callbacks of 10 ms",
        30,
        "one of the application's is 10 ms, and who else is due comes next",
    ),
    Row(
        "broker gone",
        "percent",
        "a consumer whose broker is down: CPU of a core",
        10,
        "%",
        "0.4 % here, with pauses of 100 ms; hammering takes a core",
    ),
    Row(
        "pieces",
        "checkpoint_us",
        "a checkpoint at which nobody has to yield, the least of 5",
        3,
        "us",
        "0.3 us is usual; a yield is ten times that",
    ),
    Row(
        "pieces",
        "wake_ms",
        "from set() in an OS thread to the greenlet that waits, the median of 20",
        20,
        "ms",
        "the loop hears of it at once",
    ),
    Row("imports", "gkafka_s", "import gkafka, CPU", 0.1, "s", "it loads nothing that is optional"),
    Row("imports", "spark_s", "import gkafka.spark, pyspark_gkafka, CPU", 0.15, "s", "neither pyspark nor numpy is loaded"),
    Row("hostile", "frame_ms", "the fullest frames of 64 KiB are decoded, CPU of the slowest", 50, "ms", "linear in the frame"),
    Row("hostile", "crowd_s", "8 MiB of empty compressed pieces are refused, CPU of the slowest codec", 0.7, "s", "0.1 to 0.3 s is usual"),
    Row(
        "collector",
        "objects",
        "objects of a greenlet that waits for a record, to those of one that waits for gevent's AsyncResult",
        0.7,
        "x",
        "0.5",
    ),
    Row(
        "collector",
        "without_ms",
        "5,000 greenlets send and wait, garbage is collected: longest gap less the collector's part, CPU",
        20,
        "ms",
        MANY,
    ),
]


class Judged(NamedTuple):
    """ok: None if it was not judged."""

    row: Row
    measured: float | None
    ok: bool | None
    note: str = ""


def judge(rows: Iterable[Row], seen: Mapping[str, Sequence[Values] | str]) -> list[Judged]:
    """seen: by scenario its rounds, or why there are none."""
    judged = []
    for row in rows:
        rounds = seen[row.scenario]
        if isinstance(rounds, str):
            judged.append(Judged(row, None, None, rounds))
            continue
        measured = max(values[row.figure] for values in rounds)
        judged.append(Judged(row, measured, measured <= row.limit))
    return judged


def status(judged: Iterable[Judged]) -> int:
    """The exit status: 1 if a limit was passed, else 2 if anything was not judged, or nothing was, else 0."""
    verdicts = {each.ok for each in judged}
    return 1 if False in verdicts else 0 if verdicts == {True} else 2


def table(judged: Iterable[Judged]) -> str:
    rows = [["what", "measured", "limit", "ok"]]
    for each in judged:
        unit = each.row.unit and f" {each.row.unit}"
        measured = "-" if each.measured is None else f"{each.measured:.3g}{unit}"
        ok = {True: "ok", False: "FAILED", None: f"not judged: {each.note}"}[each.ok]
        rows.append([each.row.what, measured, f"{each.row.limit:g}{unit}", ok])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


# -- a quiet machine ------------------------------------------------------------------------------------------------------
class Look(NamedTuple):
    """Seconds: of the clock, that the machine's cores worked (what a host took from them included), and that this process worked with all that it started."""

    at: float
    busy: float
    own: float


def other_load(before: Look, after: Look) -> float:
    """Cores that others used between two looks."""
    return max(0.0, (after.busy - before.busy) - (after.own - before.own)) / (after.at - before.at)


def look() -> Look:
    """Look at /proc. Linux only."""
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    used, parents = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)], used[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    own, todo = 0, [os.getpid()]
    while todo:
        one = todo.pop()
        own += used.get(one, 0)
        todo += [pid for pid, parent in parents.items() if parent == one]
    return Look(time.monotonic(), (user + nice + system + irq + softirq + steal) / tick, own / tick)


def refusal(load: float) -> str:
    return (
        f"not judged: other programs use {load:.1f} cores, more than {QUIET:g}. End them, or wait until they have ended, and run it again"
    )


def measured(scenario: str, measure: Callable[[str], Values], look: Callable[[], Look]) -> Values | str:
    """One round on a quiet machine, or why there is none."""
    load = 0.0
    for _ in range(TIMES):
        before = look()
        values = measure(scenario)
        load = other_load(before, look())
        if load <= QUIET:
            return values
        print(f"{scenario}: again, as others used {load:.1f} cores", file=sys.stderr, flush=True)
    return f"others used {load:.1f} cores"


def run(
    rows: Sequence[Row],
    *,
    measure: Callable[[str], Values],
    look: Callable[[], Look] = look,
    sleep: Callable[[float], None] = time.sleep,
    rounds: int = ROUNDS,
) -> int:
    """Measure the scenarios of these rows, print the table, and return the exit status."""
    before = look()
    sleep(LOOK_S)
    load = other_load(before, look())
    if load > QUIET:
        print(refusal(load))
        return 2
    taken: dict[str, list[Values]] = {row.scenario: [] for row in rows}
    given_up: dict[str, str] = {}
    for number in range(
        rounds
    ):  # each scenario once, then all of them again: on a slow machine fewer rounds are judged, and none is left out
        for scenario, values in taken.items():
            if scenario in given_up or (number and scenario in ONCE):
                continue
            in_time = look().at - before.at < LONGEST_S
            one = measured(scenario, measure, look) if in_time else f"{LONGEST_S:g} s had passed"
            if not isinstance(one, str):
                values.append(one)
            elif not values or in_time:
                given_up[scenario] = one
    judged = judge(rows, {**taken, **given_up})
    print(table(judged))
    for each in judged:
        if each.ok is False:
            print(f"FAILED: {each.row.what}: {each.measured:.3g} {each.row.unit}, at most {each.row.limit:g} ({each.row.why})")
    return status(judged)


# -- how it is measured ---------------------------------------------------------------------------------------------------
class Ticker:
    """A greenlet that should run each millisecond. gaps: (wall, CPU) seconds between its runs, without what its thread waited for a core.

    Garbage is not collected meanwhile, unless `collecting`: then `collected` has the CPU seconds of collections within each gap. On threads there is no
    hub that could stand still: it does nothing, and has no figures.
    """

    def __init__(self, *, collecting: bool = False) -> None:
        self.gaps: list[tuple[float, float]] = []
        self.collected: list[float] = []
        self._collecting = collecting
        self._spent = self._since = 0.0
        self._on = True

    def __enter__(self) -> Ticker:
        if handler == "threading":
            return self
        import gevent

        gc.collect()
        gc.disable()
        self._greenlet = gevent.spawn(self._run)
        gevent.sleep(0.003)
        self.gaps.clear()
        self.collected.clear()
        if self._collecting:
            gc.callbacks.append(self._on_collection)
            gc.enable()
        return self

    def __exit__(self, *_: Any) -> None:
        if handler == "threading":
            return
        import gevent

        gevent.sleep(0.003)
        self._on = False
        self._greenlet.join()
        if self._collecting:
            gc.callbacks.remove(self._on_collection)
        gc.enable()

    def _on_collection(self, phase: str, _: object) -> None:
        if phase == "start":
            self._since = time.thread_time()
        else:
            self._spent += time.thread_time() - self._since

    def _run(self) -> None:
        import gevent

        with waiting_for_a_core() as waited:
            while self._on:
                began, cpu, spent = time.perf_counter() - waited(), time.thread_time(), self._spent
                gevent.sleep(0.001)
                self.gaps.append((time.perf_counter() - waited() - began, time.thread_time() - cpu))
                self.collected.append(self._spent - spent)

    @property
    def longest(self) -> dict[str, float]:
        if handler == "threading":
            return {}
        return {"cpu_ms": 1000 * max(cpu for _, cpu in self.gaps), "wall_ms": 1000 * max(wall for wall, _ in self.gaps)}

    @property
    def without_collector_ms(self) -> float:
        return 1000 * max(cpu - spent for (_, cpu), spent in zip(self.gaps, self.collected, strict=True))


@contextlib.contextmanager
def waiting_for_a_core() -> Iterator[Callable[[], float]]:
    """Seconds that the calling thread was ready to run and had no core; 0 where the system does not tell (schedstat of Linux)."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(file, 64, 0).split()[1]) / 1e9
    finally:
        os.close(file)


class Cluster:
    """A MockCluster in another process, which has one at a time. do("stop_broker", 1): what it is told to do."""

    _process: subprocess.Popen[str] | None = None

    def __init__(self, brokers: int = 1, **topics: int) -> None:
        self._about = (brokers, topics)

    def __enter__(self) -> Cluster:
        if Cluster._process is None:
            Cluster._process = subprocess.Popen(
                [sys.executable, __file__, "--clusters"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.hosts = self.do("open", *self._about)
        return self

    def __exit__(self, *_: object) -> None:
        self.do("close")

    @classmethod
    def end(cls) -> None:
        """Wait until that process has ended: its work counts as this one's, not as somebody else's."""
        if cls._process is not None:
            cls._process.communicate(timeout=PATIENCE_S)
            cls._process = None

    def do(self, *what: object) -> str:
        process = Cluster._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the cluster has ended")
        return line.strip()


def cluster_process() -> None:
    from gkafka.testing import Drop, MockCluster

    cluster: Any = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        if name == "open":
            cluster = MockCluster(*arguments)
        elif name == "silence":
            for api in arguments:
                cluster.on(api, Drop(), times=None)
        else:
            getattr(cluster, name)(*arguments)
        print(cluster.bootstrap if name == "open" else "done", flush=True)


def connect(hosts: str, **options: Any) -> Any:
    import gkafka

    return gkafka.KafkaClient(hosts, handler=handler, **options)


handler = "gevent"
VALUE = bytes(1024)


def tight_loop() -> Values:
    with Cluster(t=4) as cluster, connect(cluster.hosts) as client:
        producer = client.get_producer()
        producer.produce("t", b"warm").result(PATIENCE_S)
        with Ticker() as ticker:
            for _ in range(some(100_000)):
                producer.produce("t", VALUE)
            producer.flush(PATIENCE_S)
    return ticker.longest


def spawn_and_wait(jobs: Iterable[Callable[[], Any]]) -> None:
    from tests.gevent.harness import results, spawn_all

    for _ in results(spawn_all(jobs)):
        pass


def sends() -> Values:
    with Cluster(t=4) as cluster, connect(cluster.hosts) as client:
        producer = client.get_producer()
        producer.produce("t", b"warm").result(PATIENCE_S)

        def write() -> None:
            for _ in range(10):
                producer.produce("t", VALUE).result(PATIENCE_S)

        with Ticker() as ticker:
            spawn_and_wait([write] * some(5000))
    return ticker.longest


def consume() -> Values:
    count = some(100_000)
    with Cluster(t=4) as cluster, connect(cluster.hosts) as client:
        with client.get_producer(batch_bytes=500_000) as producer:
            for n in range(count):
                producer.produce("t", VALUE, partition=n % 4)
        with Ticker() as ticker:
            read(client, count)
    return ticker.longest


def read(client: Any, count: int) -> None:
    with client.get_consumer("t", fetch_max_bytes=50 << 20, fetch_message_max_bytes=16 << 20) as consumer:
        while count > 0:
            messages = consumer.consume_batch(1000, 1000 * PATIENCE_S)
            assert messages
            assert all(message.value for message in messages)
            count -= len(messages)


def codecs() -> Values:
    from benchmarks.figures import json_like

    values = json_like(500, 1000)
    with Cluster(t=2) as cluster, connect(cluster.hosts) as client:
        producer = client.get_producer(compression="gzip", batch_bytes=1_000_000, linger_ms=50)
        producer.produce("t", b"warm").result(PATIENCE_S)
        with Ticker() as ticker:
            for n in range(some(8000)):
                producer.produce("t", values[n % 500])
            producer.flush(PATIENCE_S)
            read(client, some(8000) + 1)
    return ticker.longest


def opens_and_closes() -> Values:
    with Cluster(3, t=6) as cluster:

        def use() -> None:
            with connect(cluster.hosts) as client, client.get_producer() as producer:
                producer.produce("t", b"x", partition=0).result(PATIENCE_S)
                with client.get_consumer("t") as consumer:
                    assert consumer.consume(1000 * PATIENCE_S)

        use()  # what a first client loads is not counted
        with Ticker() as ticker:
            for _ in range(some(30)):
                use()
    return ticker.longest


def brokers_fail() -> Values:
    import gevent

    with Cluster(3, t=6) as cluster, connect(cluster.hosts) as client:
        producer = client.get_producer()
        producer.produce("t", b"warm").result(PATIENCE_S)
        consumer = client.get_consumer("t", group="g", heartbeat_interval_ms=300)
        assert consumer.consume(1000 * PATIENCE_S)
        on = [True]

        def write() -> None:
            while on[0]:
                producer.produce("t", VALUE).result(PATIENCE_S)
                gevent.sleep(0.002)

        def take() -> None:
            while on[0]:
                consumer.consume_batch(100, 100)

        with Ticker() as ticker:
            working = [gevent.spawn(each) for each in [write] * 50 + [take]]
            for broker in (1, 2, 3):
                gevent.sleep(lasting(0.2))
                cluster.do("stop_broker", broker)
                gevent.sleep(lasting(0.3))
                cluster.do("start_broker", broker)
                gevent.sleep(lasting(0.2))
                cluster.do("close_connections")
            gevent.sleep(lasting(0.3))
            on[0] = False
            gevent.joinall(working, timeout=PATIENCE_S, raise_error=True)
        consumer.stop()
    return ticker.longest


def group() -> Values:
    """Records come and are read all the time, and are committed; another member takes half of the partitions and gives them back."""
    import gevent

    options = {"auto_commit_interval_ms": 200, "heartbeat_interval_ms": 100}
    with Cluster(t=4) as cluster, connect(cluster.hosts) as client, connect(cluster.hosts) as other:
        producer = client.get_producer()
        producer.produce("t", b"warm").result(PATIENCE_S)
        first = client.get_consumer("t", "g", **options)
        assert first.consume(1000 * PATIENCE_S)
        on = [True]

        def write() -> None:
            while on[0]:
                producer.produce("t", VALUE).result(PATIENCE_S)
                gevent.sleep(0.002)

        def take(consumer: Any) -> None:
            while on[0]:
                consumer.consume_batch(100, 10)

        def has(consumer: Any, count: int) -> None:
            with gevent.Timeout(PATIENCE_S):
                while len(consumer.assignment()) != count:
                    gevent.sleep(0.01)

        with Ticker() as ticker:
            working = [gevent.spawn(write), gevent.spawn(take, first)]
            for _ in range(some(2)):
                second = other.get_consumer("t", "g", **options)
                taking = gevent.spawn(take, second)
                has(second, 2)
                gevent.sleep(lasting(0.5))
                taking.kill()
                second.stop()
                has(first, 4)
                gevent.sleep(lasting(0.5))
            on[0] = False
            gevent.joinall(working, timeout=PATIENCE_S, raise_error=True)
        first.stop()
    return ticker.longest


def at_its_deadline(calls: Iterable[Callable[[], object]], limit_s: float) -> float:
    """Play them all at once; each is to end `limit_s` from now. Returns how far off the one is that is farthest, in seconds."""
    off: list[float] = []

    def one(call: Callable[[], object]) -> None:
        began = time.monotonic()
        with contextlib.suppress(Exception):
            call()
        off.append(abs(time.monotonic() - began - limit_s))

    running = [threading.Thread(target=one, args=(call,)) for call in calls]  # greenlets, where it is patched
    for each in running:
        each.start()
    for each in running:
        each.join()
    return max(off)


def brokers_down() -> Values:
    with Cluster(t=1) as cluster:
        limit_s = lasting(1)
        client = connect(cluster.hosts, api_timeout_ms=1000 * limit_s)
        producer, consumer = client.get_producer(), client.get_consumer(group="g", auto_commit=False)
        producer.produce("t", b"warm", partition=0).result(PATIENCE_S)
        consumer.assign({("t", 0): 0})
        assert consumer.consume(1000 * PATIENCE_S)
        consumer.commit(timeout=PATIENCE_S)
    producer.produce("t", b"never", partition=0)
    calls = [
        lambda: producer.flush(limit_s),
        lambda: consumer.commit({("t", 0): 1}, timeout=limit_s),
        lambda: consumer.committed(("t", 0), timeout=limit_s),
        lambda: consumer.offsets_for_times({("t", 0): 1}, timeout=limit_s),
        lambda: client.partitions("never-asked-for"),
        client.update_cluster,
        lambda: client.list_offsets({("t", 0): -1}, timeout=limit_s),
        lambda: client.fetch_raw("t", 0, 0, timeout=limit_s),
        lambda: client.create_topic("new", timeout=limit_s),
    ]
    at_its_deadline(calls, limit_s)  # the first errors load what tells of them
    with Ticker() as ticker:
        late = at_its_deadline(calls, limit_s)
    with contextlib.suppress(Exception):
        producer.close(0)
    return {**ticker.longest, "late_s": late}


def close() -> Values:
    """Producers with a record that nobody acknowledges, and clients with such producers: the broker is silent, then it is gone."""
    with Cluster(t=1) as cluster:
        producers, clients = [], []
        for _ in range(4):
            client = connect(cluster.hosts)
            producer = client.get_producer()
            producer.produce("t", b"warm", partition=0).result(PATIENCE_S)
            producers.append(producer)
            clients.append(client)
        cluster.do("silence", "Produce", "Metadata", "ApiVersions")
        for producer in producers:
            producer.produce("t", b"never", partition=0)
        limit_s = lasting(1)
        with Ticker() as ticker:
            silent = at_its_deadline([lambda: producers[0].close(limit_s), lambda: clients[1].close(limit_s)], limit_s)
            cluster.do("stop_broker", 1)
            gone = at_its_deadline([lambda: producers[2].close(limit_s), lambda: clients[3].close(limit_s)], limit_s)
    return {**ticker.longest, "late_s": max(silent, gone)}


def partitions() -> Values:
    names = [f"t{n}" for n in range(5)]
    places = [(name, p) for name in names for p in range(some(600))]
    with Cluster(1, **dict.fromkeys(names, some(600))) as cluster, connect(cluster.hosts) as client:
        for name in names:
            client.partitions(name)
        with Ticker() as ticker, client.get_consumer() as consumer:
            consumer.assign(places)
            assert len(consumer.positions()) == len(places)
    return ticker.longest


def starting() -> Values:
    """With nothing loaded but what `from gkafka import KafkaClient` loads."""
    with Cluster(t=1) as cluster, Ticker() as ticker, connect(cluster.hosts) as client:
        client.get_producer().produce("t", b"x").result(PATIENCE_S)
        with client.get_consumer("t", "g") as consumer:
            assert consumer.consume(1000 * PATIENCE_S)
    return ticker.longest


def small_batches(partitions: int, batches: int, size: int) -> Values:
    """Read so many batches of so many records, spread over partitions."""
    with Cluster(t=partitions) as cluster, connect(cluster.hosts) as client:
        with client.get_producer() as producer:
            for number in range(batches):
                for _ in range(size):
                    producer.produce("t", VALUE[:100], partition=number % partitions)
                producer.end_batch("t", number % partitions)
        with client.get_consumer("t") as consumer:
            left = batches * size - len(consumer.consume_batch(500, 1000 * PATIENCE_S))
            with Ticker() as ticker:
                while left > 0:
                    left -= len(consumer.consume_batch(500, 1000 * PATIENCE_S))
    return ticker.longest


def send_1000() -> Values:
    with Cluster(t=1000) as cluster, connect(cluster.hosts) as client:
        producer = client.get_producer()
        producer.produce("t", b"warm", partition=0).result(PATIENCE_S)
        with Ticker() as ticker:
            for number in range(some(20_000)):
                producer.produce("t", VALUE[:100], partition=number % 1000)
            producer.flush(PATIENCE_S)
    return ticker.longest


IDLE_S = lasting(10)


LOOKED_AT_S = 5.5
"""Each worker looks around meanwhile, and the consumer commits once."""


def idle(hosts: str | None = None, topic: str = "t", *, of: Sequence[str] = ("producer", "member"), seconds: float = IDLE_S) -> Values:
    """A producer that has sent, and the one member of a group, with nothing more to read."""
    with contextlib.ExitStack() as stack:
        hosts = hosts or stack.enter_context(Cluster(t=1)).hosts
        client = stack.enter_context(connect(hosts))
        if "producer" in of:
            stack.enter_context(client.get_producer()).produce(topic, b"x").result(PATIENCE_S)
        consumer = stack.enter_context(client.get_consumer(topic, "idle")) if "member" in of else None
        while consumer is not None and not consumer.assignment():
            consumer.consume(100)

        def rest(seconds: float) -> object:
            return client.handler.sleep(seconds) if consumer is None else consumer.consume(1000 * seconds)

        while rest(lasting(2)) is not None:  # what a beginning takes is no idling
            pass
        turns, cpu = woken(), time.process_time()
        rest(seconds)
        cost = {"percent": 100 * (time.process_time() - cpu) / seconds, "wakeups": (woken() - turns) / seconds}
        cost |= {"greenlets": greenlets(), "threads": len(os.listdir("/proc/self/task"))}
        if handler == "threading":
            return cost
        with Ticker() as ticker:  # which is no idling itself
            rest(min(seconds, LOOKED_AT_S))
        return {**cost, **ticker.longest}


def woken() -> int:
    """Turns of the hub's loop; without one, how often the threads of this process went to sleep."""
    if handler == "threading":
        return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    import gevent

    return int(gevent.get_hub().loop.iteration)


def greenlets() -> int:
    if handler == "threading":
        return 0
    import gevent

    return sum(isinstance(one, gevent.Greenlet) and not one.dead for one in gc.get_objects())


def collector() -> Values:
    """What thousands of greenlets that wait consist of, and what of a stall is not the collector's while it works."""
    from gevent.event import AsyncResult

    count = some(5000)
    with Cluster(t=4) as cluster, connect(cluster.hosts) as client:
        late = client.get_producer(linger_ms=1000 * PATIENCE_S, batch_bytes=1_000_000)
        producer = client.get_producer()
        for each in (late, producer):
            each.produce("t", b"warm")
            each.flush(PATIENCE_S)
        ours = objects_of(lambda: late.produce("t", b"x").result(PATIENCE_S), lambda: late.flush(PATIENCE_S), count)
        waiting: list[Any] = []

        def wait() -> None:
            waiting.append(AsyncResult())
            waiting[-1].get(timeout=PATIENCE_S)

        bare = objects_of(wait, lambda: [result.set() for result in waiting], count)

        def write() -> None:
            for _ in range(10):
                producer.produce("t", VALUE).result(PATIENCE_S)

        with Ticker(collecting=True) as ticker:
            spawn_and_wait([write] * count)
    assert max(ticker.collected) > 0, "nothing was collected: that proves nothing"
    return {"objects": ours / bare, "without_ms": ticker.without_collector_ms}


def objects_of(wait: Callable[[], object], let_go: Callable[[], object], count: int) -> float:
    import gevent

    from tests.gevent.harness import results, spawn_all

    gc.collect()
    before = len(gc.get_objects())
    waiting = spawn_all([wait] * count)
    gevent.sleep(0.2)
    found = (len(gc.get_objects()) - before) / count
    let_go()
    list(results(waiting))
    return found


def callbacks() -> Values:
    with Cluster(t=1) as cluster, connect(cluster.hosts) as client:
        told = [0]

        def count(delivery: Any) -> None:
            told[0] += 1

        def compute(delivery: Any) -> None:
            until = time.thread_time() + 0.01
            while time.thread_time() < until:
                pass

        many = client.get_producer(linger_ms=100, batch_bytes=900_000)
        slow = client.get_producer(linger_ms=100, on_delivery=compute)
        many.produce("t", b"warm").result(PATIENCE_S)
        with Ticker() as ticker:
            for _ in range(some(20_000)):
                many.produce("t", b"x").add_done_callback(count)
            for _ in range(some(60)):
                slow.produce("t", b"x")
            many.flush(PATIENCE_S)
            slow.flush(PATIENCE_S)
        assert told[0] == some(20_000)
    return ticker.longest


def broker_gone() -> Values:
    with Cluster(t=1) as cluster, connect(cluster.hosts) as client:
        client.get_producer().produce("t", b"x").result(PATIENCE_S)
        consumer = client.get_consumer("t", fetch_error_backoff_ms=100)
        assert consumer.consume(1000 * PATIENCE_S)
        cluster.do("stop_broker", 1)
        client.handler.sleep(lasting(0.3))
        cpu, seconds = time.process_time(), lasting(3)
        client.handler.sleep(seconds)
        return {"percent": 100 * (time.process_time() - cpu) / seconds}


def pieces() -> Values:
    from gevent.monkey import get_original

    from gkafka.handlers import GEventHandler

    each = GEventHandler()

    def checkpoints() -> float:
        began = time.perf_counter()
        for _ in range(1000):
            each.checkpoint()
        return 1000 * (time.perf_counter() - began)

    def wake() -> float:
        future: Any = each.Future()

        def set_later() -> None:
            get_original("time", "sleep")(0.02)
            future.set(time.perf_counter())

        get_original("_thread", "start_new_thread")(set_later, ())
        set_at: float = future.result(PATIENCE_S)
        return 1000 * (time.perf_counter() - set_at)

    return {"checkpoint_us": min(checkpoints() for _ in range(5)), "wake_ms": statistics.median(wake() for _ in range(20))}


def imports() -> Values:
    def cpu_s(what: str) -> float:
        code = f"import time; began = time.process_time(); import {what}; print(time.process_time() - began)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout)

    return {"gkafka_s": cpu_s("gkafka"), "spark_s": cpu_s("gkafka.spark, pyspark_gkafka")}


def hostile() -> Values:
    """Frames and compressed data that were made to take long: those of the tests, which hold what becomes of them."""
    from gkafka.exceptions import KafkaException
    from gkafka.records.compression import decompress
    from gkafka.wire.apis import decode_response
    from tests.records.test_compression import crowd, crowds
    from tests.wire.test_untrusted import _greedy

    def cpu_s(call: Callable[[], object]) -> float:
        spent = []
        for _ in range(some(3)):
            began = time.process_time()
            with contextlib.suppress(KafkaException):
                call()
            spent.append(time.process_time() - began)
        return min(spent)

    frames = [cpu_s(partial(decode_response, api, version, frame)) for _, api, version, frame in _greedy()]
    packed = [cpu_s(partial(decompress, codec, data, max_bytes=64 << 20)) for codec, data, _ in map(crowd, list(crowds())[: some(100)])]
    return {"frame_ms": 1000 * max(frames), "crowd_s": max(packed)}


SCENARIOS: dict[str, Callable[[], Values]] = {
    "tight loop": tight_loop,
    "sends": sends,
    "consume": consume,
    "codecs": codecs,
    "opens and closes": opens_and_closes,
    "brokers fail": brokers_fail,
    "group": group,
    "brokers down": brokers_down,
    "close": close,
    "close on threads": close,
    "partitions": partitions,
    "starting": starting,
    "small batches": lambda: small_batches(4, some(20_000), 1),
    "read 100": lambda: small_batches(100, some(10_000), 4),
    "read 1,000": lambda: small_batches(1000, some(20_000), 2),
    "send 1,000": send_1000,
    "idle": idle,
    "idle on threads": idle,
    "callbacks": callbacks,
    "broker gone": broker_gone,
    "pieces": pieces,
    "imports": imports,
    "hostile": hostile,
    "collector": collector,
}


def in_a_process(scenario: str) -> Values:
    """The figures of a scenario, played in a process of its own. Raises RuntimeError if it fails."""
    about = ["--measure", scenario, "--handler", "threading" if scenario.endswith("on threads") else "gevent"]
    done = subprocess.run([sys.executable, __file__, *about], capture_output=True, text=True, timeout=ROUND_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{scenario}: {done.stderr}")
    values: Values = json.loads(done.stdout.splitlines()[-1])
    return values


def main() -> int:
    global handler
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="scenarios whose names have this word")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    for name in ("--handler", "--bootstrap", "--topic"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    for name in ("--short", "--clusters"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clusters:
        cluster_process()
        return 0
    if given.measure:
        handler = given.handler
        if handler == "gevent":
            importlib.import_module("tests.gevent.harness")
            from gkafka import KafkaClient  # noqa: F401
        gc.collect()
        gc.freeze()  # what was imported is no garbage, and no stall of gkafka's
        for scenario in given.measure:
            if given.bootstrap:  # one of run.py's figures, on its Kafka
                values = idle(given.bootstrap, given.topic, of=scenario.split()[1:], seconds=given.seconds)
            else:
                values = SCENARIOS[scenario]()
            print(json.dumps(values), flush=True)
        Cluster.end()
        return 0
    rows = [row for row in ROWS if not given.only or given.only in row.scenario]
    if not rows:
        parser.error(f"there is no scenario with {given.only!r} in its name, but {', '.join(SCENARIOS)}")
    began = time.monotonic()
    code = run(rows, measure=in_a_process)
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
