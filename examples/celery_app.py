#!/usr/bin/env python3
"""Celery tasks that write to Kafka: a pool of greenlets (-P gevent) or of processes (-P prefork).

    celery_app.py worker   checks that Kafka is there, prints the command of the worker, and becomes that worker
    celery_app.py send     queues tasks for it

    pip install 'gkafka[gevent]' celery

Each task writes one record and waits until Kafka has it. Where the client is made is what matters:

    --create first-use   by the first task that needs it, in the process that runs it: right in both pools
    --create import      when this module is loaded, with a first record. In a pool of greenlets that is right: there is one
                         process. In one of processes each task fails at once with a ForkedClientError
    --create init        by worker_process_init, Celery's signal in each new process of a pool (prefork only)

Celery's own broker is a folder here, so that nothing else has to run; CELERY_BROKER names another one, as redis://localhost/0.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from celery import Celery, signals
from recipe import become, kafka_is_there, parser_of, positive

from gkafka import KafkaClient

HERE = Path(__file__).resolve().parent
FOLDERS = "filesystem://localhost//"
HOSTS = os.environ.get("KAFKA_HOSTS", "127.0.0.1:9092")
TOPIC = os.environ.get("KAFKA_TOPIC", "tasks")
CREATE = os.environ.get("KAFKA_CREATE", "first-use")
BROKER = os.environ.get("CELERY_BROKER", FOLDERS)
ACKNOWLEDGED_WITHIN_S = 30

app = Celery("celery_app", broker=BROKER)
app.conf.task_ignore_result = True


def use_folder(folder: str) -> None:
    app.conf.broker_transport_options = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": folder + "/control"}


if BROKER == FOLDERS:
    use_folder(os.environ.get("CELERY_FOLDER", "celery-out"))


@cache
def client() -> KafkaClient:
    """This process's client. celery's command patches before it loads this module if the pool is one of greenlets: auto finds that out."""
    return KafkaClient(HOSTS)


@cache
def producer() -> Any:
    return client().get_producer()


@app.task  # type: ignore[untyped-decorator]  # celery comes without types
def record(number: int) -> None:
    """Fails, and is logged, if Kafka does not take the record in time. That is no word about the record, which may be there soon: see `kafka-tools docs recipes`."""
    producer().produce(TOPIC, b"%d" % number).result(ACKNOWLEDGED_WITHIN_S)


if CREATE == "import":
    producer().produce(TOPIC, b"loaded").result(ACKNOWLEDGED_WITHIN_S)
if CREATE == "init":
    signals.worker_process_init.connect(lambda **_: producer(), weak=False)


@signals.worker_process_shutdown.connect  # type: ignore[untyped-decorator]  # the same
def close(**_: Any) -> None:
    """A process of the pool ends without the interpreter's own end: nobody else would close its client."""
    if client.cache_info().currsize and CREATE != "import":
        client().close(ACKNOWLEDGED_WITHIN_S)


# -- as a program -------------------------------------------------------------------------------------------------------------------
def work(args: argparse.Namespace) -> int:
    settings = {"KAFKA_HOSTS": args.hosts, "KAFKA_TOPIC": args.topic, "KAFKA_CREATE": args.create, "CELERY_FOLDER": str(args.folder)}
    command = [
        "celery",
        "-A",
        "celery_app",
        "--workdir",
        str(HERE),
        "worker",
        "-P",
        args.pool,
        "-c",
        str(args.concurrency),
        "-l",
        "WARNING",
    ]
    if kafka_is_there(args):
        become(command, settings, package="celery")
    return 1


def send(args: argparse.Namespace) -> int:
    if BROKER == FOLDERS:
        use_folder(str(args.folder))
    for number in range(args.count):
        record.delay(number)
    print(f"{args.count} tasks queued")
    return 0


COMMANDS = {"worker": work, "send": send}


def main() -> int:
    args = arguments()
    return COMMANDS[args.command](args)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__ or "", "tasks")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--pool", choices=["gevent", "prefork"], default="gevent", help="of the worker (default: %(default)s)")
    parser.add_argument("--concurrency", type=positive, default=None, help="of the worker (default: 500 greenlets or 2 processes)")
    parser.add_argument("--create", choices=["first-use", "import", "init"], default="first-use", help="(default: %(default)s)")
    parser.add_argument("--count", type=positive, default=100, help="tasks to send (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("celery-out"), help="Celery's broker (default: %(default)s)")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    args.concurrency = args.concurrency or (500 if args.pool == "gevent" else 2)
    if args.create == "init" and args.pool != "prefork":
        parser.error("--create init: only a pool of processes tells of new ones; use first-use or import")
    try:
        (args.folder / "control").mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        parser.error(f"argument --folder: cannot be made: {exc}")
    return args


if __name__ == "__main__":
    sys.exit(main())
