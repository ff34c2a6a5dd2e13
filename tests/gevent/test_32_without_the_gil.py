"""32: an interpreter without the GIL, simulated: what asks for it is told so. (tests/gevent/live/test_32_interpreters.py has other interpreters.)"""

from __future__ import annotations

from tests.handlers.hub import run_script

CLIENT = """
    import sys
    sys._is_gil_enabled = lambda: False
    from gkafka import KafkaClient
    from gkafka.exceptions import ConfigurationError
    from gkafka.testing import MockCluster

    with MockCluster(topics={"t": 1}) as cluster:
        for wish in ({"handler": "gevent"}, {"use_greenlets": True}):
            try:
                KafkaClient(cluster.bootstrap, **wish)
            except ConfigurationError as error:
                print(error)
        for wish in ("auto", "threading"):
            with KafkaClient(cluster.bootstrap, handler=wish) as client, client.get_producer() as producer:
                offset = producer.produce("t", b"v").result(10).offset
                with client.get_consumer() as consumer:
                    consumer.assign({("t", 0): offset})
                    print(client.handler.name, consumer.consume(10_000).value)
    print("gevent" in sys.modules)
"""
REFUSAL = "gevent does not support Python without the GIL (importing it would turn the GIL on): use handler='threading'"


def test_32_greenlets_are_refused_with_what_to_do_and_threads_work() -> None:
    assert run_script(CLIENT).splitlines() == [REFUSAL, REFUSAL, "threading b'v'", "threading b'v'", "False"]
