"""A listener whose on_partitions_revoked() raises more than an Exception: it hears of what was assigned all the same."""

from __future__ import annotations

import textwrap

import pytest

from tests.kit.forks import PATCHING, Program, play

IMPORTED = (
    "import gevent, gkafka.kafka.consumer, gkafka.protocol, gkafka.testing, gkafka.client, gkafka.consumer, gkafka.handlers.greenlets"
)
PROGRAM = """
    import logging
    import gevent
    from gkafka.kafka import ConsumerRebalanceListener, KafkaConsumer
    from gkafka.testing import MockCluster

    logging.disable()
    heard = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            heard.append("revoked")
            if len(heard) == 1:
                raise {error}

        def on_partitions_assigned(self, assigned):
            heard.append("assigned")

    raised = []
    cluster = MockCluster(topics={{"t": 1}})
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="g", handler="{handler}")
    consumer.subscribe(["t"], listener=Listener())
    polls = behind = 0
    while behind < 10 and polls < 3000:  # so many after all has happened
        polls += 1
        behind += "assigned" in heard
        try:
            consumer.poll(20)
        except BaseException as exc:
            raised.append(type(exc).__name__)
    print(heard, raised)
    consumer.close()
    print(heard)
    cluster.close()
"""


ERRORS = "SystemExit(3)", "gevent.GreenletExit", "KeyboardInterrupt"


@pytest.mark.parametrize("way", ["threading", "gevent", "patched"])
def test_on_partitions_assigned_is_called_whatever_on_partitions_revoked_raises(way: str) -> None:
    """It was not: places that it would have sought, and state that it would have loaded, were missing."""
    patched = f"{PATCHING}\ngevent.monkey.patch_all()" if way == "patched" else ""
    handler = "threading" if way == "threading" else "gevent"
    programs = [Program(textwrap.dedent(PROGRAM).format(handler=handler, error=error)) for error in ERRORS]
    for error, ended in zip(ERRORS, play(programs, before=f"{patched}\n{IMPORTED}", at_once=3), strict=True):
        assert (ended.returncode, ended.stderr) == (0, ""), error
        raised = error.split("(")[0].split(".")[-1]
        assert ended.stdout.splitlines() == [f"['revoked', 'assigned'] ['{raised}']", "['revoked', 'assigned', 'revoked']"]
