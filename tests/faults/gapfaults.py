"""F26 and F27: logs with holes, and logs that were cut."""

from __future__ import annotations

import time
from typing import Any

from tests.faults.groups import GroupFault, GroupRun
from tests.faults.load import FILLER, value_of
from tests.faults.stage import until

__all__ = ["GAP_FAULTS"]

KEYS = 20


def compacted_log(run: GroupRun) -> None:
    """Keyed transactions, every other one aborted, compacted; then more of both, with nothing but aborted records and markers at the end."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": run.stage.direct, "transactional.id": f"gaps-{run.topic}", "linger.ms": 2, "log_level": 0})
    producer.init_transactions(30)
    rounds = 40 if run.long else 10
    for turn in range(rounds):
        write(run, producer, keyed=True, aborts=turn % 2 == 1)
        if turn == rounds // 2:
            time.sleep(1.2)  # segment.ms: what comes next rolls the segments
    time.sleep(1.2)
    write(run, producer, keyed=True, aborts=False)
    full = len(run.stage.dump(list(run.topics)))
    until(lambda: len(run.stage.dump(list(run.topics))) < full * 0.7, "the logs are compacted", 180.0, pause=0.5)
    keep(run)
    for turn in range(4):
        write(run, producer, keyed=False, aborts=turn > 0)
    rows = run.stage.dump(list(run.topics), "read_committed")
    places = {(row.topic, row.partition) for row in rows}
    spans = sum(max(r.offset for r in rows if (r.topic, r.partition) == p) + 1 for p in places)
    run.counts["gaps"] = spans - len(rows)


def write(run: GroupRun, producer: Any, *, keyed: bool, aborts: bool) -> None:
    """One transaction: five records of each key into each partition, or eighty without a key."""
    producer.begin_transaction()
    for topic, partition in run.places:
        for n in range(5 * KEYS if keyed else 80):
            value = b"aborted " + FILLER if aborts else value_of(run.counts["produced"])
            producer.produce(topic, value, key=b"%d" % (n % KEYS) if keyed else b"once %d" % run.counts["produced"], partition=partition)
            run.counts["produced"] += 1
            run.counts["aborted"] += aborts
    producer.flush(30)
    if aborts:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def keep(run: GroupRun) -> None:
    """From now on nothing is taken out: what is read must be there at the end to be compared."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, run.topic, incremental_configs=[entry])
    for done in run.stage.admin.incremental_alter_configs([resource]).values():
        done.result(30)
    before = -1
    while before != (now := len(run.stage.dump(list(run.topics)))):
        before = now
        time.sleep(2.0)


def read_again(run: GroupRun) -> None:
    """All is read once more by members that come from nowhere."""
    run.reads(0)


GAP_FAULTS = {
    fault.id: fault
    for fault in (
        GroupFault(
            "F26",
            "compacted, aborted, control",
            read_again,
            evidence=("gaps",),
            kinds=("managed", "native", "simple"),
            quiet=("threading", "gevent"),
            prepare=compacted_log,
            least=200,
            configs={
                "cleanup_policy": "compact",
                "segment_ms": 1000,
                "min_cleanable_dirty_ratio": 0.01,
                "delete_retention_ms": 0,
                "max_compaction_lag_ms": 1000,
            },
        ),
    )
}
