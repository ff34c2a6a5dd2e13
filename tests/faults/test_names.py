"""Members look names up where the harness says."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import gevent
import pytest

from gkafka.exceptions import ConnectionFailedError
from gkafka.handlers import GEventHandler, ThreadingHandler
from gkafka.handlers.base import Handler
from tests.faults.names import COUNTS, Names, install


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    before = gevent.get_hub().resolver
    names = Names()
    yield names
    names.close()
    gevent.get_hub().resolver = before


@pytest.mark.parametrize("made", [ThreadingHandler, GEventHandler])
def test_a_name_means_what_the_file_says_and_nothing_while_nobody_answers(names: Names, made: type[Handler]) -> None:
    names.mean(["a.test"], ["127.0.0.7", "127.0.0.8"])
    handler = made()
    install(str(names.path), "gevent" if made is GEventHandler else "threading")
    counted = dict(COUNTS)
    assert [address for _, address in handler.getaddrinfo("a.test", 9)] == [("127.0.0.7", 9), ("127.0.0.8", 9)]
    names.nobody_answers(silent=False)
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match=r"a\.test:9: cannot resolve the host name: Temporary failure"):
            handler.getaddrinfo("a.test", 9)
    names.somebody_answers()
    names.mean(["a.test"], ["127.0.0.9"])
    assert [address for _, address in handler.getaddrinfo("a.test", 9)] == [("127.0.0.9", 9)]
    assert {name: n - counted.get(name, 0) for name, n in COUNTS.items()} == {"lookups": 2, "refused": 2}
