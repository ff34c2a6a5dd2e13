"""19: a process that is patched after its client was made says so. One that is patched after the import is LATE in tests 1 to 5 and 8."""

from __future__ import annotations

from tests.handlers.hub import run_script


def test_19_a_client_of_threads_refuses_to_work_once_the_process_is_patched() -> None:
    out = run_script(
        """
        from gkafka import KafkaClient
        from gkafka.exceptions import ConfigurationError
        from gkafka.testing import MockCluster
        cluster = MockCluster(1, {"t": 1})
        client = KafkaClient(cluster.bootstrap)
        from gevent import monkey; monkey.patch_all()
        calls = {
            "partitions": lambda: client.partitions("t"),
            "produce": lambda: client.get_producer().produce("t", b"x"),
            "consume": lambda: client.get_consumer("t"),
            "connect": client.connect,
        }
        for name, call in calls.items():
            try:
                call()
            except ConfigurationError as error:
                print(name, "monkey-patch before the client is made" in str(error))
        """,
        python=(),
    )
    assert out.splitlines() == ["partitions True", "produce True", "consume True", "connect True"]


def test_19_a_client_of_greenlets_does_not_mind() -> None:
    out = run_script(
        """
        from gkafka import KafkaClient
        from gkafka.testing import MockCluster
        cluster = MockCluster(1, {"t": 1})
        client = KafkaClient(cluster.bootstrap, handler="gevent")
        from gevent import monkey; monkey.patch_all()
        print(client.get_producer().produce("t", b"x").result(10).offset)
        client.close()
        """,
        python=(),
    )
    assert out == "0"
