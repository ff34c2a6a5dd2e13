"""8: a TLS broker that takes its time stalls nobody, whoever made the context."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator

import gevent
import gevent.ssl
import pytest

from gkafka.handlers import GEventHandler
from tests.gevent.harness import LATE, LIMIT_S, PATCHED, UNPATCHED, assert_free_hub, connect, in_children
from tests.net.certificates import Certificates


def contexts(ca: str) -> Iterator[ssl.SSLContext]:
    """One of the standard library's, one of gevent's, and in a process that was patched late one that was built before."""
    yield ssl.create_default_context(cafile=ca)
    yield gevent.ssl.create_default_context(cafile=ca)
    early: ssl.SSLContext | None = getattr(sys.modules["__main__"], "early_context", None)
    if early is not None:
        early.load_verify_locations(ca)
        yield early


def talk(hosts: str, ca: str) -> int:
    """A client with each context, all at once. Returns how many contexts there were."""
    made = list(contexts(ca))

    def one(context: ssl.SSLContext) -> None:
        with connect(hosts, security_protocol="SSL", ssl_context=context) as client:
            offset = client.get_producer().produce("t", b"x").result(LIMIT_S).offset
            consumer = client.get_consumer()
            consumer.assign({("t", 0): offset})
            message = consumer.consume(1000 * LIMIT_S)
            assert message is not None
            assert message.value == b"x"

    def run() -> None:
        gevent.joinall([gevent.spawn(one, context) for context in made], timeout=LIMIT_S, raise_error=True)

    # What is done with a context that is given takes no time. In a thread, which waits for the GIL and has others wait, it would blur what is counted.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GEventHandler, "offload", lambda handler, function, *arguments: function(*arguments))
        assert_free_hub(run)
    return len(made)


def test_08_a_slow_tls_broker_stalls_nobody_whoever_made_the_context(slow_tls_broker: str, certificates: Certificates) -> None:
    assert in_children([UNPATCHED, PATCHED, LATE], talk, slow_tls_broker, certificates.ca) == {UNPATCHED: 2, PATCHED: 2, LATE: 3}
