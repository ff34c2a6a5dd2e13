"""16: Flask under gunicorn -k gevent -w 2, by the lines of README: what is answered is in Kafka, and what is pending at SIGTERM is sent."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gevent.live.recipes import Web, lines
from tests.gevent.live.webs import check_delivery_and_end, check_end_among_requests, check_refusal
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer

GUNICORN = [line for line in lines("flask_app.py") if "uwsgi" not in line]


@pytest.mark.parametrize("line", GUNICORN, ids=range(len(GUNICORN)))
@pytest.mark.parametrize("handler", ["gevent", "auto"])
def test_16_gunicorns_workers_deliver_and_send_what_is_pending_at_sigterm(
    line: str, handler: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Preloaded with "auto", the master has threads and its workers greenlets."""
    topic = new_topic(4)
    with Web(line, kafka.hosts, topic, tmp_path, "--handler", handler) as web:
        check_delivery_and_end(web, Peer(kafka.hosts, kafka.release), topic)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_16_what_was_taken_is_sent_while_requests_go_on(
    sign: int, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    with Web(GUNICORN[0], kafka.hosts, topic, tmp_path) as web:
        check_end_among_requests(web, Peer(kafka.hosts, kafka.release), topic, sign)


@pytest.mark.parametrize("handler", ["gevent", "auto"])
def test_16_a_client_of_the_master_is_refused_in_its_workers_at_once(
    handler: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    line = next(line for line in GUNICORN if line.endswith("--load master"))
    with Web(line, kafka.hosts, topic, tmp_path, "--create", "import", "--handler", handler) as web:
        check_refusal(web, Peer(kafka.hosts, kafka.release), topic)
