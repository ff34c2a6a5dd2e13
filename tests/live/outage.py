"""A cluster of three brokers in an outage: what an operator meets all at once, for the tests of kafka-tools."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from gkafka import KafkaClient
from gkafka.admin import Acl, AclOperation, Permission, ResourceType
from gkafka.core.assignors import ASSIGNORS
from tests.live.groupdriver import Driver
from tests.live.kafka import KafkaCluster
from tests.live.sharing import until

__all__ = ["DOWN", "PROPERTIES", "Outage", "outage", "start"]

DOWN = 3
"""The broker that is killed."""
LEADERS = (1, 2, 3, 1, 2, 3)
"""Of the partitions of "orders", which has no other replicas."""
LONG_S = 900.0
RANGE = ASSIGNORS["range"]
USER, PASSWORD = "ops", "s3cret-of-ops"
LISTENER = "OPS"
"""Where clients have a name: who comes in elsewhere may all, as brokers must."""
PROPERTIES: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "listener.name.ops.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.ops.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
}


class Outage(NamedTuple):
    """hosts: of the operator, the one that is down first. down: its address. properties: what --config needs."""

    hosts: str
    down: str
    properties: str


def start(ends: contextlib.ExitStack) -> KafkaCluster:
    """Three brokers that know one operator, by name."""
    return ends.enter_context(KafkaCluster("4.2.0", brokers=3, properties=PROPERTIES, listeners={LISTENER: "SASL_PLAINTEXT"}))


@contextlib.contextmanager
def outage(cluster: KafkaCluster) -> Iterator[Outage]:
    """Two brokers of three, that know it. Topics: "orders" and "spread" (no leader of 2 and 5), "moved" and "payments" (all replicas), "secret" (denied), "gone" (deleted).

    Groups, all but "moving" without members: "billing" has committed of orders, "mixed" also of secret and gone, a transaction of "open" is
    not ended, "moving" is in a rebalance that waits for a member which never answers.
    """
    with KafkaClient(cluster.hosts, handler="threading") as client, contextlib.ExitStack() as ends:
        _make_topics(cluster, client)
        cluster.kill(DOWN)
        left = [node for node in cluster.nodes if node.id != DOWN]
        known = ("moved", "payments", "secret", "__consumer_offsets", "__transaction_state")
        until(lambda: all(node.brokers() == {node.id for node in left} for node in left))
        until(
            lambda: all(
                DOWN not in node.leaders(topic).values() and -1 not in node.leaders(topic).values() for node in left for topic in known
            )
        )
        until(lambda: all(node.leaders("orders").get(number) == -1 for node in left for number in (2, 5)))
        hosts = ",".join(node.address for node in left)
        producer = client.get_producer(transactional_id="open", transaction_timeout_ms=LONG_S * 1000)
        ends.callback(producer.close, 5)
        producer.init_transactions(timeout=60)
        producer.begin_transaction()
        producer.send_offsets({("orders", 0): 5}, "open", timeout=60)
        ends.callback(producer.abort_transaction, timeout=60)
        _begin_to_rebalance(hosts, client, ends)
        addresses = [f"127.0.0.1:{node.listeners[LISTENER]}" for node in (cluster.node(DOWN), *left)]
        yield Outage(",".join(addresses), addresses[0], _properties())


def _properties() -> str:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "allow.plaintext.credentials": "true",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    }
    return "".join(f"{name}={value}\n" for name, value in given.items())


def _make_topics(cluster: KafkaCluster, client: KafkaClient) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.hosts, "log_level": 0})
    configs = {"min.insync.replicas": "1"}
    for topic in ("orders", "spread"):
        placed = NewTopic(topic, len(LEADERS), replica_assignment=[[id_] for id_ in LEADERS], config=configs)
        admin.create_topics([placed])[topic].result(60)
    cluster.create_topic("moved", len(LEADERS), configs=configs)
    for topic in ("payments", "secret", "gone"):
        cluster.create_topic(topic, 2, configs={"min.insync.replicas": 1})
    own = client.admin()
    until(lambda: all(node.leaders(topic) == dict(enumerate(LEADERS)) for node in cluster.nodes for topic in ("orders", "spread")))
    with client.get_producer() as producer:
        for number in range(len(LEADERS)):
            for topic, partition in (("orders", number), ("payments", number % 2)):
                for n in range(10):
                    producer.produce(topic, b"%d" % n, partition=partition)
        producer.flush(60)
    own.alter_group_offsets("billing", {("orders", number): 7 for number in range(len(LEADERS))}, timeout=60)
    own.alter_group_offsets("open", {("orders", 0): 2}, timeout=60)
    own.alter_group_offsets("mixed", {("orders", 1): 10, ("payments", 0): 10, ("secret", 0): 0, ("gone", 0): 0}, timeout=60)
    with client.get_producer(transactional_id="any") as producer:  # makes the topic of the transactions, with all of its replicas
        producer.init_transactions(timeout=60)
    own.delete_topics(["gone"], timeout=60)
    own.create_acls([Acl(ResourceType.TOPIC, "secret", f"User:{USER}", AclOperation.ALL, Permission.DENY)], timeout=60)


def _begin_to_rebalance(hosts: str, client: KafkaClient, ends: contextlib.ExitStack) -> None:
    times = {"session_timeout_s": LONG_S, "rebalance_timeout_s": LONG_S}
    first = Driver(hosts, "4.2.0", "moving", [RANGE], {"payments": 2}, **times)
    try:
        until(lambda: len(first.owned) == 2)
    finally:
        first.kill()  # it stays a member, for it never says that it leaves
    second = Driver(hosts, "4.2.0", "moving", [RANGE], {"payments": 2}, **times)
    ends.callback(second.kill)
    until(lambda: client.admin().describe_groups(["moving"])["moving"].state == "PreparingRebalance")
