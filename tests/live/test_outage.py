"""kafka-tools in the hands of an operator in an outage, on a real Kafka: every command that only looks ends in time, and says what is true."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from gkafka.cli.app import PROG, tools
from tests.cli.terminal import piped
from tests.kit.clock import now
from tests.live.outage import Outage, outage, start
from tests.live.pool import POOL

TIMEOUT_S = 5
LIMIT_S = 30.0
AT_ONCE = 2


class Look(NamedTuple):
    """A command that only looks. out: beginnings of lines that it prints, blanks as one; err: what its errors say, none at all if it is empty."""

    words: str
    code: int
    out: tuple[str, ...]
    err: tuple[str, ...] = ()


NO_LEADER = "orders-2 has no leader at the moment"
DENIED = "error 29: Topic authorization failed"
LOOKS = (
    Look("topics", 0, ("orders 6", "payments 2")),
    Look("topics list --long", 0, ("orders 6 1 2", "payments 2 3 2")),
    Look("topics describe orders", 0, ("0 1 1 1", "2 - 3 - 3 no leader", "5 - 3 - 3 no leader")),
    Look("topics describe --problems", 0, ("2 - 3 - 3 no leader",)),
    Look("topics describe orders --offsets", 0, ("0 1 1 1 - 0 10 -", "5 - 3 - 3 - - no leader")),
    Look("topics describe orders secret", 3, ("2 - 3 - 3 no leader",), (f"secret: {DENIED}",)),
    Look("topics describe gone", 1, (), ("no topic 'gone' in this cluster",)),
    Look("topics config orders", 0, ("min.insync.replicas 1 topic",)),
    Look("groups", 0, ("billing Empty", "mixed Empty", "moving PreparingRebalance", "open Empty")),
    Look("groups list", 0, ("billing Empty", "moving PreparingRebalance")),
    Look("groups describe", 3, ("moving PreparingRebalance", "orders 0 7 10 3", "orders 2 7 - -"), (NO_LEADER,)),
    Look("groups members", 0, ("moving ",)),
    Look("lag", 3, ("billing Empty 0 12 2", "moving PreparingRebalance", "open Empty 0 8 2"), (NO_LEADER,)),
    Look(
        "lag billing",
        3,
        ("billing orders 0 7 10 3", "billing orders 2 7 - -", "'billing': lag 12; not known of 2 partitions"),
        (NO_LEADER,),
    ),
    Look("lag open moving", 3, ("open orders 0 2 10 8",), (NO_LEADER,)),
    Look("lag mixed", 3, ("mixed orders 1 10 10 0", "mixed payments 0 10"), (NO_LEADER,)),
    Look("offsets list orders", 3, ("orders 0 0 10", "orders 2 - -"), (NO_LEADER,)),
    Look("offsets list --group billing", 3, ("orders 0 7 0 10", "orders 2 7 - -"), (NO_LEADER,)),
    Look("offsets list secret", 1, (), (DENIED,)),
    Look("acls", 0, ("topic secret literal User:ops deny all *",)),
    Look("acls list --topic secret", 0, ("topic secret",)),
    Look("configs describe topic orders", 0, ("min.insync.replicas 1 topic",)),
    Look("doctor", 1, ("fail connect",)),
    Look("doctor --topic orders --group open", 1, ("fail topic topic 'orders': 2 of 6 partitions have no leader", "ok group group 'open'")),
    Look("doctor --topic secret", 1, ("next: this client needs an ACL that allows Describe on topic 'secret'",)),
    Look("print_topics", 0, ("orders 6 1", "payments 2 3")),
    Look("desc_topic orders", 0, ("2 - 3 -",)),
    Look("print_offsets orders LATEST", 3, ("0 10", "2 -"), (NO_LEADER,)),
    Look("print_consumer_lag orders billing", 3, ("0 3 10 7", "2 - - 7"), (NO_LEADER,)),
    Look("print_managed_consumer_groups orders", 0, ("Topic: orders",)),
    Look("version", 0, ("gkafka",)),
    Look("completion bash", 0, ()),
    Look("docs", 0, ("options",)),
)
RECORDS = (
    Look("consume orders", 3, ("9",), (NO_LEADER,)),
    Look("consume orders -p 2", 1, (), (NO_LEADER,)),
    Look("consume orders --last 2", 3, ("8", "9"), (NO_LEADER,)),
    Look("consume payments", 0, ("9",)),
    Look("consume secret", 1, (), (DENIED,)),
    Look("copy orders payments", 1, (), (NO_LEADER,)),
    Look("copy moved spread", 1, (), ("spread-2 has no leader at the moment",)),
    Look("copy payments spread --partition-by key", 0, ("0 30", "1 30"), ("60 records copied from payments to spread",)),
    Look("bench consume --topic orders --records 10", 1, (), (NO_LEADER,)),
    Look("bench produce --topic spread --records 10", 0, ("produce 10",)),
    Look("bench latency --topic spread --records 2", 0, ("acknowledged 2",)),
    Look("produce orders -p 2 --delivery-timeout 2", 1, (), ("orders-2",)),
    Look("offsets reset billing --to-latest", 3, ("orders 0 7 10",), (NO_LEADER,)),
    Look("offsets delete billing --topic orders", 0, ("orders 2 7",), ("nothing is forgotten yet",)),
    Look("groups delete billing", 0, ("billing Empty 6",), ("nothing is deleted yet",)),
    Look("groups delete moving", 1, (), ("group 'moving' has ",)),
    Look("topics delete orders", 0, ("orders 6 -",), ("nothing is deleted yet",)),
    Look("topics partitions payments 4", 0, ("payments 2 4",), ("nothing is added yet",)),
    Look("topics create another -p 1 -r 2 --dry-run", 0, ("another no",), ("nothing was created",)),
    Look("acls delete --topic secret", 0, ("topic secret",), ("nothing is deleted yet",)),
    Look("reset_offsets orders billing LATEST", 3, ("orders 0 ", "orders 4 "), (NO_LEADER,)),
    Look("delete_topic gone", 1, (), ("no topic 'gone' in this cluster",)),
)
"""Commands that read or write records, or change something: as far as a look goes, or where they cannot."""
ELSEWHERE = {"consume_topic", "configs alter", "acls create", "create_topic"}
"""These wait for new records, or only send what the controller takes as always."""


def leaves(group: click.Group, ctx: click.Context, before: str = "") -> Iterator[str]:
    """Every command by its words."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from leaves(command, ctx, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_has_a_row() -> None:
    rows = [look.words for look in (*LOOKS, *RECORDS)]
    named = {
        command
        for command in leaves(tools, click.Context(tools, info_name=PROG))
        if any(f"{row} ".startswith(f"{command} ") for row in rows)
    }
    assert set(leaves(tools, click.Context(tools, info_name=PROG))) - named == ELSEWHERE


