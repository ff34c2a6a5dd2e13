"""Where the opening of a connection stands: the step that it waits in, since when, and what the peer said last.

    name lookup > TCP connect > SOCKS5 or HTTP CONNECT > TLS handshake > ApiVersions > credentials > SaslHandshake > SaslAuthenticate, round 1, 2, ...

One worker opens a connection and writes here; others read, for the text of an error or of a log line.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["NOTHING", "Steps"]

NOTHING = "nothing"
"""What a peer that was connected to has said at first."""


class Steps:
    """Of one connection. monotonic: the clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.name = "start"
        self.last = ""
        """What was received last, "" before there is a connection."""
        self._monotonic = monotonic
        self._since = monotonic()

    def at(self, name: str) -> None:
        """Note that this step begins."""
        self.name, self._since = name, self._monotonic()

    def heard(self, what: str) -> None:
        """Note what the peer said."""
        self.last = what

    @property
    def received(self) -> str:
        """Return " (last received: ...)", or "" before there is a connection."""
        return f" (last received: {self.last})" if self.last else ""

    def __str__(self) -> str:
        return f"it has been at step {self.name} for {self._monotonic() - self._since:.1f} s{self.received}"
