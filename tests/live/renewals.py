"""G30: sessions that are renewed under load. One producer and one consumer on a listener whose sessions last 5 s; what failed, what was connected again.

python -m tests.live.renewals --seconds 120 --rate 2000 --handler gevent --mechanism SCRAM-SHA-512
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from tests.kit.clock import now
from tests.live.saslkafka import PASSWORD, SESSION_MS, USER, SaslKafka, unsigned_token

__all__ = ["Played", "play"]

DEADLINE_S = 60.0
SLICE_MS = 10


class Connections(logging.Handler):
    """Counts what the log says of connections."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.opened = self.renewed = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.opened += "connection open" in record.msg
        self.renewed += "authenticated again" in record.msg


class Played(dict[str, Any]):
    """What a run came to, by the names that are printed."""

    @property
    def passed(self) -> bool:
        """G30's bar: nothing failed, nothing is missing or double, and nothing was connected a second time."""
        return not (self["errors"] or self["missing"] or self["doubled"] or self["reconnects"]) and self["renewals"] >= self["renewals_due"]


def play(port: int, topic: str, *, handler: str, mechanism: str, seconds: float, rate: float) -> Played:
    """Produce `rate` messages a second for so many seconds, and consume them."""
    log, seen = logging.getLogger("gkafka"), Connections()
    level = log.level
    log.addHandler(seen)
    log.setLevel(logging.DEBUG)
    try:
        with KafkaClient(f"127.0.0.1:{port}", handler=handler, **credentials(mechanism)) as client:
            produced, errors, values = _load(client, topic, seconds, rate)
    finally:
        log.removeHandler(seen)
        log.setLevel(level)
    renewals_due = int(seconds * 1000 / SESSION_MS) * 3  # of three connections
    return Played(
        handler=handler,
        mechanism=mechanism,
        seconds=seconds,
        rate=round(produced / seconds),
        produced=produced,
        errors=errors,
        missing=produced - len(set(values)),
        doubled=len(values) - len(set(values)),
        reconnects=seen.opened - 3,  # control, produce, fetch
        renewals=seen.renewed,
        renewals_due=renewals_due,
    )


def credentials(mechanism: str) -> dict[str, Any]:
    """What a client of the listener SHORT is given."""
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if not mechanism.startswith("SCRAM"):
        given["allow_plaintext_credentials"] = True
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": unsigned_token}
    return given | {"sasl_username": USER, "sasl_password": PASSWORD}


def _load(client: KafkaClient, topic: str, seconds: float, rate: float) -> tuple[int, int, list[bytes]]:
    """Messages produced, errors among them, and the values that were consumed meanwhile."""
    deliveries: list[Any] = []
    values: list[bytes] = []
    consumer = client.get_consumer(topic)

    def consume(timeout_ms: float) -> None:
        values.extend(bytes(message.value or b"") for message in consumer.consume_batch(5000, timeout_ms))

    with client.get_producer(linger_ms=2) as producer:
        begun = now()
        while now() - begun < seconds:
            while now() - begun >= len(deliveries) / rate:
                deliveries.append(producer.produce(topic, b"%d" % len(deliveries)))
            consume(SLICE_MS)
        errors = sum(delivery.exception(DEADLINE_S) is not None for delivery in deliveries)
    begun = now()
    while len(values) < len(deliveries) and now() - begun < DEADLINE_S:
        consume(500)
    return len(deliveries), errors, values


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.renewals", description="Sessions that are renewed under load (G30).")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--handler", action="append", choices=("threading", "gevent"))
    parser.add_argument("--mechanism", action="append", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"))
    given = parser.parse_args(arguments)
    passed = True
    with ExitStack() as stack:
        kafka = SaslKafka(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)
        for number, (handler, mechanism) in enumerate(
            (handler, mechanism)
            for handler in given.handler or ("threading", "gevent")
            for mechanism in given.mechanism or ("SCRAM-SHA-512",)
        ):
            topic = f"renewals-{number}"
            kafka.cluster.create_topic(topic)
            try:
                played = play(kafka.port("SHORT"), topic, handler=handler, mechanism=mechanism, seconds=given.seconds, rate=given.rate)
            except KafkaException as error:
                print(f"{handler} {mechanism}: {error}", file=sys.stderr)
                passed = False
                continue
            passed &= played.passed
            print(json.dumps(played), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
