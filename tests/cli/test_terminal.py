"""kafka-tools as a person sees it: on a pseudo-terminal, on brokers in the test's process."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gkafka import KafkaClient
from gkafka.cli.progress import TAKE_AWAY
from gkafka.testing import MockCluster, Sasl
from tests.cli.terminal import PLAIN, Terminal, piped

CLEAR = "\x1b[H\x1b[2J"
BOLD = "\x1b[1m"


def commit(cluster: MockCluster, group: str, offset: int) -> None:
    with KafkaClient(cluster.bootstrap, handler="threading") as client:
        client.admin().alter_group_offsets(group, {("orders", 0): offset})


def test_a_table_has_colours_on_a_terminal_and_none_in_a_pipe(cluster: MockCluster) -> None:
    with Terminal("topics", "-b", cluster.bootstrap) as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert BOLD in shown
    told = piped("topics", "-b", cluster.bootstrap)
    assert "\x1b" not in told.stdout
    assert [line.split() for line in told.stdout.splitlines()] == [["TOPIC", "PARTITIONS"], ["orders", "4"], ["payments", "1"]]


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_has_none(env: dict[str, str], cluster: MockCluster) -> None:
    with Terminal("topics", "-b", cluster.bootstrap, env=env) as terminal:
        assert "\x1b" not in terminal.end()[1].replace(TAKE_AWAY.decode(), ""), "but for a line of progress, on a busy machine"


def test_watching_draws_the_terminal_anew_and_ctrl_c_ends_it(cluster: MockCluster) -> None:
    commit(cluster, "billing", 0)
    with Terminal("lag", "--watch", "--interval", 0.1, "-b", cluster.bootstrap) as terminal:
        shown = terminal.wait_for(CLEAR, 3)
        assert "\x1b[3J" not in shown  # what was there before the command can be scrolled back to
        assert "billing" in shown
        terminal.press("\x03")
        code, shown = terminal.end()
    assert code == 0
    assert "Traceback" not in shown


def test_watching_goes_on_when_brokers_are_gone_for_a_while(cluster: MockCluster) -> None:
    commit(cluster, "billing", 0)
    with Terminal("lag", "--watch", "--interval", 0.1, "-b", cluster.bootstrap, "--timeout", 2) as terminal:
        terminal.wait_for("billing")
        for broker in cluster.brokers:
            cluster.stop_broker(broker)
        terminal.wait_for("kafka-tools: ")
        for broker in cluster.brokers:
            cluster.start_broker(broker)
        seen = terminal.shown.count("billing")
        terminal.wait_for("billing", seen + 2)
        terminal.press("\x03")
        assert terminal.end()[0] == 0


def test_what_a_group_calls_itself_does_not_reach_the_terminal(cluster: MockCluster) -> None:
    commit(cluster, "\x1b]0;owned\x07\x1b[2J", 0)
    with Terminal("groups", "-b", cluster.bootstrap, env=PLAIN) as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert "\\x1b]0;owned\\x07\\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_the_password_is_asked_for_and_not_shown() -> None:
    with MockCluster(1, {"orders": 1}, sasl=Sasl({"alice": "geheim"})) as cluster:
        words = ("topics", "-b", cluster.bootstrap, "--security-protocol", "sasl_plaintext", "--sasl-mechanism", "SCRAM-SHA-256")
        with Terminal(*words, "--sasl-username", "alice") as terminal:
            terminal.wait_for("Password of alice: ")
            terminal.press("geheim\n")
            code, shown = terminal.end()
        assert code == 0
        assert "orders" in shown
        assert "geheim" not in shown
        with Terminal(*words, "--sasl-username", "alice", env={"KAFKA_SASL_PASSWORD": "wrong"}) as terminal:
            code, shown = terminal.end()
        assert code == 1
        assert "wrong" not in shown
        assert "next: check the user, the password" in shown
        with Terminal(*words, "--sasl-username", "alice") as terminal:
            terminal.wait_for("Password of alice: ")
            terminal.press("\x03")
            assert terminal.end()[0] == 130
        told = piped(*words, "--sasl-username", "alice")
        assert told.returncode == 2
        assert "--sasl-username without --sasl-password-file" in told.stderr


@pytest.fixture
def hears_hangups() -> Iterator[None]:
    """Programs that are started: also where the tests themselves are to outlive a terminal, which programs would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hears_hangups")
def test_a_closed_terminal_ends_it(cluster: MockCluster) -> None:
    terminal = Terminal("lag", "--watch", "--interval", 0.1, "-b", cluster.bootstrap)
    with terminal:
        terminal.wait_for("GROUP")
        terminal._process.send_signal(signal.SIGHUP)
        assert terminal._process.wait(60) == -signal.SIGHUP
