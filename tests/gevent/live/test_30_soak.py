"""30: a thousand greenlets produce and four members consume while the broker restarts, members come and go, and greenlets are killed."""

from __future__ import annotations

import signal
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.gevent.harness import PATCHED, UNPATCHED, in_child
from tests.gevent.live.soak import PARTITIONS, id_of, read_diary, soak
from tests.kit.clock import now
from tests.live.kafka import KafkaCluster
from tests.live.pool import skip_if_told

GROWTH_MB_PER_MIN = 1.0
WARM_S = 15
"""Until then buffers and tables grow to their size."""


@pytest.mark.parametrize(
    ("mode", "seconds"),
    [
        pytest.param(UNPATCHED, 32, marks=pytest.mark.timeout(400)),
        *(pytest.param(mode, 600, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]) for mode in (UNPATCHED, PATCHED)),
    ],
)
def test_30_nothing_acknowledged_is_lost_and_nothing_is_there_twice(mode: str, seconds: float, tmp_path: Path) -> None:
    """The short form has one restart and a change of the group every 6 s; ten minutes have one restart each minute and a change every 20 s."""
    skip_if_told()
    with KafkaCluster("4.2.0") as kafka, ThreadPoolExecutor(1) as beside:
        kafka.create_topic("soak", PARTITIONS)
        every_s = 20 if seconds > 100 else 6
        told = beside.submit(in_child, mode, soak, kafka.hosts, "soak", str(tmp_path), seconds, every_s, timeout=seconds + 300)
        restarts = restart_each_minute(kafka, seconds, told)
        result = told.result()
        print({key: value for key, value in result.items() if key != "memory"}, f"{restarts=}, {[round(mb) for _, mb in result['memory']]}")
        check_log(kafka.hosts, result, tmp_path)
    check_process(result, seconds)


def restart_each_minute(kafka: KafkaCluster, seconds: float, playing: Any) -> int:
    """In turn asked to end, and killed. Returns how often."""
    began, times = now(), 0
    while now() < began + seconds and not playing.done():
        time.sleep(0.2)
        if now() >= began + 12 + 60 * times and now() < began + (seconds - 15):
            kafka.kill(1, signal.SIGTERM if times % 2 else signal.SIGKILL)
            kafka.restart(1)
            times += 1
    return times


def check_log(hosts: str, result: dict[str, Any], folder: Path) -> None:
    log = read_log(hosts)
    ids = [id for partition in log for id in partition]
    assert len(set(ids)) == len(ids), f"{len(ids) - len(set(ids))} records are in the log twice"
    assert result["acknowledged"] > 1000
    lost = [line for line in read_diary(folder / "acknowledged") if not is_there(log, *line)]
    assert not lost, f"{len(lost)} of {result['acknowledged']} acknowledged records are not where they should be: {lost[:5]}"
    seen = {(partition, offset) for _, partition, offset in read_diary(folder / "consumed")}
    missed = [(p, offset) for p, partition in enumerate(log) for offset in range(len(partition)) if (p, offset) not in seen]
    assert not missed, f"{len(missed)} records were never consumed: {missed[:5]}"
    wrong = [line for line in read_diary(folder / "consumed") if not is_there(log, *line)]
    assert not wrong, f"consumed, and not so in the log: {wrong[:5]}"


def is_there(log: Sequence[Sequence[int]], id: int, partition: int, offset: int) -> bool:
    return offset < len(log[partition]) and log[partition][offset] == id


def read_log(hosts: str) -> list[array[int]]:
    """The ids of each partition by offset, as confluent-kafka reads them."""
    consumer = Consumer({"bootstrap.servers": hosts, "group.id": "eyes", "enable.auto.commit": False, "log_level": 2})
    parts = [TopicPartition("soak", p, 0) for p in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(part, timeout=60)[1] for part in parts]
    consumer.assign(parts)
    log = [array("Q") for _ in parts]
    deadline = now() + 120
    while sum(map(len, log)) < sum(ends):
        assert now() < deadline, f"{sum(map(len, log))} of {sum(ends)} records were read"
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            ids = log[message.partition()]
            assert message.offset() == len(ids), "a gap in the log"
            ids.append(id_of(message.value()))
    consumer.close()
    return log


def check_process(result: dict[str, Any], seconds: float) -> None:
    assert result["failures"] == {}, "what was accepted was delivered, restarts or not"
    assert result["unsure"] <= result["acknowledged"] / 100
    assert result["unsettled"] == 0
    assert result["killed"] > (100 if seconds > 100 else 20)
    assert result["rebalances"] > (1 if seconds > 100 else 0)
    if seconds > 100:  # in a minute the noise is larger than what is looked for
        growth = slope(result["memory"])
        assert growth < GROWTH_MB_PER_MIN, f"{growth:.2f} MB/min: {result['memory']}"
    else:
        warm = [mb for at, mb in result["memory"] if at > WARM_S]
        assert max(warm) < 1.3 * warm[0], f"{warm}"


def slope(memory: list[tuple[float, float]]) -> float:
    """MB per minute, by least squares, of the least that each minute but the first needed: what members that lag behind read in large fetches comes and
    goes, and what is lost stays.
    """
    minutes: dict[int, list[float]] = {}
    for at, mb in memory:
        minutes.setdefault(int(at // 60), []).append(mb)
    points = [(minute, min(mbs)) for minute, mbs in minutes.items() if minute > 0 and len(mbs) > 5]
    middle, mean = sum(at for at, _ in points) / len(points), sum(mb for _, mb in points) / len(points)
    above = sum((at - middle) * (mb - mean) for at, mb in points)
    return above / sum((at - middle) ** 2 for at, _ in points)
