"""The commands that look, in an outage: each ends by --timeout, says of the rest what there is to say, and why it cannot say all.

Three brokers, one of them down; a topic that is denied; a topic that was deleted, with commits; a group with an open transaction, one in a rebalance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.testing import Drop, Edit, Error, MockCluster, Reply
from gkafka.wire import access, configs, metadata
from tests.cli.running import Outcome, tool
from tests.kit.clock import now

DOWN = 3
LIMIT_S = 30.0
GROUPS = ("billing", "mixed", "moving", "open")
ASKED = ("Metadata", "FindCoordinator", "ListOffsets", "ListGroups", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe")
ALL = tuple(("orders", number) for number in range(6))


def deny(request: Any, answer: Any) -> Any:
    """Of the topic "secret" nothing is told: it is in no list, and refused by its name."""
    if hasattr(answer, "brokers") and request.message.topics is None:
        answer.topics = [topic for topic in answer.topics if topic.name != "secret"]
    for group in getattr(answer, "answers", [answer]):
        for topic in group.topics:
            if topic.name == "secret" and hasattr(answer, "brokers"):
                topic.error_code, topic.partitions = 29, []
            for p in topic.partitions if topic.name == "secret" else ():
                p.error_code = 29
    return answer


def rebalance(request: Any, answer: Any) -> Any:
    for group in answer.groups:
        group.group_state = "PreparingRebalance" if group.group_id == "moving" else group.group_state
    return answer


def configured(request: Any) -> Any:
    of = [configs.DescribeConfigsResourceResult(name="retention.ms", value="60000", config_source=1)]
    results = [
        configs.DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, configs=of)
        for r in request.message.resources
    ]
    return configs.DescribeConfigsResponse(results=results)


class Outage:
    """kind: what the third broker is: "stopped", and the others know it; "dead", and they do not know it yet; "silent" to whoever asks."""

    def __init__(self, cluster: MockCluster, kind: str) -> None:
        self.cluster, self.kind = cluster, kind

    def begin(self, client: KafkaClient) -> None:
        cluster, admin = self.cluster, client.admin()
        for number, name in enumerate(GROUPS):
            cluster.move_coordinator(name, 1 + number % 2)
            admin.alter_group_offsets(name, dict.fromkeys(ALL, 0))
        admin.alter_group_offsets("mixed", {("secret", 0): 0, ("gone", 0): 0, ("gone", 1): 0})
        cluster.move_coordinator("x", 1)
        producer = client.get_producer(transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets({("orders", 0): 5}, "open")
        cluster.delete_topic("gone")
        if self.kind == "silent":
            for api in ASKED:
                cluster.on(api, Drop(before=True), broker=DOWN, times=None)
        else:
            cluster.stop_broker(DOWN)
        cluster.on("Metadata", Edit(self._metadata), times=None)
        for api in ("ListOffsets", "OffsetFetch"):
            cluster.on(api, Edit(deny), times=None)
        cluster.on("DescribeGroups", Edit(rebalance), times=None)
        cluster.on("DescribeConfigs", Reply(configured), times=None)
        cluster.on("DescribeAcls", Reply(lambda _: access.DescribeAclsResponse()), times=None)

    def _metadata(self, request: Any, answer: Any) -> Any:
        if self.kind == "dead":
            host, port = self.cluster.brokers[DOWN]
            answer.brokers.append(metadata.MetadataResponseBroker(node_id=DOWN, host=host, port=port))
            for p in (p for topic in answer.topics for p in topic.partitions if p.leader_id < 0):
                p.leader_id, p.error_code = DOWN, 0
        return deny(request, answer)

    def ask(self, *words: object) -> Outcome:
        began = now()
        outcome = tool(*map(str, words), "-b", self.cluster.bootstrap, "--timeout", "5")
        assert now() - began < LIMIT_S, outcome
        return outcome


def outage_of(kind: str) -> Iterator[Outage]:
    topics = {"orders": 6, "payments": 1, "secret": 2, "gone": 2}
    limits = {"DescribeConfigs": (0, 4), "DescribeAcls": (1, 3)}
    with (
        MockCluster(3, topics, replication_factor=1, auto_create=False, limits=limits) as cluster,
        KafkaClient(cluster.bootstrap, handler="threading") as client,
    ):
        outage = Outage(cluster, kind)
        outage.begin(client)
        yield outage


@pytest.fixture(scope="module")
def stopped() -> Iterator[Outage]:
    yield from outage_of("stopped")


NO_LEADER = "orders-2 has no leader at the moment (the same of orders:5)"
DENIED = "secret: error 29: Topic authorization failed"
GONE = "gone-0: error 3"
NO_COMMIT = "OffsetFetch secret-0 of group 'mixed'"


# -- the brokers know that one of them is down ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("topics", 0, ["orders 6", "payments 1"], []),
        ("topics list --long", 0, ["orders 6 1 2", "payments 1 1 0"], []),
        ("topics describe orders", 0, ["retention.ms=60000", "0 1 1 1 - -", "2 - 3 3 3 no leader"], []),
        ("topics describe --offsets", 0, ["0 1 1 1 - 0 0 -", "5 - 3 3 3 - - no leader"], []),
        ("topics describe --problems", 0, ["2 - 3 3 3 no leader"], []),
        ("topics describe orders secret", 3, ["2 - 3 3 3 no leader"], [DENIED, "next: have a principal that may: kafka-tools acls list --topic secret"]),
        ("topics config orders", 0, ["retention.ms 60000 topic no"], []),
        ("groups", 0, ["billing Empty classic - 1"], []),
        ("groups describe", 3, ["moving PreparingRebalance", "orders 0 0 0 0 - - -", "orders 2 0 - - - - -"], [NO_LEADER, GONE, NO_COMMIT]),
        ("groups members", 0, [], []),
        ("lag", 3, ["billing Empty 0 0 2", "mixed Empty 0 0 5", "moving PreparingRebalance 0 0 2", "open Empty 0 0 2"], [NO_LEADER, GONE, NO_COMMIT]),
        ("lag billing", 3, ["billing orders 1 0 0 0 - - -", "billing orders 2 0 - - - - -", "'billing': lag 0; not known of 2 partitions"], [NO_LEADER]),
        ("lag open moving", 3, ["open orders 0 0 0 0 - - -"], [NO_LEADER]),
        ("lag billing nobody", 3, ["'billing': lag 0; not known of 2 partitions", "'nobody': cannot be looked at"], ["Group nobody not found"]),
        ("lag --watch --count 2 --interval 0.1", 3, ["billing Empty 0 0 2"], [NO_LEADER]),
        ("offsets list orders", 3, ["orders 0 0 0", "orders 2 - -"], [NO_LEADER]),
        ("offsets list orders --time 1h", 3, ["orders 0 0 0 -", "orders 2 - - -"], [NO_LEADER]),
        ("offsets list --group mixed", 3, ["gone 0 0 - -", "orders 0 0 0 0", "orders 2 0 - -", "secret 0 - - -"], [NO_LEADER, GONE, NO_COMMIT]),
        ("offsets list orders secret --group open", 3, ["orders 0 0 0 0"], [NO_LEADER, DENIED]),
        ("acls", 0, [], []),
        ("configs describe topic orders", 0, ["retention.ms 60000 topic no"], []),
        ("print_topics", 0, ["orders 6 1"], []),
        ("desc_topic orders", 0, ["2 - 3 3"], []),
        ("print_offsets orders LATEST", 3, ["0 0", "2 -"], [NO_LEADER]),
        ("print_consumer_lag orders billing", 3, ["0 0 0 0", "2 - - 0"], [NO_LEADER]),
        ("print_managed_consumer_groups orders", 0, ["Topic: orders"], []),
        ("doctor --topic orders --group open", 1, ["fail topic topic 'orders': 2 of 6 partitions have no leader", "ok group group 'open'"], []),
        ("doctor --topic secret", 1, ["next: this client needs an ACL that allows Describe on topic 'secret'"], []),
    ],
)  # fmt: skip
def test_what_does_not_answer_hides_nothing_of_the_rest(words: str, code: int, out: list[str], err: list[str], stopped: Outage) -> None:
    told = stopped.ask(*words.split())
    shown = [" ".join(line.split()) for line in told.out.decode().splitlines()]
    assert told.code == code, told
    for text in out:
        assert any(line.startswith(text) for line in shown), told.out.decode()
    for text in err:
        assert text in told.err, told.err
    assert bool(told.err) is bool(err), told.err


def test_json_has_a_reason_for_what_it_has_no_value_of(stopped: Outage) -> None:
    found = {group["group"]: group for group in stopped.ask("lag", "--json").document}
    rows = {(row["topic"], row["partition"]): row for row in found["mixed"]["partitions"]}
    assert (rows["orders", 0]["lag"], rows["orders", 0]["problem"]) == (0, None)
    assert (rows["orders", 2]["committed"], rows["orders", 2]["end"], rows["orders", 2]["problem"]) == (
        0,
        None,
        "orders-2 has no leader at the moment",
    )
    assert "error 3" in rows["gone", 1]["problem"]
    assert rows["secret", 0]["committed"] is None
    assert (found["mixed"]["unknown"], found["mixed"]["problem"]) == (5, None)


def test_a_topic_is_deleted_and_a_group_reset_as_far_as_they_can_be(stopped: Outage) -> None:
    told = stopped.ask("topics", "delete", "orders")
    assert (told.code, told.out.split()[-3:]) == (0, [b"orders", b"6", b"-"])
    plan = stopped.ask("offsets", "reset", "billing", "--to-latest")
    assert (plan.code, len(plan.lines)) == (3, 5)
    assert NO_LEADER in plan.err


# -- one of them is down, and the others do not know it yet ----------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["dead", "silent"])
def test_a_broker_that_does_not_answer_hides_nothing_of_the_others(kind: str) -> None:
    for outage in outage_of(kind):
        told = outage.ask("lag")
        lines = [" ".join(line.split()) for line in told.out.decode().splitlines()]
        assert (told.code, lines) == (
            3,
            [
                "GROUP STATE MEMBERS LAG UNKNOWN",
                "billing Empty 0 0 2",
                "mixed Empty 0 0 5",
                "moving PreparingRebalance 0 0 2",
                "open Empty 0 0 2",
            ],
        )
        port = outage.cluster.brokers[DOWN][1]
        assert f"listing groups: not done in time, last: 127.0.0.1:{port}" in told.err
        assert "orders-2: looking offsets up: not done in time" in told.err
        told = outage.ask("topics", "list", "--long")
        assert (told.code, told.err) == (0, "")
        told = outage.ask("offsets", "list", "orders")
        assert [len(line.split()) for line in told.lines] == [4] * 7
        assert (told.code, b"orders 2 - -".split() in [line.split() for line in told.lines]) == (3, True)


# -- the reports ------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def healthy() -> Iterator[MockCluster]:
    with MockCluster(3, {"t": 3, "u": 1}, auto_create=False) as cluster:
        with KafkaClient(cluster.bootstrap, handler="threading") as client:
            client.admin().alter_group_offsets("g", {("t", 0): 0, ("t", 1): 0, ("t", 2): 0, ("u", 0): 0})
            client.admin().alter_group_offsets("h", {("t", 0): 0})
        yield cluster


def soon(cluster: MockCluster, *words: str) -> Outcome:
    """Far before the 60 s that the command has."""
    began = now()
    outcome = tool(*words, "-b", cluster.bootstrap, "--timeout", "60")
    assert now() - began < LIMIT_S
    return outcome


@pytest.mark.parametrize("code", [5, 29, 3])
def test_lag_while_one_partition_cannot_tell_its_end(code: int, healthy: MockCluster) -> None:
    """redpanda-data/console#2573, KAFKA-19435, KAFKA-19500."""
    healthy.on("ListOffsets", Error(code), broker=healthy.leader("t", 1), times=None)
    for words in (("lag", "g"), ("lag",), ("groups", "describe", "g")):
        told = soon(healthy, *words)
        assert told.code == 3
        assert f"t-1 on broker 127.0.0.1:{healthy.brokers[healthy.leader('t', 1)][1]}: error {code}" in told.err
    ends = {int(line.split()[1]): line.split()[3] for line in told.lines if line.startswith(b"t ")}
    assert ends == {0: b"0", 1: b"-", 2: b"0"}


