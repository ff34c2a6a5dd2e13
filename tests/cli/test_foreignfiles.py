"""Files of --config that were made for other clients: Confluent Cloud's, librdkafka's, Amazon MSK's. What means nothing here is told in one note."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gkafka.testing import MockCluster, Sasl
from tests.cli.running import failure, tool

File = Callable[[str], str]
CONFLUENT = """# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers={hosts}
security.protocol=SASL_PLAINTEXT
allow.plaintext.credentials=true
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='s3cret';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips

# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000

# Best practice for Kafka producer to prevent data loss
acks=all

client.id=ccloud-java-client-1
# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-1.example
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=A:hunter2
"""


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(text: str) -> str:
        (tmp_path / "client.properties").write_text(text)
        return str(tmp_path / "client.properties")

    return write


@pytest.fixture
def guarded() -> Iterator[MockCluster]:
    with MockCluster(topics={"t": 1, "u": 1}, auto_create=False, sasl=Sasl({"KEY": "s3cret"})) as made:
        yield made


def test_the_file_of_confluents_console_is_read_and_one_note_says_what_is_not(guarded: MockCluster, file: File) -> None:
    config = file(CONFLUENT.format(hosts=guarded.bootstrap))
    for command, words in (("topics", ["list"]), ("produce", ["t"]), ("consume", ["t"]), ("copy", ["t", "u", "--no-group"])):
        outcome = tool(command, *words, "-c", config, stdin=b"a\n")
        notes = [line for line in outcome.err.splitlines() if "no effect here" in line]
        assert notes == [
            f"{config}: no effect here: schema.registry.url, basic.auth.credentials.source, basic.auth.user.info (gkafka asks no schema registry)"
        ]
        assert "hunter2" not in outcome.err
        assert outcome.code == 0, outcome.err


def test_a_pasted_login_line_may_have_foreign_options(guarded: MockCluster, file: File) -> None:
    line = (
        'kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required serviceName="kafka" username="KEY" password="s3cret";'
    )
    config = file(
        f"bootstrap.servers={guarded.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={line}\n"
    )
    outcome = tool("topics", "-c", config)
    assert (outcome.code, outcome.lines[1].split()) == (0, [b"t", b"1"]), outcome.err
    assert "serviceName in sasl.jaas.config" in outcome.err
    assert outcome.err.count("\n") == 1


MSK = "bootstrap.servers={hosts}\nsecurity.protocol=SASL_PLAINTEXT\nallow.plaintext.credentials=true\n"
IAM = "software.amazon.msk.auth.iam"


@pytest.mark.parametrize(
    ("lines", "signed"),
    [
        (
            f"sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={IAM}.IAMLoginModule required awsDebugCreds=true;\n"
            f"sasl.client.callback.handler.class={IAM}.IAMClientCallbackHandler\n",
            ("eu-west-1",),
        ),
        (
            f'sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={IAM}.IAMLoginModule required awsProfileName="p";\n'
            f"sasl.client.callback.handler.class={IAM}.IAMClientCallbackHandler\n",
            ("eu-west-1", "p"),
        ),
        (
            "sasl.mechanism=OAUTHBEARER\nsasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            f'awsRoleArn="arn:r" awsRoleSessionName="s";\nsasl.login.callback.handler.class={IAM}.IAMOAuthBearerLoginCallbackHandler\n'
            f"sasl.client.callback.handler.class={IAM}.IAMOAuthBearerLoginCallbackHandler\n",
            ("eu-west-1", "arn:r", "s"),
        ),
    ],
    ids=["IAM", "profile", "OAuth and a role"],
)
def test_amazons_four_lines_reach_msk(lines: str, signed: tuple[str, ...], file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def sign(*given: str) -> tuple[str, int]:
        asked.append(given)
        return "token-of-aws", 1

    functions = ("generate_auth_token", "generate_auth_token_from_profile", "generate_auth_token_from_role_arn")
    signer = types.ModuleType("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    vars(signer).update(dict.fromkeys(functions, sign))
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", types.ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with MockCluster(topics={"t": 1}, sasl=Sasl(tokens=["token-of-aws"])) as cluster:
        outcome = tool("topics", "-c", file(MSK.format(hosts=cluster.bootstrap) + lines))
    assert (outcome.code, outcome.lines[1].split()) == (0, [b"t", b"1"]), outcome.err
    assert set(asked) == {signed}


def test_a_region_that_nothing_tells_is_asked_for(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    config = file(MSK.format(hosts="127.0.0.1:1") + f"sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={IAM}.IAMLoginModule required;\n")
    failure(tool("topics", "-c", config), "without sasl.aws.region", "AWS_REGION", code=2)


def test_an_address_as_a_console_prints_it() -> None:
    with MockCluster(topics={"t": 1}) as cluster:
        assert tool("topics", "-b", f"PLAINTEXT://{cluster.bootstrap}").lines[1].split() == [b"t", b"1"]
        failure(
            tool("topics", "-b", f"SASL_SSL://{cluster.bootstrap}"), "set --security-protocol SASL_SSL, or take SASL_SSL:// off", code=2
        )
        failure(tool("doctor", "-b", "b1:9092 b2:9092"), "separate addresses by commas, as 'b1:9092,b2:9092'", code=2)
