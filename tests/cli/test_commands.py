"""topics, groups, lag, offsets and pykafka's commands, on brokers in the test's process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.admin import GroupOffset
from gkafka.cli.failures import _lines
from gkafka.exceptions import NonEmptyGroup, TopicAuthorizationFailed
from gkafka.testing import Delay, MockCluster, Reply
from gkafka.wire import access, configs
from tests.cli.conftest import Tool


@pytest.fixture
def client(cluster: MockCluster) -> Iterator[KafkaClient]:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        yield client


@pytest.fixture
def filled(client: KafkaClient, cluster: MockCluster) -> MockCluster:
    """Ten records in each partition of "orders"; "billing" has committed 4 of partition 0 and 10 of partition 1."""
    producer = client.get_producer()
    for number in range(40):
        producer.produce("orders", b"x", partition=number % 4)
    producer.flush()
    client.admin().alter_group_offsets("billing", {("orders", 0): 4, ("orders", 1): GroupOffset(10, "\x1b[31mnote")})
    return cluster


def described(cluster: MockCluster, *values: tuple[str, str, int]) -> None:
    """Have brokers tell these values of any resource: (name, value, source)."""

    def answer(request: Any) -> Any:
        results = [
            configs.DescribeConfigsResult(
                resource_type=r.resource_type,
                resource_name=r.resource_name,
                configs=[
                    configs.DescribeConfigsResourceResult(name=name, value=value, config_source=source, is_sensitive="password" in name)
                    for name, value, source in values
                ],
            )
            for r in request.message.resources
        ]
        return configs.DescribeConfigsResponse(results=results)

    cluster.on("DescribeConfigs", Reply(answer), times=None)


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


# -- topics --------------------------------------------------------------------------------------------------------------------
def test_topics_lists_them(ask: Tool) -> None:
    told = ask("topics")
    assert (told.code, told.err) == (0, "")
    assert rows(told.out) == [["TOPIC", "PARTITIONS"], ["orders", "4"], ["payments", "1"]]


@pytest.mark.parametrize("words", [("topics", "--json"), ("topics", "list", "--json"), ("topics", "--json", "list")])
def test_topics_as_json(words: tuple[str, ...], ask: Tool) -> None:
    assert json.loads(ask(*words).out) == [
        {"topic": "orders", "partitions": 4, "internal": False},
        {"topic": "payments", "partitions": 1, "internal": False},
    ]


def test_the_options_of_the_connection_stand_before_or_behind_the_command(tool: Tool, cluster: MockCluster) -> None:
    before = tool("-b", cluster.bootstrap, "topics")
    assert before.code == 0
    assert tool("topics", "--broker", cluster.bootstrap) == before
    assert tool("-b", "127.0.0.1:1", "topics", "list", "-b", cluster.bootstrap) == before


def test_a_name_of_the_environment(tool: Tool, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", cluster.bootstrap)
    assert "orders" in tool("topics").out
    assert "kafka-tools" in {request.client_id for request in cluster.requests("Metadata")}


def test_a_topic_is_made_and_told_of(ask: Tool, cluster: MockCluster) -> None:
    told = ask("topics", "create", "new", "-p", 3, "--topic-config", "retention.ms=60000")
    assert (told.code, told.err) == (0, "")
    assert rows(told.out)[1][:3] == ["new", "yes", "3"]
    assert "new" in ask("topics").out
    again = ask("topics", "create", "new")
    assert again.code == 1
    assert "already exists" in again.err
    assert ask("topics", "create", "new", "--if-not-exists").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--assign", "1,2", "-p", 2),
        ("--assign", "one"),
        ("-p", 0),
        ("--topic-config", "x"),
        ("--topic-config", "a=1", "--topic-config", "a=2"),
    ],
)
def test_a_topic_that_is_told_wrongly_is_not_made(words: tuple[object, ...], ask: Tool, cluster: MockCluster) -> None:
    assert ask("topics", "create", "new", *words).code == 2
    assert cluster.count("CreateTopics") == 0


def test_an_unknown_topic_is_told_with_the_nearest(ask: Tool) -> None:
    for words in (
        ("topics", "describe", "ordres"),
        ("desc_topic", "ordres"),
        ("print_offsets", "ordres", "LATEST"),
        ("offsets", "list", "ordres"),
    ):
        told = ask(*words)
        assert (told.code, told.out) == (1, "")
        assert (
            told.err
            == "kafka-tools: no topic 'ordres' in this cluster\n  next: did you mean 'orders'? kafka-tools topics lists what there is\n"
        )


def test_a_topic_is_deleted_only_with_yes(ask: Tool, filled: MockCluster) -> None:
    planned = ask("topics", "delete", "orders")
    assert (planned.code, rows(planned.out)[1]) == (0, ["orders", "4", "40"])
    assert planned.err == "nothing is deleted yet: the same with --yes does it\n"
    assert filled.count("DeleteTopics") == 0
    done = ask("topics", "delete", "orders", "--yes", "--json")
    assert json.loads(done.out) == {"done": True, "what": "deleted", "items": [{"topic": "orders", "partitions": 4, "records": 40}]}
    assert "orders" not in ask("topics").out
    assert ask("topics", "delete", "orders").code == 1
    absent = ask("topics", "delete", "orders", "--if-exists", "--yes")
    assert (absent.code, absent.out, absent.err) == (0, "", "not there: 'orders'\nnothing is to be deleted\n")
    some = ask("topics", "delete", "orders", "payments", "--if-exists", "--yes")
    assert (some.code, rows(some.out)[1:], some.err) == (0, [["payments", "1", "0"]], "not there: 'orders'\ndeleted\n")


def test_a_topic_is_described_with_what_is_configured(ask: Tool, filled: MockCluster) -> None:
    described(filled, ("retention.ms", "60000", 1), ("segment.bytes", "1", 5), ("\x1b]0;x\x07", "\x1b[2J", 1))
    told = ask("topics", "describe", "orders", "--offsets")
    assert told.code == 0
    assert "\n  retention.ms=60000\n" in told.out
    assert "segment.bytes" not in told.out
    assert "\x1b" not in told.out
    assert rows(told.out)[-1][-2:] == ["0", "10"]
    (found,) = json.loads(ask("topics", "describe", "orders", "--json").out)
    assert found["configs"]["retention.ms"] == "60000"
    assert [p["partition"] for p in found["partitions"]] == [0, 1, 2, 3]


def test_only_partitions_with_a_problem(ask: Tool, cluster: MockCluster) -> None:
    described(cluster)
    assert ask("topics", "describe", "--problems").out == ""
    cluster.stop_broker(cluster.leader("payments", 0))
    found = json.loads(ask("topics", "describe", "--problems", "--json").out)
    assert "payments" in [topic["topic"] for topic in found]
    assert {p["problem"] for topic in found for p in topic["partitions"]} <= {"no leader", "under-replicated"}


def test_who_may_not_see_the_configuration_sees_the_rest(ask: Tool, cluster: MockCluster) -> None:
    def refuse(request: Any) -> Any:
        results = [
            configs.DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, error_code=29, configs=[])
            for r in request.message.resources
        ]
        return configs.DescribeConfigsResponse(results=results)

    cluster.on("DescribeConfigs", Reply(refuse), times=None)
    (found,) = json.loads(ask("topics", "describe", "orders", "--json").out)
    assert found["configs"] is None
    assert len(found["partitions"]) == 4


# -- groups and lag ------------------------------------------------------------------------------------------------------------
def test_lag_of_all_groups_and_of_each_partition(ask: Tool, filled: MockCluster) -> None:
    assert rows(ask("lag").out) == [["GROUP", "STATE", "MEMBERS", "LAG"], ["billing", "Empty", "0", "6"]]
    told = ask("lag", "billing")
    assert rows(told.out)[1:] == [
        ["billing", "orders", "0", "4", "10", "6", "-", "-", "-"],
        ["billing", "orders", "1", "10", "10", "0", "-", "-", "-"],
        ["billing", "orders", "2", "-", "10", "-", "-", "-", "-"],
        ["billing", "orders", "3", "-", "10", "-", "-", "-", "-"],
        ["'billing':", "lag", "6;", "nothing", "committed", "of", "2", "partitions"],
    ]
    (found,) = json.loads(ask("lag", "billing", "--json").out)
    assert (found["lag"], [p["lag"] for p in found["partitions"]]) == (6, [6, 0, None, None])


def test_lag_of_one_topic(ask: Tool, filled: MockCluster) -> None:
    assert json.loads(ask("lag", "--topic", "payments", "--json").out) == []
    assert json.loads(ask("lag", "--topic", "orders", "--json").out)[0]["lag"] == 6


def test_lag_again_and_again_is_a_line_of_json_each(ask: Tool, filled: MockCluster) -> None:
    told = ask("lag", "--watch", "--count", 3, "--interval", 0.1, "--json")
    looks = [json.loads(line) for line in told.out.splitlines()]
    assert [look["groups"][0]["lag"] for look in looks] == [6, 6, 6]
    assert looks[0]["time"] < looks[2]["time"]


def test_a_group_beyond_the_end_of_the_log_is_told_and_hides_no_other_partitions_lag(
    ask: Tool, client: KafkaClient, filled: MockCluster
) -> None:
    client.admin().alter_group_offsets("billing", {("orders", 1): 55})
    (found,) = json.loads(ask("lag", "billing", "--json").out)
    assert (found["lag"], [p["lag"] for p in found["partitions"]]) == (6, [6, -45, None, None])
    told = ask("print_consumer_lag", "orders", "billing")
    assert rows(told.out)[1:3] == [["0", "6", "10", "4"], ["1", "-45", "10", "55"]]
    assert told.out.endswith("\n\n Total lag: 6 messages.\n")
    assert "committed 55 of orders:1, beyond the end of the log, 10" in told.err
    assert json.loads(ask("print_consumer_lag", "orders", "billing", "--json").out)["lag"] == 6
    for words in (("lag",), ("lag", "billing"), ("groups", "describe", "billing"), ("lag", "--watch", "--count", 1)):
        shown = ask(*words).out
        assert "'billing': committed 55 of orders:1, beyond the end of the log, 10\n" in shown
        assert "next: stop the group, and kafka-tools offsets reset billing --topic orders:1 --to-latest, or --to-earliest\n" in shown
    assert rows(ask("lag").out)[1] == ["billing", "Empty", "0", "6"]
    assert rows(ask("lag", "billing").out)[2][:6] == ["billing", "orders", "1", "55", "10", "-45"]


def test_options_of_the_list_need_no_word(ask: Tool, cluster: MockCluster) -> None:
    assert ask("topics", "--long").out == ask("topics", "list", "--long").out != ""
    told = ask("topics", "--long", "describe", "orders")
    assert (told.code, told.out) == (2, "")
    assert "are for list" in told.err


def test_a_next_step_has_the_name_that_is_known() -> None:
    assert "groups members billing lists" in "\n".join(_lines(NonEmptyGroup("x", group="billing"), ""))
    assert "acls list --topic orders" in "\n".join(_lines(TopicAuthorizationFailed("x", topic="orders"), ""))
    assert "acls list --topic TOPIC" in "\n".join(_lines(TopicAuthorizationFailed("x"), ""))


def test_watching_says_since_when_nobody_answers(ask: Tool, filled: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("lag", "--watch", "--count", 2, "--interval", 0.1).err == ""
    monkeypatch.setattr("gkafka.cli.lag.LATE_S", 1.0)
    filled.on("ListGroups", Delay(2.5), times=1)
    told = ask("lag", "--watch", "--count", 2, "--interval", 0.1, "--json")
    (line,) = told.err.splitlines()
    assert re.fullmatch(r"kafka-tools: the brokers do not answer since 2\S+Z; what is shown is from before", line)
    assert len(told.out.splitlines()) == 2


def test_what_would_be_deleted_of_a_group_is_shown_and_stays(ask: Tool, filled: MockCluster) -> None:
    told = ask("groups", "delete", "billing")
    _, (group, _, partitions) = (line.split() for line in told.out.splitlines())
    assert (told.code, group, int(partitions) > 0) == (0, "billing", True)
    assert told.err == "nothing is deleted yet: the same with --yes does it\n"
    assert ask("groups", "list").out.count("billing") == 1


def test_an_unknown_group_is_told_with_the_nearest(ask: Tool, filled: MockCluster) -> None:
    for words in (
        ("lag", "biling"),
        ("groups", "describe", "biling"),
        ("groups", "delete", "biling"),
        ("print_consumer_lag", "orders", "biling"),
    ):
        told = ask(*words)
        assert (told.code, told.out) == (1, "")
        assert (
            told.err
            == "kafka-tools: no group 'biling' in this cluster\n  next: did you mean 'billing'? kafka-tools groups lists what there is\n"
        )


def test_groups_are_listed_and_described(ask: Tool, filled: MockCluster) -> None:
    (found,) = json.loads(ask("groups", "--json").out)
    assert found["group"] == "billing"
    (told,) = json.loads(ask("groups", "describe", "--json").out)
    assert (told["state"], told["members"], [p["committed"] for p in told["partitions"]]) == ("Empty", 0, [4, 10, None, None])
    assert "lag 6" in ask("groups", "describe", "billing").out


# -- offsets -------------------------------------------------------------------------------------------------------------------
def test_offsets_of_topics_and_of_a_group(ask: Tool, filled: MockCluster) -> None:
    assert rows(ask("offsets", "list", "orders:1,2", "payments").out)[1:] == [
        ["orders", "1", "0", "10"],
        ["orders", "2", "0", "10"],
        ["payments", "0", "0", "0"],
    ]
    told = ask("offsets", "list", "--group", "billing")
    assert "\x1b" not in told.out
    assert "\\x1b[31mnote" in told.out
    committed = {
        (row["topic"], row["partition"]): row["committed"] for row in json.loads(ask("offsets", "list", "--group", "billing", "--json").out)
    }
    assert committed == {("orders", 0): 4, ("orders", 1): 10}
    assert ask("offsets", "list").code == 2


@pytest.mark.parametrize(
    ("rule", "after"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", 7), [7, 7]),
        (("--to-offset", 99), [10, 10]),
        (("--shift-by", -3), [1, 7]),
        (("--shift-by", 3), [7, 10]),
        (("--to-time", "1h"), [0, 0]),
        (("--to-time", "2999-01-01"), [10, 10]),
    ],
)
def test_a_reset_is_planned_and_with_yes_done(rule: tuple[object, ...], after: list[int], ask: Tool, filled: MockCluster) -> None:
    planned = ask("offsets", "reset", "billing", *rule, "--json")
    document = json.loads(planned.out)
    assert (planned.code, document["done"], [row["after"] for row in document["items"]]) == (0, False, after)
    assert [at.offset for at in filled.committed("billing").values()] == [4, 10]
    done = ask("offsets", "reset", "billing", *rule, "--yes")
    assert (done.code, done.err) == (0, "reset\n")
    assert [filled.committed("billing")["orders", p].offset for p in (0, 1)] == after


@pytest.mark.parametrize("text", ["orders,0,3\n\norders,2,5\n", '"orders",0,3\n"orders",2,5', "JSON"])
def test_a_reset_from_a_file(text: str, ask: Tool, filled: MockCluster, tmp_path: Path) -> None:
    entries = [{"topic": "orders", "partition": p, "committed": at} for p, at in ((0, 3), (1, None), (2, 5))]
    file = tmp_path / "offsets"
    file.write_text(json.dumps(entries) if text == "JSON" else text)
    assert ask("offsets", "reset", "billing", "--from-file", file, "--yes").code == 0
    assert {key[1]: at.offset for key, at in filled.committed("billing").items()} == {0: 3, 1: 10, 2: 5}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders,0",
        "orders,x,1",
        "orders,0,-1",
        "orders,0,1\norders,0,2",
        "[",
        '[{"topic": "orders"}, 3]',
        "orders,0,9" + 19 * "0",
        "orders,0," + 5000 * "9",
        "orders,\u0663,1",
        "\x00\xff",
    ],
)
def test_a_file_that_has_no_offsets_is_told(text: str, ask: Tool, filled: MockCluster, tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text(text)
    told = ask("offsets", "reset", "billing", "--from-file", file, "--yes")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"kafka-tools: {file}: ")
    assert "\n  next: " in told.err


@pytest.mark.parametrize(
    "rules", [(), ("--to-earliest", "--to-latest"), ("--to-time", "soon"), ("--to-offset", -1), ("--to-earliest", "--topic", "orders:x")]
)
def test_a_reset_that_says_not_where_to_is_not_understood(rules: tuple[object, ...], ask: Tool, filled: MockCluster) -> None:
    assert ask("offsets", "reset", "billing", *rules, "--yes").code == 2
    assert [at.offset for at in filled.committed("billing").values()] == [4, 10]


def test_a_group_that_nobody_knows_is_made_only_where_that_is_meant(ask: Tool, filled: MockCluster, client: KafkaClient) -> None:
    reset = ("offsets", "reset", "biling", "--topic", "payments", "--to-earliest")
    for more in ((), ("--yes",), ("--yes", "--json")):
        told = ask(*reset, *more)
        assert (told.code, told.out) == (1, "")
        assert told.err == (
            "kafka-tools: no group 'biling' in this cluster\n"
            "  next: did you mean 'billing'? kafka-tools groups lists what there is; --create makes a new one\n"
        )
    assert client.admin().list_group_offsets("biling") == {}
    assert ask(*reset, "--create").err == "nothing is reset yet: the same with --yes does it; 'biling' is a new group\n"
    assert ask(*reset, "--create", "--yes").err == "reset; 'biling' is a new group\n"
    assert client.admin().list_group_offsets("biling")["payments", 0].offset == 0
    assert json.loads(ask(*reset, "--json").out)["new"] is False


def test_behaviour_10_a_reset_by_pykafkas_name_says_that_nothing_was_committed(ask: Tool, filled: MockCluster) -> None:
    assert ask("reset_offsets", "orders", "unheard-of", "LATEST").err == "reset; nothing was committed of this topic before\n"
    assert ask("reset_offsets", "orders", "unheard-of", "LATEST").err == "reset\n"


def test_a_group_with_members_is_not_reset(ask: Tool, filled: MockCluster, client: KafkaClient) -> None:
    with client.get_consumer(["orders"], "billing") as consumer:
        filled.wait_for(lambda: consumer.consume(100))
        planned = ask("offsets", "reset", "billing", "--to-earliest")
        assert planned.code == 0
        assert "the group has 1 member: stop them first" in planned.err
        refused = ask("offsets", "reset", "billing", "--to-earliest", "--yes")
        assert refused.code == 1
        assert "group 'billing' has 1 member: stop them first" in refused.err
        assert "\n  next: stop its members first" in refused.err
        assert ask("groups", "delete", "billing", "--yes").code == 1
        (member,) = json.loads(ask("groups", "members", "billing", "--json").out)
        assert (member["count"], member["partitions"]) == (4, {"orders": [0, 1, 2, 3]})
        assert "orders(0,1,2,3)" in ask("groups", "members", "billing").out


# -- pykafka's -----------------------------------------------------------------------------------------------------------------
def test_behaviour_10_offsets_lag_and_topics_are_looked_at_by_pykafkas_names(ask: Tool, filled: MockCluster) -> None:
    described(filled)
    assert rows(ask("print_topics").out) == [["TOPIC", "PARTITIONS", "REPLICATION"], ["orders", "4", "3"], ["payments", "1", "3"]]
    assert ask("desc_topic", "orders").out.startswith("Topic: orders\nPartitions: 4\nReplicas: 3\n")
    assert rows(ask("print_offsets", "orders", "EARLIEST").out)[1:] == [[str(p), "0"] for p in range(4)]
    assert rows(ask("print_offsets", "orders", "latest").out)[1:] == [[str(p), "10"] for p in range(4)]
    assert rows(ask("print_offsets", "orders", "2020-01-01T00:00:00").out)[1:] == [[str(p), "0"] for p in range(4)]
    lag = ask("print_consumer_lag", "orders", "billing").out
    assert rows(lag)[1:3] == [["0", "6", "10", "4"], ["1", "0", "10", "10"]]
    assert lag.endswith("\n\n Total lag: 6 messages.\n")


def test_behaviour_10_offsets_are_reset_by_pykafkas_name(ask: Tool, filled: MockCluster) -> None:
    assert ask("reset_offsets", "orders", "billing", "LATEST").code == 0
    assert {p: at.offset for (_, p), at in filled.committed("billing").items()} == dict.fromkeys(range(4), 10)
    assert ask("reset_offsets", "orders", "billing", "2020-01-01T00:00:00").code == 0
    assert {p: at.offset for (_, p), at in filled.committed("billing").items()} == dict.fromkeys(range(4), 0)
    assert ask("reset_offsets", "orders", "billing", "yesterday").code == 2


def test_topics_are_made_and_deleted_by_pykafkas_names(ask: Tool, cluster: MockCluster) -> None:
    assert ask("-o", "0.10.1", "create_topic", "made", "-p", 2, "-r", 1, "-c", '{"retention.ms": "60000"}').code == 0
    request = cluster.requests("CreateTopics")[-1].message
    assert [(t.name, t.num_partitions, {c.name: c.value for c in t.configs}) for t in request.topics] == [
        ("made", 2, {"retention.ms": "60000"})
    ]
    assert ask("create_topic", "placed", "-a", '{"0": [1, 2], "1": [2, 3]}').code == 0
    assert ask("create_topic", "x", "-c", "[1]").code == 2
    assert ask("create_topic", "x", "-p", 0).code == 2
    assert ask("delete_topic", "made").code == 0
    assert "made" not in ask("topics").out


def test_consume_topic_writes_new_records(ask: Tool, cluster: MockCluster, client: KafkaClient, tmp_path: Path) -> None:
    import threading

    told: list[Any] = []
    out = tmp_path / "records"
    worker = threading.Thread(target=lambda: told.append(ask("consume_topic", "payments", "-l", 2, "-o", out)))
    worker.start()
    cluster.wait_for(lambda: cluster.count("Fetch"))
    producer = client.get_producer()
    for value in ("eins", "zwei"):
        producer.produce("payments", value.encode())
    producer.flush()
    worker.join(60)
    assert told[0].code == 0
    assert out.read_text() == "eins\nzwei\n"


# -- acls and configs ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def guarded() -> Iterator[MockCluster]:
    """A broker that is asked for rules and configurations; tests say what it answers."""
    limits = {
        "DescribeAcls": (0, 3),
        "CreateAcls": (0, 3),
        "DeleteAcls": (0, 3),
        "DescribeConfigs": (0, 4),
        "IncrementalAlterConfigs": (0, 1),
    }
    with MockCluster(1, {"orders": 1}, limits=limits) as cluster:
        yield cluster
        assert not cluster.errors, cluster.errors


@pytest.fixture
def act(tool: Tool, guarded: MockCluster) -> Tool:
    return lambda *words: tool(*words, "-b", guarded.bootstrap)


def told_of(cluster: MockCluster) -> None:
    """One rule: alice may read orders."""
    rule = access.AclDescription(principal="User:alice\x1b[0m", host="*", operation=3, permission_type=3)
    resource = access.DescribeAclsResource(resource_type=2, resource_name="orders", pattern_type=3, acls=[rule])
    cluster.on("DescribeAcls", Reply(lambda _: access.DescribeAclsResponse(resources=[resource])), times=None)


def test_rules_are_listed(act: Tool, guarded: MockCluster) -> None:
    told_of(guarded)
    told = act("acls")
    assert rows(told.out)[1] == ["topic", "orders", "literal", "User:alice\\x1b[0m", "allow", "read", "*"]
    (rule,) = json.loads(act("acls", "list", "--topic", "orders", "--operation", "read", "--json").out)
    assert rule["principal"] == "User:alice\x1b[0m"
    asked = guarded.requests("DescribeAcls")[-1].message
    assert (asked.resource_type_filter, asked.resource_name_filter, asked.operation) == (2, "orders", 3)


def test_rules_are_made_one_for_each_operation(act: Tool, guarded: MockCluster) -> None:
    guarded.on("CreateAcls", Reply(lambda r: access.CreateAclsResponse(results=[access.AclCreationResult() for _ in r.message.creations])))
    words = ("--principal", "User:bob", "--group", "g-", "--prefixed", "--operation", "read", "--operation", "describe", "--deny")
    told = act("acls", "create", *words)
    assert (told.code, told.err) == (0, "created\n")
    made = guarded.requests("CreateAcls")[0].message.creations
    assert [
        (a.resource_type, a.resource_name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type) for a in made
    ] == [
        (3, "g-", 4, "User:bob", "*", 3, 2),
        (3, "g-", 4, "User:bob", "*", 8, 2),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--topic", "orders", "--operation", "read"),
        ("create", "--principal", "User:a", "--operation", "read"),
        ("create", "--principal", "User:a", "--topic", "a", "--group", "b", "--operation", "read"),
        ("create", "--principal", "User:a", "--topic", "a"),
        ("delete", "--yes"),
    ],
)
def test_rules_that_are_not_said_whole_are_not_understood(words: tuple[str, ...], act: Tool, guarded: MockCluster) -> None:
    assert act("acls", *words).code == 2
    assert guarded.count("CreateAcls") + guarded.count("DeleteAcls") == 0


def test_rules_are_deleted_only_with_yes(act: Tool, guarded: MockCluster) -> None:
    told_of(guarded)
    planned = act("acls", "delete", "--topic", "orders")
    assert (planned.code, planned.err) == (0, "nothing is deleted yet: the same with --yes does it\n")
    assert guarded.count("DeleteAcls") == 0
    gone = access.DeleteAclsMatchingAcl(
        resource_type=2, resource_name="orders", pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
    )
    guarded.on(
        "DeleteAcls", Reply(lambda _: access.DeleteAclsResponse(filter_results=[access.DeleteAclsFilterResult(matching_acls=[gone])]))
    )
    done = json.loads(act("acls", "delete", "--topic", "orders", "--yes", "--json").out)
    assert (done["done"], done["items"][0]["principal"]) == (True, "User:a")


def test_rules_that_were_made_or_deleted_are_shown_beside_those_that_were_not(act: Tool, guarded: MockCluster) -> None:
    results = [access.AclCreationResult(), access.AclCreationResult(error_code=42, error_message="no such thing")]
    guarded.on("CreateAcls", Reply(lambda _: access.CreateAclsResponse(results=results)))
    told = act("acls", "create", "--principal", "User:bob", "--topic", "orders", "--operation", "read", "--operation", "write")
    assert told.code == 3, told
    assert [row[5] for row in rows(told.out)[1:]] == ["read"]
    assert told.err.splitlines()[1].startswith("kafka-tools: write by User:bob: CreateAcls")
    assert "no such thing" in told.err
    which: dict[str, Any] = {"resource_type": 2, "resource_name": "orders", "pattern_type": 3, "principal": "User:a", "host": "*"}
    gone = access.DeleteAclsMatchingAcl(**which, operation=3, permission_type=3)
    kept = access.DeleteAclsMatchingAcl(**which, operation=4, permission_type=3, error_code=42, error_message="not this one")
    guarded.on(
        "DeleteAcls",
        Reply(lambda _: access.DeleteAclsResponse(filter_results=[access.DeleteAclsFilterResult(matching_acls=[gone, kept])])),
    )
    told = act("acls", "delete", "--topic", "orders", "--yes")
    assert told.code == 3, told
    assert [row[5] for row in rows(told.out)[1:]] == ["read"]
    assert "not this one" in told.err


def test_brokers_without_an_authorizer_are_told(act: Tool, guarded: MockCluster) -> None:
    guarded.on("DescribeAcls", Reply(lambda _: access.DescribeAclsResponse(error_code=54)), times=None)
    told = act("acls")
    assert told.code == 1
    assert told.err.endswith("  next: the brokers have no authorizer: set authorizer.class.name there\n")


@pytest.mark.parametrize("name", ["listener.name.x.ssl.key.password", "sasl.jaas.config", "listener.name.y.plain.sasl.jaas.config"])
def test_a_secret_that_is_not_set_yet_is_no_argument_either(name: str, act: Tool, guarded: MockCluster) -> None:
    described(guarded, ("retention.ms", "60000", 1))
    told = act("configs", "alter", "topic", "t", f"{name}=s3cr3t")
    assert told.code == 2
    assert f"{name}=@FILE" in told.err
    assert "s3cr3t" not in told.out + told.err


def alterable(cluster: MockCluster, topic: str) -> None:
    """It takes what the topic's configurations are changed to."""
    told = configs.AlterConfigsResourceResponse(resource_type=2, resource_name=topic)
    cluster.on("IncrementalAlterConfigs", Reply(lambda _: configs.IncrementalAlterConfigsResponse(responses=[told])), times=None)


