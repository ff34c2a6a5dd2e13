"""A whole client against brokers whose answers are changed at random (fuzz invariant 8): only errors of gkafka come out, in time, no worker fails, and
after it a good broker is worked with as if nothing had been."""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException
from gkafka.testing import Close, Corrupt, MockCluster
from tests.effort import quick_and_thorough
from tests.fuzz.mutators import any_bytes
from tests.hostile.life import FRAMES, QUICK, REQUESTS, TOPIC, cluster_for_life, consume, create_and_delete, produce, transact
from tests.kit.clock import now

SHORT: dict[str, Any] = {**QUICK, "api_timeout_ms": 1500, "socket_timeout_ms": 1000, "connect_timeout_ms": 1000}
LONGEST_STEP_S = 60.0
DELIVERY_MS = 5000
BRIEF: dict[str, Any] = {"tries": 50, "delivery_timeout_ms": DELIVERY_MS}
STEPS: dict[str, Callable[[KafkaClient], object]] = {
    "connect": lambda client: client.connect(1),
    "metadata": lambda client: client.update_cluster(),
    "produce": lambda client: produce(client, delivery_timeout_ms=DELIVERY_MS),
    "offsets": lambda client: client.list_offsets({(TOPIC, 0): -1}, timeout=1),
    "fetch": lambda client: read_some(client),
    "group": lambda client: consume(client, "g", **BRIEF, heartbeat_interval_ms=30, session_timeout_ms=600),
    "new group": lambda client: consume(client, "n", **BRIEF, group_protocol="consumer"),
    "transaction": lambda client: transact(client, delivery_timeout_ms=DELIVERY_MS),
    "topics": lambda client: create_and_delete(client, timeout=5),
}


def read_some(client: KafkaClient) -> None:
    with client.get_consumer([TOPIC], fetch_error_backoff_ms=5) as consumer:
        consumer.consume_batch(10, timeout_ms=200)


def changed(seed: int) -> Callable[[bytes], bytes]:
    """The same change for the same answer. Its size and correlation id are right in most cases, so that the rest is read."""

    def damage(frame: bytes) -> bytes:
        chance = random.Random(seed)
        body = any_bytes(frame[8:], chance, [frame[8:]])
        head = frame[4:8] if chance.random() < 0.95 else chance.randbytes(4)
        return struct.pack(">i", len(body) + 4) + head + body

    return damage


class Failures(logging.Handler):
    """What workers could not make sense of: each is logged with its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None and not issubclass(record.exc_info[0], KafkaException):
            self.seen.append(logging.Formatter().format(record))


def machine(handler: str) -> type[RuleBasedStateMachine]:
    class Client(RuleBasedStateMachine):
        cluster: MockCluster
        client: KafkaClient

        @initialize()
        def begin(self) -> None:
            self.failures = Failures()
            logging.getLogger("gkafka").addHandler(self.failures)
            self.cluster = cluster_for_life()
            self.client = KafkaClient(self.cluster.bootstrap, handler=handler, **SHORT)

        @rule(
            apis=st.lists(st.sampled_from(sorted(REQUESTS)), min_size=6, unique=True), seed=st.integers(0, 2**32), times=st.integers(1, 3)
        )
        def answers_are_changed(self, apis: list[str], seed: int, times: int) -> None:
            for number, api in enumerate(apis):
                self.cluster.on(api, Corrupt(changed(seed + number)), times=times)

        @rule(api=st.sampled_from(sorted(REQUESTS)), name=st.sampled_from(sorted(FRAMES)))
        def an_answer_is_none(self, api: str, name: str) -> None:
            self.cluster.on(api, Corrupt(FRAMES[name]))

        @rule(api=st.sampled_from(sorted(REQUESTS)))
        def a_connection_ends(self, api: str) -> None:
            self.cluster.on(api, Close())

        @rule(name=st.sampled_from(sorted(STEPS)))
        def the_application_goes_on(self, name: str) -> None:
            began = now()
            try:
                STEPS[name](self.client)
            except KafkaException:
                pass
            except AssertionError as error:
                if "no message came" not in str(error):
                    raise
            assert now() - began < LONGEST_STEP_S, name

        @invariant()
        def no_worker_has_failed(self) -> None:
            if hasattr(self, "failures"):
                assert self.failures.seen == []

        def teardown(self) -> None:
            if not hasattr(self, "client"):
                return
            try:
                self.cluster.clear_script()
                self.works_again()
                assert self.failures.seen == []
            finally:
                logging.getLogger("gkafka").removeHandler(self.failures)
                self.client.close(2)
                self.cluster.close()

        def works_again(self) -> None:
            deadline = now() + 60
            while True:
                try:
                    produce(self.client, b"at last")
                    consume(self.client, "afterwards", heartbeat_interval_ms=30, session_timeout_ms=600)
                    return
                except (KafkaException, AssertionError):
                    if now() >= deadline:
                        raise
                    self.client.handler.sleep(0.05)

    return Client


@pytest.mark.timeout(900)
@pytest.mark.parametrize("examples", quick_and_thorough(6, 40))
@pytest.mark.parametrize("handler", ["threading", "gevent"])
def test_a_client_survives_random_answers(handler: str, examples: int) -> None:
    run_state_machine_as_test(
        machine(handler),
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