def test_lag_of_a_group_whose_topic_is_deleted(healthy: MockCluster) -> None:
    """seglo/kafka-lag-exporter#478: nothing was told of any group."""
    healthy.delete_topic("u")
    told = soon(healthy, "lag")
    assert (told.code, [line.split()[0] for line in told.lines]) == (3, [b"GROUP", b"g", b"h"])
    assert "u-0: error 3" in told.err


def test_lag_of_groups_whose_offsets_are_said_to_be_unstable(healthy: MockCluster) -> None:
    """redpanda-data/redpanda#6423: brokers that tell so to everybody, of all groups or one."""
    healthy.on("OffsetFetch", Error(88), times=None, when=lambda request: "'h'" in str(request.message))
    told = soon(healthy, "lag")
    assert told.code == 3
    assert [line.split() for line in told.lines[1:]] == [[b"g", b"Empty", b"0", b"0", b"0"], [b"h", b"Empty", b"0", b"-", b"-"]]
    assert "a transaction that moves these offsets is still open" in told.err
    assert soon(healthy, "lag", "h").lines[-1] == b"'h': what it has committed cannot be told"


@pytest.mark.parametrize("words", [("lag",), ("lag", "g"), ("lag", "g", "h"), ("lag", "--watch", "--count", "1")])
def test_lag_that_is_told_of_no_group_what_it_has_committed_fails(words: tuple[str, ...], healthy: MockCluster) -> None:
    """Of one of two it is an answer in part."""
    healthy.on("OffsetFetch", Error(30), times=None)
    told = soon(healthy, *words)
    assert (told.code, "error 30" in told.err, told.out != b"") == (1, True, True), told
    healthy.clear_script()
    healthy.on("OffsetFetch", Error(30), times=None, when=lambda request: "'h'" in str(request.message))
    assert soon(healthy, "lag").code == 3