@pytest.mark.parametrize("option", ["--append", "--subtract"])
@pytest.mark.parametrize(("name", "sensitive"), [("ssl.keystore.password", False), ("password.encoder.keyfile", True)])
def test_a_secret_is_added_to_no_list_on_the_command_line(
    option: str, name: str, sensitive: bool, act: Tool, guarded: MockCluster, tmp_path: Path
) -> None:
    """It went on to connect, and to the broker."""
    described(guarded, ("retention.ms", "60000", 1), *([(name, None, 4)] if sensitive else []))
    alterable(guarded, "t")
    told = act("configs", "alter", "topic", "t", option, f"{name}=s3cr3t")
    assert told.code == (1 if sensitive else 2)
    assert f"write it to a file, and give {option} {name}=@FILE" in told.err
    assert "s3cr3t" not in told.out + told.err
    assert bool(guarded.requests("DescribeConfigs")) is sensitive
    file = tmp_path / "secret"
    file.write_text("s3cr3t\n")
    told = act("configs", "alter", "topic", "t", option, f"{name}=@{file}")
    assert (told.code, told.err) == (0, "changed\n")
    assert "s3cr3t" not in told.out
    (resource,) = guarded.requests("IncrementalAlterConfigs")[0].message.resources
    assert [(c.config_operation, c.value) for c in resource.configs] == [(2 if option == "--append" else 3, "s3cr3t")]


