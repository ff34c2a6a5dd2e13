"""Restarts of an engine are read from its log, with the states of its batches."""

from __future__ import annotations

import logging

from gkafka.logs import get_logger
from tests.faults.restarts import FETCH, MEMBER, PRODUCER, Restarts

TEXT = "the producer begins anew, its connections end: %s; its batches: %s"


def test_restarts_are_counted_by_the_states_of_their_batches() -> None:
    log = get_logger(PRODUCER)
    with Restarts() as restarts:
        log.info(TEXT, "Cut interrupted one of its workers", {"open": 2, "in_flight": 3})
        log.warning(TEXT, "an answer was lost", {"open": 1, "settled": 4})
        log.info("something else: %s", {"open": 7})
    log.info(TEXT, "Cut interrupted one of its workers", {"open": 1})
    assert restarts.count == 2
    assert restarts.hit == {"open": 2, "in_flight": 1, "settled": 1}
    assert restarts.batches == {"open": 3, "in_flight": 3, "settled": 4}
    assert not restarts.errors


def test_restarts_of_a_consumer_are_counted_by_the_states_of_its_partitions_and_those_of_a_member_by_its_own() -> None:
    with Restarts() as restarts:
        get_logger(FETCH).info(
            "the consumer begins anew, its fetches end: %s interrupted a step; its partitions: %s", "Cut", {"in_flight": 2}
        )
        get_logger(MEMBER).info(
            "group %r, member %r begins anew, %s: %s", "g", "m", "stable", "Cut interrupted one of its workers or callers"
        )
    assert restarts.of == {FETCH: 1, MEMBER: 1}
    assert restarts.count == 2
    assert restarts.hit == {"in_flight": 1, "stable": 1}


def test_lines_of_errors_are_kept() -> None:
    with Restarts() as restarts:
        get_logger("gkafka.net.reader").error("%s: the reader ended by %s", "host:1", "Hit", exc_info=ValueError("why"))
        get_logger("gkafka.net.reader").warning("nothing")
    assert restarts.errors == {"host:1: the reader ended by Hit: ValueError('why')": 1}


def test_the_loggers_are_what_they_were_before() -> None:
    whole, engine = logging.getLogger("gkafka"), logging.getLogger(PRODUCER)
    before = whole.propagate, engine.level, list(whole.handlers)
    with Restarts():
        pass
    assert (whole.propagate, engine.level, list(whole.handlers)) == before