def test_lag_shows_partitions_of_which_a_group_has_committed_nothing(healthy: MockCluster) -> None:
    """A group that ended early has committed of some partitions only: of which depends on its client, and on chance."""
    told = soon(healthy, "lag", "h")
    assert [line.split()[1:3] for line in told.lines[1:-1]] == [[b"t", b"0"], [b"t", b"1"], [b"t", b"2"]]
    assert told.lines[-1] == b"'h': lag 0; nothing committed of 2 partitions"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("most", [1, None], ids=["ended early", "read to the end"])
def test_lag_shows_the_same_partitions_however_a_group_was_read(protocol: str, most: int | None, healthy: MockCluster) -> None:
    """A classic member commits what it was handed; one of KIP-848 all that it has, also where it has read nothing. Either may end early."""
    with KafkaClient(healthy.bootstrap, handler="threading") as client:
        with client.get_producer() as producer:
            for number in range(3):
                producer.produce("t", b"x", partition=number)
        with client.get_consumer(["t"], group="read", group_protocol=protocol, auto_offset_reset="earliest") as consumer:
            left = most or 3
            until = now() + 60
            while left and now() < until:
                left -= len(consumer.consume_batch(left, timeout_ms=500))
        assert not left
        assert client.admin().describe_groups(["read"])["read"].type in (protocol, "unknown")
    told = soon(healthy, "lag", "read")
    rows = [line.split() for line in told.lines[1:-1]]
    assert [row[1:3] for row in rows] == [[b"t", b"0"], [b"t", b"1"], [b"t", b"2"]]
    assert [row[4] for row in rows] == [b"1"] * 3
    assert (told.code, told.err) == (0, "")