@pytest.mark.parametrize("name", ["my.reporter.api.token", "reporter.aws.secret.access.key", "plugin.credentials", "some.passphrase"])
def test_what_a_plug_in_is_given_under_a_name_like_a_secrets_is_shown_nowhere(
    name: str, act: Tool, guarded: MockCluster, tmp_path: Path
) -> None:
    """It was taken on the command line, and printed."""
    described(guarded, ("retention.ms", "60000", 1))
    alterable(guarded, "t")
    told = act("configs", "alter", "topic", "t", f"{name}=s3cr3t")
    assert told.code in (1, 2)
    assert f"{name}=@FILE" in told.err
    assert not guarded.requests("IncrementalAlterConfigs")
    file = tmp_path / "secret"
    file.write_text("s3cr3t\n")
    told = act("configs", "alter", "topic", "t", f"{name}=@{file}")
    assert (told.code, told.err) == (0, "changed\n")
    assert "s3cr3t" not in told.out


def test_of_what_was_read_from_a_file_the_file_is_shown(act: Tool, guarded: MockCluster, tmp_path: Path) -> None:
    described(guarded, ("retention.ms", "60000", 1))
    alterable(guarded, "t")
    file = tmp_path / "value"
    file.write_text("s3cr3t\n")
    assert rows(act("configs", "alter", "topic", "t", f"any=@{file}").out)[1:] == [["any", "-", f"@{file}"]]


