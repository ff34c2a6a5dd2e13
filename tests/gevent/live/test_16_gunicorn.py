"""16: Flask under gunicorn -k gevent -w 2, by the lines of docs/recipes.md: what is answered is in Kafka, and what is pending at SIGTERM is sent."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import one_of
from tests.gevent.live.recipes import Web, lines
from tests.gevent.live.webs import check_delivery_and_end, check_end_among_requests, check_refusal
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

GUNICORN = [line for line in lines("flask_app.py") if "uwsgi" not in line]


@pytest.mark.parametrize(
    ("number", "handler"),
    [
        pytest.param(number, handler, marks=() if (handler == "auto") == (number > 0) else pytest.mark.thorough)
        for handler in ("gevent", "auto")
        for number in range(len(GUNICORN))
    ],
)
def test_16_gunicorns_workers_deliver_and_send_what_is_pending_at_sigterm(
    number: int, handler: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Preloaded with "auto", the master has threads and its workers greenlets: in short the lines that preload have that."""
    topic = new_topic(4)
    with Web(GUNICORN[number], kafka.hosts, topic, tmp_path, "--handler", handler) as web:
        check_delivery_and_end(web, Peer(kafka.hosts, kafka.release), topic)


def test_16_a_client_that_each_worker_makes_at_import_works(kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = new_topic(4)
    with Web(GUNICORN[0], kafka.hosts, topic, tmp_path, "--create", "import") as web:
        check_delivery_and_end(web, Peer(kafka.hosts, kafka.release), topic)


@pytest.mark.parametrize("sign", one_of(signal.SIGINT, signal.SIGTERM))  # SIGTERM: above
def test_16_what_was_taken_is_sent_while_requests_go_on(
    sign: int, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    with Web(GUNICORN[0], kafka.hosts, topic, tmp_path) as web:
        check_end_among_requests(web, Peer(kafka.hosts, kafka.release), topic, sign)


@pytest.mark.parametrize("handler", one_of("auto", "gevent"))
def test_16_a_client_of_the_master_is_refused_in_its_workers_at_once(
    handler: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    line = next(line for line in GUNICORN if line.endswith("--load master"))
    with Web(line, kafka.hosts, topic, tmp_path, "--create", "import", "--handler", handler) as web:
        check_refusal(web, Peer(kafka.hosts, kafka.release), topic)
