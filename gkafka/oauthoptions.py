"""What a token endpoint is asked with, checked before anything connects: its URL, and the fields of the request."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gkafka.config import NOT_UTF8, ClientConfig, Secret, is_utf8
from gkafka.exceptions import ConfigurationError

__all__ = ["ENDPOINT", "OF_ENDPOINT", "Endpoint", "check_endpoint", "form_fields", "token_endpoint"]

ENDPOINT = ("sasl_oauth_token_endpoint_url", "sasl_oauth_client_id", "sasl_oauth_client_secret")
OF_ENDPOINT = (
    "sasl_oauth_scope",
    "sasl_oauth_audience",
    "sasl_oauth_form_fields",
    "sasl_oauth_client_auth",
    "sasl_oauth_cafile",
    "sasl_oauth_proxy_url",
    "sasl_oauth_allow_http",
)
"""Options that say more about the request for a token."""
OWN_FIELDS = {
    "grant_type": "it is client_credentials",
    "scope": "give sasl_oauth_scope",
    "audience": "give sasl_oauth_audience",
    "client_id": "give sasl_oauth_client_id, and sasl_oauth_client_auth='client_secret_post'",
    "client_secret": "give sasl_oauth_client_secret, and sasl_oauth_client_auth='client_secret_post'",
}
"""Fields that have options of their own."""
PORTS = {"https": 443, "http": 80}


class Endpoint(NamedTuple):
    """Where tokens come from. path: with the query, in which a key may stand."""

    scheme: str
    host: str
    port: int
    path: Secret

    @property
    def is_encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine."""
        return _is_loopback(self.host)

    @property
    def netloc(self) -> str:
        """host:port as a Host header has it, without the scheme's usual port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def check_endpoint(config: ClientConfig) -> None:
    """Raise ConfigurationError, with the next step, for options of the token endpoint that are missing, unsafe or cannot be sent."""
    if not config.sasl_oauth_token_endpoint_url:
        raise ConfigurationError(f"sasl_oauth_token_endpoint_url without a URL: give {', '.join(ENDPOINT)}")
    endpoint = token_endpoint(config.sasl_oauth_token_endpoint_url)
    missing = [name for name in ENDPOINT if not getattr(config, name)]
    is_sidecar = endpoint.is_here and not endpoint.is_encrypted  # it knows who asks
    if missing and not (is_sidecar and missing == list(ENDPOINT[1:])):
        raise ConfigurationError(f"sasl_oauth_token_endpoint_url without {missing[0]}: give {', '.join(ENDPOINT)}")
    stays_here = endpoint.is_here and config.sasl_oauth_proxy_url is None
    if not (endpoint.is_encrypted or stays_here or config.sasl_oauth_allow_http):
        raise ConfigurationError(_clear_text(endpoint))
    if config.sasl_oauth_cafile is not None and not endpoint.is_encrypted:
        raise ConfigurationError("sasl_oauth_cafile with an http URL, where no certificate is shown: leave it out, or give an https URL")
    _check_utf8(config, (*ENDPOINT, "sasl_oauth_scope", "sasl_oauth_audience", "sasl_oauth_form_fields"))
    form_fields(config.sasl_oauth_form_fields)


def _clear_text(endpoint: Endpoint) -> str:
    why = "through sasl_oauth_proxy_url" if endpoint.is_here else f"to {endpoint.host!r}"
    return (
        f"sasl_oauth_token_endpoint_url of 'http' scheme {why}: the client's secret and the token would travel in clear text: give an https URL, as "
        "'https://login.example/oauth2/token', or an http URL of this machine, as 'http://localhost:14293', without a proxy, or, where nobody can "
        "listen, sasl_oauth_allow_http=True"
    )


def _check_utf8(config: ClientConfig, names: Iterable[str]) -> None:
    for name in names:
        given = getattr(config, name)
        texts = [*given, *given.values()] if isinstance(given, Mapping) else [given]
        if not all(is_utf8(text) for text in texts if isinstance(text, str)):
            raise ConfigurationError(f"{name}: {NOT_UTF8}")


# -- its URL -----------------------------------------------------------------------------------------------------------
def token_endpoint(url: str) -> Endpoint:
    """The endpoint that a URL names. Raises ConfigurationError for one that is none: of another scheme it would read files, or hold a password."""
    url = Secret(url)
    found = _token_endpoint(url)
    if isinstance(found, str):  # raised here, where no variable shows a part of the URL
        raise ConfigurationError(f"sasl_oauth_token_endpoint_url: {found}")
    return found


def _token_endpoint(url: Secret) -> Endpoint | str:
    """The endpoint, or what is wrong with the URL, without what may be a password."""
    try:
        parts = _split(url)
        port = parts.port
    except ValueError:
        return "its host or its port is none"
    if port == 0:
        return "its port must be one from 1 to 65535"
    if "://" not in url and parts.scheme not in PORTS:
        return "has no scheme: must be an https URL, as 'https://login.example/oauth2/token'"
    if parts.scheme not in PORTS or not parts.hostname:
        kind = f"one of {parts.scheme!r} scheme" if parts.scheme in ("ftp", "file") else "of another kind"
        return f"must be an https URL, as 'https://login.example/oauth2/token', not {kind}"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have no user, password or fragment: give sasl_oauth_client_id and its secret"
    if not url.isascii() or any(c <= " " or c == "\x7f" for c in url.reveal()):
        return "holds characters that a URL has not"
    path = Secret((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    return Endpoint(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)


def _split(url: Secret) -> SplitResult:
    """The parts of a URL. Google's page for librdkafka names its sidecar without a scheme: 'localhost:14293'. Raises ValueError."""
    text = url.reveal()
    bare = urlsplit(f"//{text}")
    if "://" not in text and bare.port and _is_loopback(bare.hostname or ""):
        return bare._replace(scheme="http")
    return urlsplit(text)


def _is_loopback(host: str) -> bool:
    """Whether what is sent to this host never leaves the machine."""
    if host.lower() == "localhost":  # with a dot at its end, name servers are asked
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


# -- further fields ----------------------------------------------------------------------------------------------------
def form_fields(given: Mapping[str, Any] | str | None) -> dict[str, Secret]:
    """The fields of sasl_oauth_form_fields, of which no value is shown. Raises ConfigurationError for what is no field, or has an option of its own."""
    pairs: Iterable[tuple[Any, Any]] = given.items() if isinstance(given, Mapping) else _parsed(Secret(given or ""))
    fields: dict[str, Secret] = {}
    for name, value in pairs:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"sasl_oauth_form_fields: field {len(fields) + 1} has no name: give a mapping of names to values")
        if name in OWN_FIELDS:
            raise ConfigurationError(f"sasl_oauth_form_fields: {name!r} is no further field: {OWN_FIELDS[name]}")
        if name in fields:
            raise ConfigurationError(f"sasl_oauth_form_fields: {name!r} is given twice")
        if not isinstance(value, str):
            raise ConfigurationError(f"sasl_oauth_form_fields: {name!r}: its value must be str, not {type(value).__name__}")
        fields[name] = Secret(value)
    return fields


def _parsed(text: Secret) -> list[tuple[str, Secret]]:
    """The fields of a text 'name=value&name=value'."""
    if not text:
        return []
    try:
        pairs = parse_qsl(text.reveal(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        pairs = []
    if not pairs:
        raise ConfigurationError(f"sasl_oauth_form_fields, a text of {len(text)} characters: must be name=value, with & between fields")
    return [(name, Secret(value)) for name, value in pairs]