def test_a_configuration_is_shown_without_what_nobody_set_and_without_secrets(act: Tool, guarded: MockCluster) -> None:
    described(guarded, ("retention.ms", "60000", 1), ("segment.bytes", "1", 5), ("ssl.key.password", "x1y2", 4))
    told = act("configs", "describe", "topic", "orders")
    assert rows(told.out)[1:] == [["retention.ms", "60000", "topic", "no"], ["ssl.key.password", "***", "static_broker", "no"]]
    assert "x1y2" not in act("configs", "describe", "broker", "1", "--json", "--all").out
    assert "segment.bytes" in act("topics", "config", "orders", "--all").out


def test_a_configuration_is_changed(act: Tool, guarded: MockCluster, tmp_path: Path) -> None:
    described(guarded, ("retention.ms", "60000", 1), ("segment.ms", "5", 1), ("ssl.key.password", None, 4))
    alterable(guarded, "orders")
    file = tmp_path / "secret"
    file.write_text("geheim\n")
    words = ("retention.ms=1", f"ssl.key.password=@{file}", "--append", "cleanup.policy=compact", "--delete", "segment.ms")
    told = act("configs", "alter", "topic", "orders", *words)
    assert (told.code, told.err) == (0, "changed\n")
    assert "geheim" not in told.out
    (resource,) = guarded.requests("IncrementalAlterConfigs")[0].message.resources
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [
        ("retention.ms", 0, "1"),
        ("ssl.key.password", 0, "geheim"),
        ("cleanup.policy", 2, "compact"),
        ("segment.ms", 1, None),
    ]
    refused = act("configs", "alter", "topic", "orders", "ssl.key.password=geheim")
    assert refused.code == 2
    assert "give ssl.key.password=@FILE" in refused.err
    assert "geheim" not in refused.err


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("retention.ms", 0, ["changed"]),
        ("segment.bytes", 0, ["not set, and left at the default: 'segment.bytes'", "nothing was changed"]),
        (
            "retention.mz",
            1,
            [
                "kafka-tools: --delete: topic 'orders' has no 'retention.mz'",
                "  next: did you mean 'retention.ms'? kafka-tools configs describe topic orders --all lists what there is",
            ],
        ),
    ],
)
def test_what_is_not_set_cannot_be_taken_back(name: str, code: int, said: list[str], act: Tool, guarded: MockCluster) -> None:
    described(guarded, ("retention.ms", "60000", 1), ("segment.bytes", "1", 5))
    answer = configs.AlterConfigsResourceResponse(resource_type=2, resource_name="orders")
    guarded.on("IncrementalAlterConfigs", Reply(lambda r: configs.IncrementalAlterConfigsResponse(responses=[answer])), times=None)
    told = act("configs", "alter", "topic", "orders", "--delete", name)
    assert (told.code, told.err.splitlines()) == (code, said)


