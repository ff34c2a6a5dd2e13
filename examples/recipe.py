"""What the recipes share: how they name Kafka, and the check before they start. It is no program of its own."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException, KafkaTimeoutError, NoBrokersAvailableError, TopicAlreadyExists

REACHED_WITHIN_S = 10


def parser_of(about: str, topic: str) -> argparse.ArgumentParser:
    """--hosts and --topic; the recipe adds what else it takes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="127.0.0.1:9092", help="Kafka: host:port, or several with commas (default: %(default)s)")
    parser.add_argument("--topic", default=topic, help="made with 4 partitions if it is not there (default: %(default)s)")
    return parser


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or more")
    return int(text)


def address(text: str) -> str:
    """The type of an option that says where to listen."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: must be host:port, the port 1 to 65535")
    return text


def kafka_is_there(args: argparse.Namespace) -> bool:
    """Is Kafka reachable, and the topic there? If not, says what to do.

    The client of this check is closed again, with all its threads, before a recipe forks or patches anything.
    """
    try:
        with KafkaClient(args.hosts, handler="threading") as client:
            client.connect(REACHED_WITHIN_S)
            with suppress(TopicAlreadyExists):
                client.create_topic(args.topic, 4, timeout=REACHED_WITHIN_S)
    except KafkaException as exc:
        complain(exc)
        return False
    return True


def complain(exc: Exception) -> None:
    print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
    if isinstance(exc, (NoBrokersAvailableError, KafkaTimeoutError)):
        print(
            "Is Kafka there? Name it with --hosts HOST:PORT; `python -m gkafka.testing kafka FOLDER` starts one (kafka-tools docs local-kafka).",
            file=sys.stderr,
        )


def run(main: Callable[[], int]) -> NoReturn:
    """The program. Ctrl-C ends it with one line and the status that shells give it."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def needs(*packages: str) -> None:
    """Ends the program with 1 and what to install if one of these packages is not there."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        sys.exit(f"{' and '.join(missing)} missing: pip install {' '.join(missing)}")


def become(command: list[str], settings: Mapping[str, str], *, package: str) -> NoReturn:
    """Print a server's command and go on as that server, with these variables in its environment. Ends with 1 if it is not installed."""
    beside_python = str(Path(sys.executable).parent)
    program = shutil.which(command[0], path=os.pathsep.join([beside_python, os.environ.get("PATH", "")]))
    if program is None:
        sys.exit(f"{command[0]} is not installed: pip install {package}")
    print(" ".join([*(f"{name}={value}" for name, value in settings.items()), shlex.join(command)]), flush=True)
    os.execve(program, command, {**os.environ, **settings})
