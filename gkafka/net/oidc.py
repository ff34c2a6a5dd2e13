"""Tokens from an OAuth 2.0 token endpoint by the client's own credentials (RFC 6749, section 4.4), over https alone.

The connection is one of the handler's streams, so that it is cooperative and ends by its deadline; the standard library reads the answer. No
redirect is followed: the client's secret goes to the URL that the options name and to nobody else.
"""

from __future__ import annotations

import base64
import io
import json
from copy import copy
from http.client import HTTPException, HTTPResponse, IncompleteRead
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

import gkafka
from gkafka.config import ClientConfig, Secret, is_utf8
from gkafka.core.sasl import TOKEN, masked
from gkafka.escaping import escaped
from gkafka.exceptions import AuthenticationError, ConfigurationError, KafkaException, TokenEndpointError
from gkafka.handlers import Future, Handler, Stream
from gkafka.logs import get_logger
from gkafka.net.authenticator import without_frames
from gkafka.net.stream import open_stream
from gkafka.net.tlscontext import check_tls
from gkafka.sasloptions import token_endpoint

__all__ = ["TokenEndpoint"]

log = get_logger(__name__)
LONGEST_ANSWER = 1 << 18  # bytes, headers included
FRESH = 0.8  # of a token's lifetime: after that a new one is asked for
LIFETIME_S = 60.0  # of a token whose endpoint does not say
LONGEST_TEXT = 200  # characters of its own words that an error repeats
AGAIN_S = 1.0  # so long a failure is told again without asking: each connection to each broker wants a token


class Token(NamedTuple):
    """text: a Secret; fresh_until: monotonic seconds."""

    text: Secret
    fresh_until: float