def test_offsets_of_a_group_that_nobody_knows_are_a_failure(ask: Tool, cluster: MockCluster) -> None:
    for words in (("orders",), ("orders:1",), ()):
        told = ask("offsets", "list", *words, "--group", "nobody")
        assert (told.code, told.out) == (1, "")
        assert told.err.splitlines()[0] == "kafka-tools: no group 'nobody' in this cluster"
        assert "kafka-tools groups lists what there is" in told.err


def test_a_partition_that_is_named_twice_is_copied_and_told_once(ask: Tool) -> None:
    told = ask("copy", "orders", "payments", "-p", 2, "-p", 2)
    assert (told.code, [row[0] for row in rows(told.out)[1:]]) == (0, ["2"])


@pytest.mark.parametrize("words", ["topics list", "offsets list orders", "configs describe topic orders"])
def test_options_of_the_connection_and_json_stand_before_a_subcommand_too(words: str, tool: Tool, cluster: MockCluster) -> None:
    described(cluster, ("retention.ms", "60000", 1))
    group, *rest = words.split()
    told = tool(group, "-b", cluster.bootstrap, "--json", *rest)
    assert told.code == 0, told
    assert json.loads(told.out)


@pytest.mark.parametrize(
    "words", [("topic",), ("topic", "orders"), ("topic", "orders", "a"), ("topic", "orders", "a=1", "--delete", "a"), ("disk", "1", "a=1")]
)
def test_a_change_that_says_nothing_is_not_understood(words: tuple[str, ...], act: Tool) -> None:
    assert act("configs", "alter", *words).code == 2
