"""A TLS door before a broker: the handshake comes late, and so does each answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from tests.net.servers import serve

HANDSHAKE_S, REPLY_S = 0.3, 0.2


@contextlib.contextmanager
def slow_door(wrap: Callable[[socket.socket], socket.socket], target: list[int]) -> Iterator[int]:
    """A port that relays to the port in `target`: a late handshake, and each answer late."""

    def relay(conn: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", target[0])) as behind:

            def back() -> None:
                with contextlib.suppress(OSError):
                    while data := behind.recv(65536):
                        time.sleep(REPLY_S)
                        conn.sendall(data)

            answers = threading.Thread(target=back, daemon=True)
            answers.start()
            with contextlib.suppress(OSError):
                while data := conn.recv(65536):
                    behind.sendall(data)
            with contextlib.suppress(OSError):
                behind.shutdown(socket.SHUT_RDWR)
            answers.join(5)

    def late(conn: socket.socket) -> socket.socket:
        time.sleep(HANDSHAKE_S)
        return wrap(conn)

    with serve(relay, wrap=late) as port:
        yield port
