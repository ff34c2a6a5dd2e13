#!/usr/bin/env python3
"""A Flask application whose greenlets share one producer in each worker process, under gunicorn or uWSGI.

    POST /records   the body becomes a record; answered when Kafka has it: {"partition": 3, "offset": 17, "worker": 4711}
    POST /events    the same without waiting: 202 at once. What is on its way when the worker ends is sent before it ends
    GET  /health    the worker's process id, its handler and what its producer has done

    pip install 'gkafka[gevent]' flask 'gunicorn[gevent]'     (or pyuwsgi in place of gunicorn)

A request waits for ACKNOWLEDGED_WITHIN_S at most. Its record has longer: delivery_timeout_ms, 120 s. So when brokers are away

    202   the record is accepted and not acknowledged yet. The producer goes on; the log tells if it fails in the end,
          or if the worker ends (a HUP, say) and brokers stay away for longer than exit_timeout_ms (5 s)
    503   it was not accepted, or has failed: try again after Retry-After. "written" is "no", or "maybe" where a broker may have it all the same
    413   it is too large: trying again does not help

Whoever repeats a POST after a 202, a 503 with "maybe" or a lost connection may have the record in Kafka twice. A header Idempotency-Key makes the two
known for the same: it becomes the record's key, so that both are in one partition, and its header "idempotency-key". A consumer drops what it has seen.

As a program it checks that Kafka is there, prints the command of the server, and becomes that server.

A client belongs to the process that made it. Servers fork their workers, before they load the application or after:

    where it is loaded            gunicorn            uWSGI
    --load worker                 (its default)       --lazy-apps
    --load master                 --preload           (its default)

    --create first-use   in the worker, by the first request that needs it: right in every case
    --create import      when the application is loaded, with a first record: right only if workers load it. Loaded in the
                         master, each request is answered 500 with a ForkedClientError; nothing is lost, nothing hangs
    --create recreate    the same with on_fork="recreate": the producer makes connections of its own in each worker

Nothing here is monkey-patched for gkafka's sake: handler="gevent" works in a patched process and in one that is not.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from flask import Flask, request
from recipe import address, become, kafka_is_there, parser_of, positive

from gkafka import KafkaClient
from gkafka.exceptions import ForkedClientError, KafkaException, KafkaTimeoutError, MessageSizeTooLarge, RecordTooLarge

HERE = Path(__file__).resolve().parent
HOSTS = os.environ.get("KAFKA_HOSTS", "127.0.0.1:9092")
TOPIC = os.environ.get("KAFKA_TOPIC", "flask")
CREATE = os.environ.get("KAFKA_CREATE", "first-use")
HANDLER = os.environ.get("KAFKA_HANDLER", "gevent")
LINGER_MS = float(os.environ.get("KAFKA_LINGER_MS", "5"))
ACKNOWLEDGED_WITHIN_S = float(os.environ.get("KAFKA_WAIT_S", "5"))
"""How long a request waits: shorter than what the server and whoever asks it have patience for."""
LOADED_WITHIN_S = 30
TOO_LARGE = (RecordTooLarge, MessageSizeTooLarge)
RETRY_AFTER_S = 5
"""What a 503 asks for; brokers elect a new leader within seconds."""

app = Flask(__name__)


@cache
def producer() -> Any:
    """This process's producer. Making it waits for nothing, so two greenlets cannot make two; it connects at its first record."""
    client = KafkaClient(HOSTS, handler=HANDLER)
    on_fork = "recreate" if CREATE == "recreate" else "raise"
    # max_block_ms: how long produce() itself may wait, for a topic's metadata or for room.
    return client.get_producer(linger_ms=LINGER_MS, on_fork=on_fork, max_block_ms=ACKNOWLEDGED_WITHIN_S * 1000)


if CREATE != "first-use":
    producer().produce(TOPIC, b"loaded").result(LOADED_WITHIN_S)


def accepted() -> Any:
    """The body as a record on its way. What raises here was not accepted: the same again makes no second record."""
    key = request.headers.get("Idempotency-Key", "").encode()
    return producer().produce(TOPIC, request.get_data(), key=key or None, headers=[("idempotency-key", key)] if key else None)


@app.post("/records")
def records() -> Any:
    delivery = accepted()
    try:
        delivered = delivery.result(ACKNOWLEDGED_WITHIN_S)
    except KafkaTimeoutError:
        if delivery.done():  # its own time is over, not that of this wait
            raise
        return {"state": "accepted, not acknowledged yet", "worker": os.getpid()}, 202
    return {"partition": delivered.partition, "offset": delivered.offset, "worker": os.getpid()}


@app.post("/events")
def events() -> tuple[dict[str, int], int]:
    accepted()
    return {"worker": os.getpid()}, 202


@app.get("/health")
def health() -> dict[str, Any]:
    stats = producer().stats()
    return {"worker": os.getpid(), "handler": producer().handler.name, "delivered": stats["delivered_records"]}


@app.errorhandler(KafkaException)
def failed(error: KafkaException) -> tuple[dict[str, str], int, dict[str, str]]:
    """503: Kafka's trouble, worth another try. 413: too large. 500: this application's."""
    told = {"error": type(error).__name__, "text": str(error), "written": getattr(error, "persisted", None) or "no"}
    status = 500 if isinstance(error, ForkedClientError) else 413 if isinstance(error, TOO_LARGE) else 503
    return told, status, {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}


# -- as a program -------------------------------------------------------------------------------------------------------------------
def gunicorn(args: argparse.Namespace) -> list[str]:
    command = ["gunicorn", "-k", "gevent", "-w", str(args.workers), "-b", args.bind, "--chdir", str(HERE)]
    return [*command, *(["--preload"] if args.load == "master" else []), "flask_app:app"]


def uwsgi(args: argparse.Namespace) -> list[str]:
    # Without --die-on-term uWSGI takes a SIGTERM for "load everything anew".
    command = ["uwsgi", "--http-socket", args.bind, "--gevent", "50", "--master", "-p", str(args.workers), "--die-on-term", "--need-app"]
    return [*command, *([] if args.load == "master" else ["--lazy-apps"]), "--chdir", str(HERE), "--module", "flask_app:app"]


SERVERS = {"gunicorn": (gunicorn, "'gunicorn[gevent]'"), "uwsgi": (uwsgi, "pyuwsgi")}


def main() -> int:
    args = arguments()
    settings = {
        "KAFKA_HOSTS": args.hosts,
        "KAFKA_TOPIC": args.topic,
        "KAFKA_CREATE": args.create,
        "KAFKA_HANDLER": args.handler,
        "KAFKA_LINGER_MS": str(args.linger_ms),
    }
    command, package = SERVERS[args.server]
    if kafka_is_there(args):
        become(command(args), settings, package=package)
    return 1


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, "flask")
    parser.add_argument("--server", choices=SERVERS, default="gunicorn", help="(default: %(default)s)")
    parser.add_argument(
        "--load", choices=["worker", "master"], default="worker", help="where the application is loaded (default: %(default)s)"
    )
    parser.add_argument("--create", choices=["first-use", "import", "recreate"], default="first-use", help="(default: %(default)s)")
    parser.add_argument("--handler", choices=["gevent", "auto"], default="gevent", help="of the client (default: %(default)s)")
    parser.add_argument("--bind", type=address, default="127.0.0.1:8000", help="where to listen (default: %(default)s)")
    parser.add_argument("--linger-ms", type=positive, default=5, help="how long a record may wait for others (default: %(default)s)")
    parser.add_argument("--workers", type=positive, default=2, help="processes (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
