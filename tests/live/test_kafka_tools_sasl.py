"""kafka-tools with the file of properties that Kafka's own scripts take: TLS and SCRAM on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, piped
from tests.live.saslkafka import PASSWORD, SECURITY, USER, SaslKafka, sasl_kafka
from tests.live.scripts import Scripts


@pytest.fixture(scope="module")
def kafka() -> SaslKafka:
    sasl = sasl_kafka()
    sasl.cluster.create_topic("secured", 2)
    return sasl


@pytest.fixture
def hosts(kafka: SaslKafka) -> str:
    return f"localhost:{kafka.port('SECURE')}"


def properties(kafka: SaslKafka, folder: Path, password: str = PASSWORD) -> Path:
    file = folder / "client.properties"
    file.write_text(
        "# for kafka-topics.sh --command-config\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SECURITY}.scram.ScramLoginModule required \\\n  username="{USER}" \\\n  password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.certs.ca}\n"
    )
    return file


def test_a_file_of_kafkas_scripts_works_as_it_is(kafka: SaslKafka, hosts: str, tmp_path: Path) -> None:
    file = properties(kafka, tmp_path)
    listed = Scripts(kafka.cluster, hosts).run("topics", "--command-config", str(file), "--list").split()
    theirs = {topic for topic in listed if not topic.startswith("__")}
    told = piped("topics", "-b", hosts, "--command-config", file)
    assert (told.returncode, told.stderr) == (0, "")
    assert [line.split()[0] for line in told.stdout.splitlines()[1:]] == sorted(theirs)
    assert "secured" in theirs


def test_a_wrong_password_is_told_with_the_next_step_and_never_shown(kafka: SaslKafka, hosts: str, tmp_path: Path) -> None:
    told = piped("topics", "-b", hosts, "-c", properties(kafka, tmp_path, "wr0ng-pass"))
    assert (told.returncode, told.stdout) == (1, "")
    assert "wr0ng-pass" not in told.stderr
    first, second = told.stderr.splitlines()
    assert "authentication" in first.lower()
    assert second.startswith("  next: check the user, the password")


def test_an_authority_that_is_not_trusted_is_told_with_the_next_step(kafka: SaslKafka, hosts: str) -> None:
    told = piped("topics", "-b", hosts, "--security-protocol", "SSL")
    assert (told.returncode, told.stdout) == (1, "")
    first, second = told.stderr.splitlines()
    assert "certificate" in first
    assert second.startswith("  next: ")


def test_the_password_is_asked_for_or_comes_from_a_file_of_its_own(kafka: SaslKafka, hosts: str, tmp_path: Path) -> None:
    words = ("topics", "-b", hosts, "--security-protocol", "SASL_SSL", "--sasl-mechanism", "SCRAM-SHA-256", "--ssl-cafile", kafka.certs.ca)
    with Terminal(*words, "--sasl-username", USER) as terminal:
        terminal.wait_for(f"Password of {USER}: ")
        terminal.press(PASSWORD + "\n")
        code, shown = terminal.end()
    assert code == 0
    assert "secured" in shown
    assert PASSWORD not in shown
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    told = piped(*words, "--sasl-username", USER, "--sasl-password-file", file)
    assert (told.returncode, told.stderr) == (0, "")
    assert "secured" in told.stdout