class TokenEndpoint:
    """One client's tokens. Whoever needs one while it is being asked for waits for the same answer."""

    def __init__(self, handler: Handler, config: ClientConfig) -> None:
        self._handler = handler
        self._config = config
        self._host, self._port, self._path = _place(config.sasl_oauth_token_endpoint_url or "")
        self._tls = ClientConfig(security_protocol="SSL", ssl_cafile=config.sasl_oauth_cafile)
        try:
            check_tls(self._tls)
        except ConfigurationError as exc:
            raise ConfigurationError(str(exc).replace("ssl_cafile", "sasl_oauth_cafile")) from exc
        self._where = f"token endpoint {self._host}:{self._port}"
        self._lock = handler.Mutex()
        self._token: Token | None = None
        self._asking: Future | None = None
        self._failure: Exception | None = None
        self._ask_again_at = -inf
        self._said = Secret()  # the client's secret that was sent last

    def token(self, deadline: float) -> Secret:
        """A token for an authentication that begins now. deadline: monotonic seconds.

        Raises AuthenticationError if the endpoint refuses, TokenEndpointError, TlsError or KafkaTimeoutError if it cannot be had.
        """
        with self._lock:
            if self._token is not None and self._handler.monotonic() < self._token.fresh_until:
                return self._token.text
            if self._failure is not None and self._handler.monotonic() < self._ask_again_at:
                raise copy(self._failure) from self._failure.__cause__
            asking, mine = self._asking, self._asking is None
            if asking is None:
                asking = self._asking = self._handler.Future()
        if not mine:
            answered: Secret = asking.result(max(0.0, deadline - self._handler.monotonic()))
            return answered
        try:
            token = self._ask(deadline)
        except BaseException as exc:
            error = exc if isinstance(exc, Exception) else TokenEndpointError(f"{self._where}: whoever asked it was stopped")
            if isinstance(exc, KafkaException):
                self._failure, self._ask_again_at = copy(exc), self._handler.monotonic() + AGAIN_S
                self._failure.__cause__ = exc.__cause__
                without_frames(self._failure)
            self._asked(asking)
            asking.set_exception(error)
            raise
        self._token, self._failure = token, None
        self._asked(asking)
        asking.set(token.text)
        return token.text

    def _asked(self, asking: Future) -> None:
        with self._lock:
            if self._asking is asking:
                self._asking = None

    def _ask(self, deadline: float) -> Token:
        asked_at = self._handler.monotonic()
        request = self._request()
        try:
            stream = open_stream(self._handler, self._host, self._port, deadline=deadline, config=self._tls)
        except KafkaException as exc:
            raise (TokenEndpointError if exc.retriable else type(exc))(f"{self._where}: {exc}") from exc
        unreadable = ""
        try:
            stream.send_all([request], deadline)
            status, body = self._answer(stream, deadline)
        except OSError as exc:
            raise TokenEndpointError(f"{self._where}: no answer that can be read: {type(exc).__name__}: {exc}") from exc
        except (HTTPException, ValueError) as exc:
            unreadable = f"{type(exc).__name__}: {self._shown(str(exc))}"
        finally:
            stream.close()
        if unreadable:  # raised here: what it comes from repeats what the endpoint said
            raise TokenEndpointError(f"{self._where}: no answer that can be read: {unreadable}")
        token, lifetime_s = self._read(status, body)
        log.debug("%s: a new token, for %s s", self._where, lifetime_s)
        return Token(token, asked_at + FRESH * lifetime_s)

    def _request(self) -> bytes:
        secret = self._config.sasl_oauth_client_secret
        if callable(secret):
            try:
                secret = secret()
            except Exception as exc:
                raise AuthenticationError(f"sasl_oauth_client_secret gave no secret: it raised {type(exc).__name__}") from exc
        if not isinstance(secret, str) or not is_utf8(secret):
            raise AuthenticationError(f"sasl_oauth_client_secret gave no text that can be sent, but {type(secret).__name__}")
        self._said = Secret(secret)
        text = self._said.reveal()
        who = f"{quote_plus(self._config.sasl_oauth_client_id or '')}:{quote_plus(text)}"
        form = {"grant_type": "client_credentials"}
        if self._config.sasl_oauth_scope:
            form["scope"] = self._config.sasl_oauth_scope
        body = urlencode(form)
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [
            f"POST {self._path.reveal()} HTTP/1.1",
            f"Host: {host}" + (f":{self._port}" if self._port != 443 else ""),
            f"Authorization: Basic {base64.b64encode(who.encode()).decode()}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Accept: application/json",
            f"User-Agent: gkafka/{gkafka.__version__}",
            "Connection: close",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    def _answer(self, stream: Stream, deadline: float) -> tuple[int, bytes]:
        response = HTTPResponse(_Socket(stream, deadline), method="POST")  # type: ignore[arg-type]
        response.begin()
        # Never all at once: http.client takes as much memory as the answer says that it has.
        body = response.read(LONGEST_ANSWER)
        if response.length:
            raise IncompleteRead(body, response.length)
        return response.status, body

    def _read(self, status: int, body: bytes) -> tuple[Secret, float]:
        told = _json(body)
        if status != 200:
            self._refuse(status, told)
        token, lifetime = told.get("access_token"), told.get("expires_in", LIFETIME_S)
        if not isinstance(token, str) or not token:
            raise AuthenticationError(f"{self._where}: its answer holds no access_token")
        if not TOKEN.fullmatch(token):
            raise AuthenticationError(f"{self._where}: its access_token holds characters that no token has, as spaces or line breaks")
        try:
            seconds = float(lifetime)
        except (TypeError, ValueError, OverflowError):
            seconds = LIFETIME_S
        return Secret(token), min(max(0.0, seconds), 86400.0)

    def _refuse(self, status: int, told: dict[str, Any]) -> None:
        words = [told.get(name) for name in ("error", "error_description")]
        why = ": ".join(self._shown(word) for word in words if isinstance(word, str))
        text = f"{self._where}: HTTP status {status}{f': {why}' if why else ''}"
        if status >= 500 or status == 429:
            raise TokenEndpointError(text)
        if 300 <= status < 400:
            raise AuthenticationError(f"{text}; no redirect is followed: give as sasl_oauth_token_endpoint_url where it leads to")
        raise AuthenticationError(f"{text}; check sasl_oauth_client_id, its secret and the scope")

    def _shown(self, text: str) -> str:
        """The endpoint's words, without what it may have repeated of the client's secret."""
        said = self._said.reveal()
        return escaped(masked(text, [self._said, Secret(quote_plus(said))]), LONGEST_TEXT)


def _place(url: str) -> tuple[str, int, Secret]:
    """(host, port, path with query): what stands in a query may be a key."""
    parts = token_endpoint(url)
    return parts.hostname or "", parts.port or 443, Secret((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _json(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    return told if isinstance(told, dict) else {}


class _Socket:
    """As much of a socket as http.client wants to read an answer."""

    def __init__(self, stream: Stream, deadline: float) -> None:
        self._raw = _Raw(stream, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._raw)


class _Raw(io.RawIOBase):
    """A stream as a file, up to a deadline and LONGEST_ANSWER bytes."""

    def __init__(self, stream: Stream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline
        self._left = LONGEST_ANSWER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        received = self._stream.recv_into(memoryview(buffer), self._deadline)
        self._left -= received
        if self._left < 0:
            raise ValueError(f"the answer has more than {LONGEST_ANSWER} bytes")
        return received
