"""Ports of loopback where nobody listens. One that was closed is no such port: whoever asks for any port next may get it."""

from __future__ import annotations

import socket
from functools import cache

__all__ = ["refused_port"]


@cache
def refused_port(which: int = 0) -> int:
    """A port that refuses connections for as long as this process lives: it is bound, so nobody else gets it, and not listened on. which: of several."""
    kept = socket.socket()
    kept.bind(("127.0.0.1", 0))
    port: int = kept.getsockname()[1]
    kept.detach()
    return port
