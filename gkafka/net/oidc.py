"""Tokens from an OAuth 2.0 token endpoint by the client's own credentials (RFC 6749, section 4.4), over https, or http on this machine.

The connection is one of the handler's streams, so that it is cooperative and ends by its deadline; the standard library reads the answer. No
redirect is followed: the client's secret goes to the URL that the options name and to nobody else.
"""

from __future__ import annotations

import base64
import io
import json
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import quote_plus, urlencode

import gkafka
from gkafka.config import ClientConfig, Secret, is_utf8
from gkafka.core.sasl import TOKEN, masked, remarks
from gkafka.escaping import escaped
from gkafka.exceptions import AuthenticationError, ConfigurationError, KafkaException, TokenEndpointError
from gkafka.handlers import Handler, Stream
from gkafka.logs import get_logger
from gkafka.net.stream import open_stream
from gkafka.net.tlscontext import check_tls
from gkafka.net.tokens import Token, Tokens
from gkafka.oauthoptions import form_fields, token_endpoint
from gkafka.sasloptions import seems_secret

__all__ = ["TokenEndpoint"]

log = get_logger(__name__)
LONGEST_ANSWER = 1 << 18  # bytes, headers included
LIFETIME_S = 60.0  # of a token whose endpoint does not say
LONGEST_TEXT = 200  # characters of its own words that an error repeats
FOR_A_MOMENT = ("slow_down", "temporarily_unavailable", "server_error")  # errors that say nothing against the client
CHECK = (
    "check sasl_oauth_client_id, its secret and the scope; some endpoints want sasl_oauth_audience, or the secret in the form: "
    "sasl_oauth_client_auth='client_secret_post'"
)


class TokenEndpoint(Tokens):
    """The tokens of one client that asks an endpoint for them."""

    def __init__(self, handler: Handler, config: ClientConfig) -> None:
        self._config = config
        self._endpoint = token_endpoint(config.sasl_oauth_token_endpoint_url or "")
        self._fields = form_fields(config.sasl_oauth_form_fields)
        self._way = ClientConfig(
            security_protocol="SSL" if self._endpoint.is_encrypted else "PLAINTEXT",
            ssl_cafile=config.sasl_oauth_cafile if self._endpoint.is_encrypted else None,
            proxy_url=config.sasl_oauth_proxy_url,
        )
        if self._way.uses_tls:
            try:
                check_tls(self._way)
            except ConfigurationError as exc:
                raise ConfigurationError(_named(str(exc))) from exc
        super().__init__(handler, f"token endpoint {self._endpoint.host}:{self._endpoint.port}")
        self._said = Secret()  # the client's secret that was sent last

    def _ask(self, deadline: float) -> Token:
        asked_at = self._handler.monotonic()
        request = self._request()
        try:
            stream = open_stream(self._handler, self._endpoint.host, self._endpoint.port, deadline=deadline, config=self._way)
        except KafkaException as exc:
            raise (TokenEndpointError if exc.retriable else type(exc))(f"{self._where}: {_named(str(exc))}") from exc
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
        return Token.of(token, asked_at, lifetime_s)

    def _request(self) -> bytes:
        """The whole request. It holds the secret: what comes out of an authentication has lost the frames of these functions."""
        who = self._who()
        in_form = self._config.sasl_oauth_client_auth == "client_secret_post"
        body = urlencode({**self._form(), **(who if in_form else {})})
        lines = [
            f"POST {self._endpoint.path.reveal()} HTTP/1.1",
            f"Host: {self._endpoint.netloc}",
            *_authorization({} if in_form else who),
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Accept: application/json",
            f"User-Agent: gkafka/{gkafka.__version__}",
            "Connection: close",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    def _form(self) -> dict[str, str]:
        """The fields of the request, without those that say who asks."""
        asked = {"scope": self._config.sasl_oauth_scope, "audience": self._config.sasl_oauth_audience}
        further = {name: value.reveal() for name, value in self._fields.items()}
        return {"grant_type": "client_credentials", **{name: value for name, value in asked.items() if value}, **further}

    def _who(self) -> dict[str, str]:
        """The client's id and secret, as the fields that hold them; nothing where an endpoint on this machine knows who asks."""
        if self._config.sasl_oauth_client_secret is None:
            return {}
        return {"client_id": self._config.sasl_oauth_client_id or "", "client_secret": self._secret().reveal()}

    def _secret(self) -> Secret:
        secret = self._config.sasl_oauth_client_secret
        if callable(secret):
            try:
                secret = secret()
            except Exception as exc:
                raise AuthenticationError(f"sasl_oauth_client_secret gave no secret: it raised {type(exc).__name__}") from exc
        if not isinstance(secret, str) or not is_utf8(secret):
            raise AuthenticationError(f"sasl_oauth_client_secret gave no text that can be sent, but {type(secret).__name__}")
        self._said = Secret(secret)
        return self._said

    def _answer(self, stream: Stream, deadline: float) -> tuple[int, bytes]:
        response = HTTPResponse(_Socket(stream, deadline), method="POST")  # type: ignore[arg-type]  # http.client takes whatever has makefile()
        response.begin()
        # Never all at once: http.client takes as much memory as the answer says that it has.
        body = response.read(LONGEST_ANSWER)
        if response.length:
            raise IncompleteRead(body, response.length)
        return response.status, body

    def _read(self, status: int, body: bytes) -> tuple[Secret, float]:
        told = _json(body)
        if status != 200 or (not told.get("access_token") and isinstance(told.get("error"), str)):  # some refuse with status 200
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
        if status >= 500 or status == 429 or told.get("error") in FOR_A_MOMENT:
            raise TokenEndpointError(text)
        if 300 <= status < 400:
            raise AuthenticationError(f"{text}; no redirect is followed: give as sasl_oauth_token_endpoint_url where it leads to")
        remark = remarks({"the client's id": self._config.sasl_oauth_client_id, "the client's secret": self._said})
        raise AuthenticationError(f"{text}; {remark or CHECK}")

    def _shown(self, text: str) -> str:
        """The endpoint's words, without what it may have repeated of the client's secrets."""
        secrets = [self._said, *(value for name, value in self._fields.items() if seems_secret(name) or "assertion" in name)]
        return escaped(masked(text, [*secrets, *(Secret(quote_plus(secret.reveal())) for secret in secrets)]), LONGEST_TEXT)


def _authorization(who: dict[str, str]) -> list[str]:
    """The header of HTTP Basic; RFC 6749, section 2.3.1, has both parts encoded as in a form."""
    if not who:
        return []
    pair = ":".join(map(quote_plus, who.values()))
    return [f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]


def _named(text: str) -> str:
    """An error of the connection to the endpoint, with the names of the endpoint's options."""
    return text.replace("proxy_url", "sasl_oauth_proxy_url").replace("ssl_cafile", "sasl_oauth_cafile")


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
