"""A listener whose on_partitions_revoked() raises more than an Exception: it hears of what was assigned all the same."""

from __future__ import annotations

import textwrap

import pytest

from tests.handlers.hub import run_script

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
    for _ in range(40):
        try:
            consumer.poll(20)
        except BaseException as exc:
            raised.append(type(exc).__name__)
    print(heard, raised)
    consumer.close()
    print(heard)
    cluster.close()
"""


@pytest.mark.parametrize("way", ["threading", "gevent", "patched"])
@pytest.mark.parametrize("error", ["SystemExit(3)", "gevent.GreenletExit", "KeyboardInterrupt"])
def test_on_partitions_assigned_is_called_whatever_on_partitions_revoked_raises(way: str, error: str) -> None:
    """It was not: places that it would have sought, and state that it would have loaded, were missing."""
    patch = "from gevent import monkey; monkey.patch_all()" if way == "patched" else ""
    handler = "threading" if way == "threading" else "gevent"
    out = run_script(f"{patch}\n{textwrap.dedent(PROGRAM).format(handler=handler, error=error)}").splitlines()
    raised = error.split("(")[0].split(".")[-1]
    assert out[0] == f"['revoked', 'assigned'] ['{raised}']"
    assert out[1] == "['revoked', 'assigned', 'revoked']"
