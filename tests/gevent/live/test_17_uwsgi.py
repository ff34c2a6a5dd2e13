"""17: Flask under uWSGI --gevent 50 --master -p 2, by the lines of docs/recipes.md. uWSGI runs neither fork hooks nor exit hooks."""

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

(UWSGI,) = [line for line in lines("flask_app.py", "uwsgi") if "recreate" not in line]


@pytest.mark.parametrize("line", lines("flask_app.py", "uwsgi"))
def test_17_uwsgis_workers_deliver_and_send_what_is_pending_at_sigterm(
    line: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    with Web(line, kafka.hosts, topic, tmp_path) as web:
        check_delivery_and_end(web, Peer(kafka.hosts, kafka.release), topic)


@pytest.mark.parametrize(("load", "create"), [("worker", "import"), ("master", "first-use")])
def test_17_a_client_that_its_workers_make_works_wherever_the_application_is_loaded(
    load: str, create: str, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """At import where they load it, which is --lazy-apps, and by the first request where the master does."""
    topic = new_topic(4)
    with Web(UWSGI, kafka.hosts, topic, tmp_path, "--load", load, "--create", create) as web:
        check_delivery_and_end(web, Peer(kafka.hosts, kafka.release), topic)


@pytest.mark.parametrize("sign", one_of(signal.SIGTERM, signal.SIGINT))
def test_17_what_was_taken_is_sent_while_requests_go_on(
    sign: int, kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    with Web(UWSGI, kafka.hosts, topic, tmp_path) as web:
        check_end_among_requests(web, Peer(kafka.hosts, kafka.release), topic, sign)


def test_17_a_client_of_the_master_is_refused_in_its_workers_at_once(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    with Web(UWSGI, kafka.hosts, topic, tmp_path, "--load", "master", "--create", "import") as web:
        check_refusal(web, Peer(kafka.hosts, kafka.release), topic)
