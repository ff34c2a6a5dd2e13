"""The port of a web server in place of a broker's: every command says so, in the words of `doctor`."""

from __future__ import annotations

import pathlib
import socket

import pytest

from gkafka.cli.app import COMMANDS
from gkafka.testing import MockCluster, Sasl
from tests.cli.running import failure, tool
from tests.cli.test_doctor import patient_web_server
from tests.kit.clock import now
from tests.kit.ports import refused_port
from tests.net.certificates import Certificates
from tests.net.servers import serve

ARGUMENTS = {
    "topics": ["list", "describe", "describe orders", "config orders", "create orders", "partitions orders 9", "delete orders"],
    "groups": ["list", "describe billing", "members billing", "delete billing"],
    "offsets": ["list orders", "list --group billing", "reset billing --to-latest", "delete billing --topic orders"],
    "configs": ["describe broker 1", "alter topic orders retention.ms=1"],
    "acls": ["list", "create --topic orders --principal User:bob --operation read", "delete --topic orders"],
    "lag": ["", "billing"],
    "produce": ["orders"],
    "consume": ["orders"],
    "copy": ["orders payments"],
    "bench": ["produce --records 10", "consume", "latency"],
    "desc_topic": ["orders"],
    "print_offsets": ["orders LATEST"],
    "print_consumer_lag": ["orders billing"],
    "print_managed_consumer_groups": ["orders"],
    "reset_offsets": ["orders billing EARLIEST"],
    "consume_topic": ["orders"],
    "create_topic": ["orders"],
    "delete_topic": ["orders"],
}
"""Of commands that want some, or have several of their own."""
WITHOUT_A_CLUSTER = ("version", "completion", "docs")
NAMES = [name for section in COMMANDS.values() for name in section if name not in (*WITHOUT_A_CLUSTER, "doctor")]
LINES = [(name, more) for name in NAMES for more in ARGUMENTS.get(name, [""])]
NEXT = "\n  next: give the port of a Kafka listener, 9092 by default\n"


def hasty(conn: socket.socket) -> None:
    conn.recv(65536)
    conn.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(("name", "more"), LINES)
def test_every_command_tells_a_web_server(name: str, more: str) -> None:
    with serve(patient_web_server) as port:
        began = now()
        told = tool("-b", f"127.0.0.1:{port}", "--timeout", "2", name, *more.split(), stdin=b"x\n")
        assert now() - began < 30
    failure(told, f"kafka-tools: 127.0.0.1:{port}: a web server answers there: 'HTTP/1.1 404 Not Found'{NEXT}")


@pytest.mark.parametrize("options", [[], ["--security-protocol", "SSL"]])
def test_one_that_answers_at_once(options: list[str]) -> None:
    with serve(hasty) as port:
        told = tool("topics", "-b", f"127.0.0.1:{port}", "--timeout", "4", *options)
    failure(told, f"127.0.0.1:{port}: a web server answers there: 'HTTP/1.1 400 Bad Request'{NEXT}")


def test_one_behind_tls(tmp_path: pathlib.Path) -> None:
    certificates = Certificates(tmp_path)
    context = certificates.server("good")
    with serve(patient_web_server, wrap=lambda conn: context.wrap_socket(conn, server_side=True)) as port:
        told = tool("lag", "-b", f"localhost:{port}", "--timeout", "4", "--security-protocol", "SSL", "--ssl-cafile", certificates.ca)
    failure(told, f"localhost:{port}: a web server answers there: 'HTTP/1.1 404 Not Found'{NEXT}")


def test_one_beside_a_port_that_is_closed() -> None:
    with serve(patient_web_server) as port:
        told = tool("groups", "-b", f"127.0.0.1:{refused_port()},127.0.0.1:{port}", "--timeout", "2")
    failure(told, f"127.0.0.1:{port}: a web server answers there: 'HTTP/1.1 404 Not Found'{NEXT}")


def test_a_broker_is_taken_for_none(tmp_path: pathlib.Path) -> None:
    """Who refuses a password, or is not there, is no web server, and nothing is sent there to find out."""
    password = tmp_path / "password"
    password.write_text("wrong\n")
    with MockCluster(sasl=Sasl({"u": "p"})) as cluster:
        who = ("--sasl-mechanism", "SCRAM-SHA-256", "--sasl-username", "u", "--sasl-password-file", str(password))
        told = tool("topics", "-b", cluster.bootstrap, "--security-protocol", "SASL_PLAINTEXT", *who)
    assert (told.code, "web server" in told.err) == (1, False)
    assert "web server" not in tool("topics", "-b", f"127.0.0.1:{refused_port()}", "--timeout", "2").err