@pytest.fixture(scope="module")
def told_in_an_outage() -> Iterator[Outage]:
    with ExitStack() as ends:
        cluster = POOL.keep("outage", start, lambda cluster: cluster, 3)
        yield ends.enter_context(outage(cluster))
        cluster.restart(3)


def test_each_ends_in_time_and_says_what_is_true(told_in_an_outage: Outage, tmp_path: Path) -> None:
    """The seconds of each are printed: pytest -s shows them."""
    file = tmp_path / "client.properties"
    file.write_text(told_in_an_outage.properties)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [text for text in pool.map(lambda look: tried(look, told_in_an_outage.hosts, file), (*LOOKS, *RECORDS)) if text]
    assert not wrong, "\n\n".join(wrong)


def tried(look: Look, hosts: str, file: Path) -> str:
    """What is wrong with how it went, "" for nothing."""
    began = now()
    where = () if look.words.startswith(("version", "completion", "docs")) else ("-b", hosts, "-c", file, "--timeout", TIMEOUT_S)
    told = piped(*look.words.split(), *where, text="x\n")
    took = now() - began
    print(f"{took:5.1f} s  {look.words}")
    shown = [" ".join(line.split()) for line in told.stdout.splitlines()]
    problems = [f"exit code {told.returncode}, not {look.code}"] if told.returncode != look.code else []
    problems += [f"no line {text!r}" for text in look.out if not any(line.startswith(text) for line in shown)]
    problems += [f"does not say {text!r}" for text in look.err if text not in told.stderr]
    problems += [f"says {text!r}" for text in ("Traceback", "unexpected") if text in told.stderr]
    problems += ["says something"] if told.stderr and not look.err else []
    problems += [f"took {took:.1f} s"] if took >= LIMIT_S else []
    return f"{look.words}: {'; '.join(problems)}\n{told.stdout}{told.stderr}" if problems else ""