WORDS_OF_LAG = [("lag",), ("lag", "--topic", "t"), ("lag", "--watch", "--count", "1")]


@pytest.mark.parametrize("words", WORDS_OF_LAG, ids=" ".join)
def test_a_group_that_cannot_be_described_hides_none_of_the_others(words: tuple[str, ...], healthy: MockCluster) -> None:
    healthy.move_coordinator("g", 1)
    healthy.move_coordinator("h", 2)
    for api in ("DescribeGroups", "ConsumerGroupDescribe"):
        healthy.on(api, Error(30), broker=2, times=None)
    told = soon(healthy, *words)
    assert told.code == 3, told
    rows = [line.split() for line in told.lines if line and not line.startswith(b"20")]
    assert rows == [
        [b"GROUP", b"STATE", b"MEMBERS", b"LAG", b"UNKNOWN"],
        [b"g", b"Empty", b"0", b"0", b"0"],
        [b"h", b"-", b"-", b"-", b"-"],
    ]
    assert "error 30" in told.err


def test_json_has_the_same_names_of_a_group_that_cannot_be_described(healthy: MockCluster) -> None:
    healthy.move_coordinator("g", 1)
    healthy.move_coordinator("h", 2)
    for api in ("DescribeGroups", "ConsumerGroupDescribe"):
        healthy.on(api, Error(30), broker=2, times=None)
    told = soon(healthy, "lag", "--json")
    g, h = told.document
    assert (told.code, list(g), g["group"], g["unknown"]) == (3, list(h), "g", 0)
    assert (h["group"], h["state"], h["unknown"], h["partitions"], "error 30" in h["problem"]) == ("h", None, None, [], True)


