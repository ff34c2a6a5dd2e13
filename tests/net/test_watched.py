"""Connections that a worker reads itself: it is told when it has to look at them."""

from __future__ import annotations

import pytest

from gkafka.config import ClientConfig
from gkafka.handlers import ThreadingHandler
from gkafka.net.channel import Channel
from gkafka.net.watched import Watched
from gkafka.testing import Drop, MockCluster
from gkafka.wire.metadata import MetadataRequest
from tests.kit.clock import PATIENCE_S, now

REST_S = 600.0


def test_whoever_sends_has_the_worker_look_before_the_time_of_the_request_is_over() -> None:
    handler = ThreadingHandler()
    alarm = handler.alarm()
    if alarm is None:
        pytest.skip("connections have readers of their own here")
    watched, ends = Watched(handler, alarm), []
    watched.begin()
    with MockCluster() as cluster:
        cluster.on("Metadata", Drop())
        host, port = cluster.brokers[1]
        channel = Channel(handler, host, port, ClientConfig(), taker=watched.take)
        channel.wait_open(now() + PATIENCE_S)
        alarm.wait(PATIENCE_S)
        alarm.clear()
        assert watched.look(now(), REST_S) >= now() + REST_S - PATIENCE_S
        sent_at = now()
        channel.send(MetadataRequest(topics=[]), lambda response, error: ends.append(error), timeout_s=0.2)
        assert alarm.wait(PATIENCE_S)
        while not ends:
            alarm.clear()
            alarm.wait(0.02)
            look_at = watched.look(now(), REST_S)
            assert ends or look_at < sent_at + PATIENCE_S
    assert "no answer" in str(ends[0])
    watched.end([])


def test_the_error_of_a_lost_connection_keeps_no_frames_of_the_worker() -> None:
    """The broker keeps it, and would keep the engine that the worker works for, though that was dropped."""
    handler = ThreadingHandler()
    alarm = handler.alarm()
    if alarm is None:
        pytest.skip("connections have readers of their own here")
    watched = Watched(handler, alarm)
    watched.begin()
    with MockCluster() as cluster:
        host, port = cluster.brokers[1]
        channel = Channel(handler, host, port, ClientConfig(), taker=watched.take)
        channel.wait_open(now() + PATIENCE_S)
        deadline = now() + PATIENCE_S
        cluster.close_connections()
        while not channel.closed:
            assert now() < deadline
            alarm.clear()
            alarm.wait(0.02)
            watched.read()
            watched.look(now(), REST_S)
    assert channel.error is not None
    assert channel.error.__traceback__ is None
    watched.end([])
