"""SaslHandshake and SaslAuthenticate: who the client is. What their bytes mean is the mechanism's (`gkafka.core.sasl`)."""

from __future__ import annotations

from gkafka.wire.schema import Message, array, bytes_, int16, int64, message, string

__all__ = ["FRAMED", "SaslAuthenticateRequest", "SaslAuthenticateResponse", "SaslHandshakeRequest", "SaslHandshakeResponse"]

FRAMED = 1
"""The version of SaslHandshake from which on the mechanism's messages go inside SaslAuthenticate (KIP-152). Before it (Kafka 0.10 and 0.11)
each is a frame of its own, without a header."""


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    """Which mechanism the client will use. KIP-43; KIP-152 messages in frames (v1)."""

    mechanism: str = string()


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Message):
    """Whether the broker has the mechanism, and which ones it has."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    """A message of the mechanism. KIP-152; KIP-368 lifetime of the session (v1)."""

    auth_bytes: bytes = bytes_()


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    """The broker's next message of the mechanism, or why it refuses. session_lifetime_ms: with the last one, 0 if there is no end."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