@pytest.mark.parametrize("words", WORDS_OF_LAG, ids=" ".join)
def test_lag_of_groups_whose_coordinators_nobody_names_has_a_row_for_each(words: tuple[str, ...], healthy: MockCluster) -> None:
    healthy.on("FindCoordinator", Error(15), times=None)
    told = tool(*words, "-b", healthy.bootstrap, "--timeout", "3")
    rows = [line.split() for line in told.lines if line and not line.startswith(b"20")]
    assert (told.code, rows[1:]) == (1, [[b"g", b"-", b"-", b"-", b"-"], [b"h", b"-", b"-", b"-", b"-"]])
    assert "error 15" in told.err


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["table", "json"])
def test_pykafkas_reset_shows_what_it_has_reset_while_one_partition_has_no_leader(more: tuple[str, ...]) -> None:
    with MockCluster(3, {"orders": 3}, replication_factor=1, auto_create=False) as cluster:
        for node in (1, 2, 3):
            cluster.move_leader("orders", node - 1, node)
        cluster.move_coordinator("g", 1)
        with KafkaClient(cluster.bootstrap, handler="threading") as client:
            client.admin().alter_group_offsets("g", {("orders", number): 0 for number in range(3)})
            with client.get_producer() as producer:
                for number in range(3):
                    producer.produce("orders", b"x", partition=number)
        cluster.stop_broker(DOWN)
        told = soon(cluster, "reset_offsets", "orders", "g", "LATEST", *more)
        assert told.code == 3, told
        assert "orders-2 has no leader" in told.err
        if more:
            assert [(row["partition"], row["before"], row["after"]) for row in told.document["items"]] == [(0, 0, 1), (1, 0, 1)]
        else:
            assert [line.split()[:4] for line in told.lines[1:]] == [[b"orders", b"0", b"0", b"1"], [b"orders", b"1", b"0", b"1"]]
        assert {at: one.offset for at, one in cluster.committed("g").items()} == {("orders", 0): 1, ("orders", 1): 1, ("orders", 2): 0}


def test_problems_are_shown_beside_the_number_of_all_partitions(stopped: Outage) -> None:
    told = stopped.ask("topics", "describe", "orders", "--problems").out.decode()
    assert "  partitions 6  replicas 1" in told
    assert len([line for line in told.splitlines() if line.endswith("no leader")]) == 2
