"""Every option, once: name, type, default, bounds, aliases, documentation.

From these dataclasses come the keyword arguments of the public calls, the checks with their error texts, the aliases
(`linger.ms`) and the table that `kafka-tools docs options` shows. An option that is not here does not exist.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, TypeVar

from gkafka.exceptions import ConfigurationError, UnknownOptionError
from gkafka.othernames import here
from gkafka.pages import page
from gkafka.unseen import refused

__all__ = [
    "NOT_UTF8",
    "ClientConfig",
    "ConsumerConfig",
    "NativeConsumerConfig",
    "ProducerConfig",
    "Secret",
    "build",
    "check",
    "check_keywords",
    "check_security",
    "check_socket_options",
    "ineffective_tls_option",
    "WORD",
    "is_near",
    "is_pem_text",
    "is_utf8",
    "keywords_of",
    "may_be_key",
    "options_table",
    "unconfirmed_tls_option",
]

C = TypeVar("C")
GIVEN_BY_TOPIC = ("self", "topic", "cluster")
"""Arguments of a constructor that its user does not give."""
CODECS = (None, "none", "gzip", "snappy", "lz4", "zstd", "auto")
ACKS = {"all": -1, -1: -1, 0: 0, 1: 1, "0": 0, "1": 1, "-1": -1}
LISTED = f"; {page('options')} lists all"
NEARLY = 0.75  # of two texts: a slip of the pen
MiB = 1 << 20
KEY_TEXT = re.compile(r"[A-Za-z0-9+/=\s]{100,}|\s*M[A-Za-z0-9+/=\s]{40,}")
"""Base64; the name of a file is shorter, or holds a dot or a dash. Every key begins with an M (DER's SEQUENCE); one of Ed25519 has 64 characters."""
NOT_UTF8 = "it holds halves of characters, which UTF-8 has not: is the file that it comes from in another encoding?"
INT32 = (1 << 31) - 1  # of a time in ms that goes to the broker


class Secret(str):
    """A text that never shows itself: repr, str and format give `***`; `.reveal()` gives the text. Nor does it without white space or in another case."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Secret:
        # What is in it: a Secret, or a member of an enum, would tell something else.
        return str.__new__(cls, str.__str__(text) if isinstance(text, str) else text)

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: Any) -> Secret:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Secret is not pickled: pass the credential to the process that needs it")

    def strip(self, chars: str | None = None, /) -> Secret:
        return Secret(str.strip(self, chars))

    def lower(self) -> Secret:
        return Secret(str.lower(self))

    def upper(self) -> Secret:
        return Secret(str.upper(self))

    def reveal(self) -> str:
        return str.__str__(self)


class Options:
    """What the dataclasses below have in common, once for all of them: `dataclasses` would write and compile it anew for each, with 100 options
    the better part of this module's import. All options are keyword arguments; those that are not given have their defaults."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        for f in self._fields():
            object.__setattr__(self, f.name, values.pop(f.name, f.default))
        if values:
            raise TypeError(f"{type(self).__name__}() has no option {', '.join(map(repr, values))}")

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value, f in self._each() if f.repr)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(value == getattr(other, name) for name, value, _ in self._each())

    def __hash__(self) -> int:
        return hash(tuple(value for _, value, _ in self._each()))

    def _each(self) -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
        return ((f.name, getattr(self, f.name), f) for f in self._fields())

    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(self)  # type: ignore[arg-type]  # each class that is made is a dataclass


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    names: tuple[str, ...] = (),
    types: tuple[Any, ...] = (),
    aliases: tuple[str, ...] = (),
    none: bool = False,
    secret: bool = False,
    beside_secret: bool = False,
    pem: bool = False,
) -> Any:
    """One option.

    low, high: inclusive bounds of a number; names: texts that stand for something, beside what types allows; none: None is a value too; aliases: other spellings that are accepted; secret: a text is
    kept as a Secret and the field stays out of the repr; beside_secret: where a secret is given by mistake, so that a wrong value is not told; pem: the path of a file, or the text of one, which may be a key and is kept as a Secret.
    """
    meta: dict[str, Any] = {"doc": doc, "low": low, "high": high, "choices": choices, "names": names, "types": types}
    meta |= {"aliases": aliases, "none": none, "secret": secret, "beside_secret": beside_secret, "pem": pem}
    return dataclasses.field(default=default, metadata=meta, repr=not secret)


WORD = re.compile(r"[\w.+-]{0,40}")
"""What the values look like of which there are only some: what was pasted in place of one may be a secret."""


def check(name: str, value: Any, meta: Mapping[str, Any], *, whole: bool = False) -> Any:
    """The value of an option, or a ConfigurationError that says what it may be. whole: a number without a fraction."""
    if value is None and (meta["none"] or (meta["choices"] is not None and None in meta["choices"])):
        return value
    if meta["choices"] is not None:
        # True == 1, and is not meant so. What is no text or number need not be comparable at all.
        if not isinstance(value, (str, int, float)) or isinstance(value, bool) or value not in meta["choices"]:
            rule = f"must be one of {', '.join(map(repr, meta['choices']))}{_near(value, meta['choices'])}"
            if (meta["beside_secret"] or (isinstance(value, str) and not WORD.fullmatch(value))) and not is_near(value, meta["choices"]):
                kind = f"a text of {len(value)} characters" if isinstance(value, str) else f"of type {type(value).__name__}"
                raise ConfigurationError(f"{name}, {kind}: {rule}")
            raise refused(name, value, rule)
        return value
    if meta["names"] and isinstance(value, str):
        if value not in meta["names"]:
            raise ConfigurationError(
                f"{name}={value!r}: must be one of {', '.join(map(repr, meta['names']))}, or a callable{_near(value, meta['names'])}"
            )
        return value
    if meta["low"] is not None or meta["high"] is not None:
        return _number(name, value, meta, whole)
    if meta["types"] and not isinstance(value, meta["types"]):
        wanted = " or ".join("callable" if t is Callable else t.__name__ for t in meta["types"])
        rule = f"must be {wanted}, not {'str' if isinstance(value, Secret) else type(value).__name__}"
        raise ConfigurationError(f"{name}: {rule}") if meta["secret"] or meta["beside_secret"] else refused(name, value, rule)
    return value


def _number(name: str, value: Any, meta: Mapping[str, Any], whole: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refused(name, value, f"must be a number, not {type(value).__name__}")
    if not _is_finite(value) or (whole and value != int(value)):
        raise refused(name, value, f"must be a {'whole' if whole else 'finite'} number")
    if meta["low"] is not None and value < meta["low"]:
        raise refused(name, value, f"must be {meta['low']} or more")
    if meta["high"] is not None and value > meta["high"]:
        raise refused(name, value, f"must be {meta['high']} or less")
    return int(value) if whole else value


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def is_near(value: Any, choices: Iterable[Any]) -> bool:
    """Whether a value is nearly one of these texts, so that it can be shown: it is no secret."""
    return isinstance(value, str) and bool(
        difflib.get_close_matches(value.upper(), [c for c in choices if isinstance(c, str)], n=1, cutoff=NEARLY)
    )


def _near(value: Any, names: Any) -> str:
    near = difflib.get_close_matches(str(value), [str(n) for n in names], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def build(cls: type[C], given: Mapping[str, Any], *, where: str, owner: type[Any] | None = None) -> C:
    """An instance of an options dataclass from keyword arguments. where: the call that the user made, for the error's text; owner: whose constructor
    has more names, which may have been meant.

    Raises ConfigurationError for an unknown name (with a near miss), a wrong type or a value out of bounds.
    """
    options: type[Any] = cls  # for mypy any class at all: it is a dataclass
    fields = {f.name: f for f in dataclasses.fields(options)}
    spellings = _spellings(cls)
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = spellings.get(key)
        if name is None:
            known = [*spellings, *(keywords_of(owner) if owner is not None else ())]
            raise UnknownOptionError(f"{where}: unknown option {key!r}{_meant(key, known)}")
        if name in values:
            raise ConfigurationError(f"{where}: {key!r} is given twice (it is another spelling of {name!r})")
        checked = check(name, value, fields[name].metadata, whole=str(fields[name].type).startswith("int"))
        values[name] = _kept(checked, fields[name].metadata)
    return cls(**values)


def _meant(key: str, known: list[str]) -> str:
    """What to say of an option that a call does not take. known: those that it takes."""
    if (said := here(key, known)) is not None:
        return said
    for config, call in ((ClientConfig, "KafkaClient()"), (ProducerConfig, "get_producer()"), (NativeConsumerConfig, "get_consumer()")):
        if key in _spellings(config):
            return f"; it is an option of {call}"
    return _near(key, known) or LISTED


def _spellings(config: type[Any]) -> dict[str, str]:
    """What an option may be called -> its name."""
    return {s: f.name for f in dataclasses.fields(config) for s in (f.name, f.name.replace("_", "."), *f.metadata["aliases"])}


def keywords_of(owner: type[Any]) -> tuple[str, ...]:
    """The names that a constructor has in its signature."""
    code = owner.__init__.__code__
    return tuple(name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name not in GIVEN_BY_TOPIC)


def check_keywords(owner: type[Any], given: Mapping[str, Any], config: type[Any], *, beside: Iterable[str] = ()) -> None:
    """Raise UnknownOptionError for a keyword that neither owner's constructor has by name nor config. beside: what the call
    that makes it takes, too."""
    known = [*keywords_of(owner), *_spellings(config), *beside]
    for key in given:
        if key not in known:  # its value is not told: it may be a password with a mistyped name
            raise UnknownOptionError(f"{owner.__name__}(): unknown option {key!r}{_meant(key, known)}")


def _kept(value: Any, meta: Mapping[str, Any]) -> Any:
    secret = isinstance(value, str) and (meta["secret"] or (meta["pem"] and may_be_key(value)))
    return Secret(value) if secret else value


def is_pem_text(value: str) -> bool:
    """Whether an option holds what would stand in a PEM file, and not the path of one."""
    return "-----BEGIN " in value


def may_be_key(value: str) -> bool:
    """Whether an option that takes PEM may hold a key's text, also one whose first line was left out, and no path: then nothing shows it."""
    return is_pem_text(value) or "\n" in value or KEY_TEXT.fullmatch(value) is not None


def is_utf8(text: str) -> bool:
    """Can this text be sent? What was read from a file in another encoding may hold halves of characters."""
    try:
        (text.reveal() if isinstance(text, Secret) else text).encode()
    except UnicodeEncodeError:
        return False
    return True


INTO_THE_CONTEXT = {
    "ssl_cafile": "load_verify_locations()",
    "ssl_certfile": "load_cert_chain()",
    "ssl_keyfile": "load_cert_chain()",
    "ssl_password": "load_cert_chain()",
    "ssl_crlfile": "load_verify_locations() and verify_flags",
    "ssl_ciphers": "set_ciphers()",
    "ssl_check_hostname": "check_hostname",
    "tls_verify": "check_hostname and verify_mode",
    "allow_unverified_tls": "check_hostname and verify_mode",
}
"""Options of TLS that a user's `ssl_context` leaves nothing to do for, and where it takes the same."""


def ineffective_tls_option(options: Mapping[str, Any]) -> str | None:
    """The name of an option that asks for TLS while security_protocol (PLAINTEXT if it is not there) turns it off."""
    if options.get("security_protocol", "PLAINTEXT") not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return None
    settings = ("ssl_context", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_crlfile", "ssl_ciphers")
    given = [name for name in settings if options.get(name) is not None] + _checks_turned_off(options)
    return given[0] if given else None


def unconfirmed_tls_option(options: Mapping[str, Any]) -> str | None:
    """The name of an option that turns a check of TLS off, without the second word that this takes."""
    off = [] if options.get("allow_unverified_tls", False) else _checks_turned_off(options)
    return off[0] if off else None


def _checks_turned_off(options: Mapping[str, Any]) -> list[str]:
    return [name for name in ("tls_verify", "ssl_check_hostname") if options.get(name, True) is False]


def check_security(config: ClientConfig) -> None:
    """Raise ConfigurationError for options of TLS that would have no effect: beside clear text, or beside an `ssl_context`."""
    name = ineffective_tls_option({f.name: getattr(config, f.name) for f in dataclasses.fields(config)})
    if name is not None:
        raise ConfigurationError(
            f"{name} with security_protocol={config.security_protocol!r}, which sends everything in clear text: "
            f"set security_protocol={'SASL_SSL' if config.uses_sasl else 'SSL'!r}, or leave {name} out"
        )
    if config.ssl_context is not None:
        _check_beside_context(config)
    name = unconfirmed_tls_option({f.name: getattr(config, f.name) for f in dataclasses.fields(config)})
    if name is not None:
        raise ConfigurationError(
            f"{name}=False gives up what makes TLS safe against whoever is in between: set allow_unverified_tls=True too if that is meant, "
            f"or leave {name} out and give the brokers' authority, ssl_cafile=..."
        )
    _check_alone(config)


def _check_alone(config: ClientConfig) -> None:
    if config.ssl_password is not None and config.ssl_certfile is None and config.ssl_keyfile is None:
        raise ConfigurationError(
            "ssl_password without ssl_certfile, whose key it would open: give the client's certificate and key too, or leave ssl_password out"
        )
    if config.allow_unverified_tls and config.tls_verify and config.ssl_check_hostname:
        raise ConfigurationError(
            "allow_unverified_tls=True alone turns no check off: set tls_verify=False or ssl_check_hostname=False too if that is meant, "
            "or leave allow_unverified_tls out"
        )


def _check_beside_context(config: ClientConfig) -> None:
    unset = ClientConfig()
    for name, there in INTO_THE_CONTEXT.items():
        if getattr(config, name) != getattr(unset, name):
            raise ConfigurationError(
                f"ssl_context together with {name}: the context is used unchanged, so {name} would have no effect: "
                f"leave {name} out (the context takes the same by its {there}), or leave ssl_context out"
            )


def check_socket_options(config: ClientConfig) -> None:
    """Raise ConfigurationError for what setsockopt() cannot take, whatever the system knows."""
    for one in config.socket_options:
        if not (isinstance(one, (tuple, list)) and len(one) == 3 and _c_int(one[0]) and _c_int(one[1])):
            raise ConfigurationError(f"socket_options: {one!r}: must be (level, option, value), as socket.setsockopt() takes them")
        if not (_c_int(one[2]) or isinstance(one[2], (bytes, bytearray))):
            raise ConfigurationError(f"socket_options: {one!r}: the value must be a number of 32 bits, or bytes")


def _c_int(value: Any) -> bool:
    return isinstance(value, int) and -(1 << 31) <= value < 1 << 31


def options_table(cls: type[Any], *, beyond: type[Any] | None = None) -> str:
    """The Markdown table of an options dataclass: what `kafka-tools docs options` shows. beyond: a base, whose options are left out."""
    known = {f.name for f in dataclasses.fields(beyond)} if beyond is not None else set()
    rows = ["| option | default | values | meaning |", "|---|---|---|---|"]
    for f in dataclasses.fields(cls):
        if f.name in known:
            continue
        m = f.metadata
        low, high = m["low"], m["high"]
        values = ""
        if m["choices"]:
            values = ", ".join(f"`{c!r}`" for c in m["choices"])
        elif m["names"]:
            values = ", ".join(f"`{n!r}`" for n in m["names"]) + " or a callable"
        elif low is not None:
            values = f"{low} to {high}" if high is not None else f"{low} or more"
        rows.append(f"| `{f.name}` | `{f.default!r}` | {values} | {m['doc']} |")
    return "\n".join(rows)


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class ClientConfig(Options):
    """Connections and metadata: the keyword-only options of KafkaClient."""

    client_id: str = option("gkafka", "name shown in the broker's logs and quotas", types=(str,))
    socket_timeout_ms: float = option(30000, "longest wait for an answer on the control, produce and fetch connections", low=1, high=INT32)
    offsets_channel_socket_timeout_ms: float = option(10000, "longest wait for an answer to an offset commit or fetch", low=1)
    connect_timeout_ms: float = option(10000, "TCP, TLS and version negotiation together", low=1)
    reconnect_backoff_ms: float = option(50, "first pause before a broker is tried again; doubles, with 20 % jitter", low=0)
    reconnect_backoff_max_ms: float = option(5000, "longest pause before a broker is tried again", low=0)
    metadata_max_age_ms: float = option(300000, "metadata is asked anew after this", low=100, aliases=("metadata.max.age.ms",))
    metadata_max_idle_ms: float = option(
        300000,
        "a topic that only producers use is forgotten when none has written to it for this long; the next record has it asked for again",
        low=100,
        aliases=("metadata.max.idle.ms",),
    )
    api_timeout_ms: float = option(60000, "default deadline of calls that take a timeout", low=1)
    max_response_bytes: int = option(100 * MiB, "a longer answer is refused before memory is taken", low=1024, high=(1 << 31) - 1)
    max_in_flight_per_connection: int | None = option(
        None,
        "requests without an answer on a connection; further ones wait for an answer. None: as many as are asked for",
        low=1,
        none=True,
    )
    keepalive: bool = option(True, "TCP keepalive after 60 s of silence", types=(bool,))
    keepalive_idle_s: int = option(60, "silence before the first keepalive probe, in seconds", low=1, high=32767)
    source_address: tuple[str, int] | None = option(None, "local (host, port) of the sockets", none=True, types=(tuple,))
    socket_options: tuple[tuple[int, int, int | bytes], ...] = option(
        (), "(level, option, value) for setsockopt(), set on each connection before it is made, in this order", types=(tuple, list)
    )
    broker_version: str = option("0.9.0", "the broker's version if it cannot be asked; '0.9.0' means: ask first", types=(str,))
    max_broker_version: str | None = option(
        None, "a release of Kafka, as '2.8': of what brokers speak, what came later is not used (None: all is)", none=True, types=(str,)
    )
    security_protocol: str = option(
        "PLAINTEXT",
        f"what the listener speaks: with SSL in its name TLS, with SASL the client says who it is ({page('security')})",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ssl_context: Any = option(
        None, "an ssl.SSLContext, used unchanged, in place of the other `ssl_` options and `tls_verify`: with them it is refused", none=True
    )
    ssl_cafile: str | None = option(
        None, "PEM file of the authorities to trust, or its text; the system's if not given", none=True, types=(str,), pem=True
    )
    ssl_certfile: str | None = option(
        None, "PEM file of this client's certificate and those between it and its authority, or its text", none=True, types=(str,), pem=True
    )
    ssl_keyfile: str | None = option(
        None, "PEM file of its key, or its text; not needed if the key is in `ssl_certfile`", none=True, types=(str,), pem=True
    )
    ssl_password: str | Callable[[], str] | None = option(
        None,
        "pass phrase of the key in ssl_keyfile or ssl_certfile, or a callable that gives it; refused without them",
        none=True,
        secret=True,
        types=(str, Callable),
    )
    ssl_crlfile: str | None = option(
        None,
        "PEM file of the revocation lists of the authorities that sign the brokers' certificates, or its text; a broker whose authority has none there is refused",
        none=True,
        types=(str,),
        pem=True,
    )
    ssl_ciphers: str | None = option(
        None,
        "the ciphers of TLS 1.2 that are offered, in OpenSSL's form; never one without a certificate or encryption; those of TLS 1.3 are always offered",
        none=True,
        types=(str,),
    )
    ssl_check_hostname: bool = option(
        True, "check the host name in the broker's certificate; False takes `allow_unverified_tls` and a warning", types=(bool,)
    )
    tls_verify: bool = option(
        True, "check the broker's certificate and host name; False takes `allow_unverified_tls` and a warning", types=(bool,)
    )
    allow_unverified_tls: bool = option(
        False, "the second word that `tls_verify=False` and `ssl_check_hostname=False` take; refused without either", types=(bool,)
    )
    proxy_url: str | None = option(
        None,
        "socks5:// or http://[user:password@]host:port: connections to brokers go through this proxy (HTTP: by CONNECT), which also looks "
        "their names up; ZooKeeper's do not",
        none=True,
        secret=True,
        types=(str,),
    )
    sasl_mechanism: str | None = option(
        None,
        "how the client says who it is, with security_protocol SASL_SSL or SASL_PLAINTEXT; AWS_MSK_IAM is OAUTHBEARER with tokens that AWS signs",
        choices=(None, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"),
        beside_secret=True,
        aliases=("sasl.mechanisms", "sasl_mechanisms"),
    )
    sasl_username: str | None = option(
        None, "user of PLAIN and SCRAM", none=True, types=(str,), beside_secret=True, aliases=("sasl_plain_username", "sasl.plain.username")
    )
    sasl_password: str | Callable[[], str] | None = option(
        None,
        "the user's password, or a callable that gives it, for each connection",
        none=True,
        secret=True,
        types=(str, Callable),
        aliases=("sasl_plain_password", "sasl.plain.password"),
    )
    sasl_oauth_token_provider: Any = option(
        None,
        "OAUTHBEARER: a callable that gives a token that is still valid, for each authentication; or an object with token() and, if it has "
        "any, extensions(). It is called by a worker of the client",
        none=True,
    )
    sasl_oauth_extensions: Mapping[str, str] | None = option(
        None,
        "OAUTHBEARER: names and values that go with the token (KIP-342), as Confluent Cloud's logicalCluster",
        none=True,
        types=(Mapping,),
        beside_secret=True,
    )
    sasl_oauth_token_endpoint_url: str | None = option(
        None,
        "OAUTHBEARER: https URL that gives tokens for sasl_oauth_client_id and its secret (OAuth 2.0 client credentials), in place of a provider; "
        "http on this machine alone, as 'http://localhost:14293', where the id and its secret may be left out",
        none=True,
        secret=True,  # what stands behind a question mark may be a key
        types=(str,),
        aliases=("sasl.oauthbearer.token.endpoint.url",),
    )
    sasl_oauth_client_id: str | None = option(
        None,
        "the client that the token endpoint knows",
        none=True,
        types=(str,),
        beside_secret=True,
        aliases=("sasl.oauthbearer.client.id",),
    )
    sasl_oauth_client_secret: str | Callable[[], str] | None = option(
        None,
        "its secret, or a callable that gives it",
        none=True,
        secret=True,
        types=(str, Callable),
        aliases=("sasl.oauthbearer.client.secret",),
    )
    sasl_oauth_scope: str | None = option(
        None, "the scope to ask the token endpoint for", none=True, types=(str,), aliases=("sasl.oauthbearer.scope",)
    )
    sasl_oauth_audience: str | None = option(None, "the audience to ask the token endpoint for, as Auth0 wants it", none=True, types=(str,))
    sasl_oauth_form_fields: Mapping[str, str] | str | None = option(
        None,
        "further fields of the request for a token: a mapping of names to values, or a text 'resource=https://kafka.example&tenant=1', in which %26 stands "
        "for &",
        none=True,
        secret=True,
        types=(Mapping, str),
    )
    sasl_oauth_client_auth: str = option(
        "client_secret_basic",
        "how the token endpoint gets sasl_oauth_client_id and its secret: in a header (HTTP Basic), or, client_secret_post, as fields of the request",
        choices=("client_secret_basic", "client_secret_post"),
    )
    sasl_oauth_cafile: str | None = option(
        None, "PEM file of the authorities to trust at the token endpoint; the system's if not given", none=True, types=(str,)
    )
    sasl_oauth_proxy_url: str | None = option(
        None,
        "socks5:// or http://[user:password@]host:port: the proxy to the token endpoint; connections to brokers do not go through it, and proxy_url is "
        "not used for the endpoint",
        none=True,
        secret=True,
        types=(str,),
    )
    sasl_oauth_allow_http: bool = option(
        False,
        "let the client's secret and the token travel in clear text between this machine and a token endpoint with an http URL, where everybody on the way "
        "can read them",
        types=(bool,),
    )
    sasl_kerberos_service_name: str = option("kafka", "GSSAPI: the service part of the brokers' Kerberos principal", types=(str,))
    sasl_kerberos_domain_name: str | None = option(
        None, "GSSAPI: the host part of it; the broker's host name if not given", none=True, types=(str,)
    )
    sasl_aws_region: str | None = option(
        None,
        "AWS_MSK_IAM: the region of the cluster, as 'eu-west-1'; if not given, that in the brokers' names, else AWS_REGION or AWS_DEFAULT_REGION",
        none=True,
        types=(str,),
    )
    sasl_aws_profile: str | None = option(None, "AWS_MSK_IAM: the profile whose credentials sign", none=True, types=(str,))
    sasl_aws_role_arn: str | None = option(None, "AWS_MSK_IAM: the role that is assumed to sign", none=True, types=(str,))
    sasl_aws_role_session_name: str | None = option(None, "AWS_MSK_IAM: the name of that role's session", none=True, types=(str,))
    allow_plaintext_credentials: bool = option(
        False,
        "let PLAIN and OAUTHBEARER send the password or token over SASL_PLAINTEXT, where everybody on the way can read it",
        types=(bool,),
    )
    sasl_retry_timeout_ms: float = option(
        30000,
        "once this client has got in, a broker that refuses it is tried again for this long, with a warning, before calls are told the refusal; 0: they are "
        "told at once, as those of a client that never got in",
        low=0,
    )
    auto_create_topics: bool = option(
        True,
        "asking for a topic by name, or writing to it, lets the broker create it, where the broker allows that, and a warning in the log says so; reading one that was deleted does not make it again, nor does a producer that has nothing for it. False: a name that is misspelt is an UnknownTopicError",
        types=(bool,),
    )
    hub_stall_meter: bool = option(
        False,
        "measure how long greenlets keep gevent's hub from all others, for `stats()['hub_stall_ms']`, and warn above a second; OS threads have no hub: a warning says so, once, and nothing is measured",
        types=(bool,),
    )

    @property
    def uses_tls(self) -> bool:
        """Are the connections encrypted?"""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Does the client say who it is?"""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class ProducerConfig(Options):
    """client.get_producer(**options)."""

    acks: Any = option(
        "all",
        "0: do not wait; 1: the leader wrote it; 'all' (-1): every in-sync replica has it",
        choices=("all", -1, 0, 1, "-1", "0", "1"),
        aliases=("required_acks",),
    )
    enable_idempotence: bool | None = option(
        None,
        "no duplicates and no reordering by retries; None: on where acks and the broker allow it; topic.get_producer() has it off unless it is given",
        none=True,
        types=(bool,),
    )
    linger_ms: float = option(5, "a batch that is not full waits this long for more records", low=0)
    batch_bytes: int = option(
        262144, "a batch is sent when it holds this much, before compression", low=128, high=1 << 30, aliases=("batch.size", "batch_size")
    )
    buffer_bytes: int = option(
        33554432,
        "memory for records that are not yet acknowledged. The producers of a client share it: each takes at most its own buffer_bytes, and all "
        "together at most the largest among them. Who finds no room waits in line, up to max_block_ms",
        low=4096,
        high=1 << 40,
        aliases=("buffer.memory", "buffer_memory"),
    )
    max_block_ms: float = option(60000, "longest that produce() waits for metadata or buffer room", low=0)
    delivery_timeout_ms: float = option(120000, "from produce() to its result: lingering, retries and all", low=1)
    request_timeout_ms: float = option(30000, "longest wait for one answer of a broker", low=1, high=INT32)
    ack_timeout_ms: float | None = option(
        None, "longest that a broker may wait for its replicas; None: request_timeout_ms", low=0, high=INT32, none=True
    )
    retries: int | None = option(
        None,
        "tries of a batch after the first; None: until delivery_timeout_ms. Whatever it is, a producer whose worker was interrupted sends again what was in flight: "
        "without idempotence that may be there twice",
        low=0,
        none=True,
    )
    retry_backoff_ms: float = option(100, "first pause before a retry; doubles up to retry_backoff_max_ms, with jitter", low=0)
    retry_backoff_max_ms: float = option(1000, "longest pause before a retry", low=0)
    max_request_bytes: int = option(
        1048576,
        "one record, uncompressed, and one request may hold this much",
        low=1024,
        high=1 << 30,
        aliases=("max.request.size", "max_request_size"),
    )
    max_in_flight: int = option(
        5, "produce requests on one connection without an answer", low=1, high=1000, aliases=("max.in.flight.requests.per.connection",)
    )
    compression: str | None = option(
        None,
        "codec of the batches; 'auto': the first of lz4, snappy, gzip that is installed",
        choices=CODECS,
        aliases=("compression.type", "compression_type"),
    )
    compression_level: int | None = option(None, "the codec's own level; None: its default", low=-131072, high=22, none=True)
    partitioner: Any = option(
        None,
        "'murmur2' (None means it): of the key, like the Java client; 'crc32': of the key, like librdkafka's consistent_random; without a "
        "key both stay on a partition for batch_bytes, then take another (KIP-794); or a callable (partition ids, key) -> partition id",
        none=True,
        names=("murmur2", "crc32"),
        types=(Callable,),
    )
    key_serializer: Any = option(None, "callable applied to each key", none=True, types=(Callable,))
    value_serializer: Any = option(None, "callable applied to each value", none=True, types=(Callable,))
    transactional_id: str | None = option(
        None,
        f"name of the producer's transactions, one producer at a time ({page('transactions')}); means enable_idempotence and acks='all'",
        none=True,
        types=(str,),
        aliases=("transactional.id",),
    )
    transaction_timeout_ms: int = option(
        60000,
        "the broker aborts a transaction that is open for longer; no more than its transaction.max.timeout.ms",
        low=1,
        high=INT32,
        aliases=("transaction.timeout.ms",),
    )
    on_delivery: Any = option(None, "callable (delivery) for each record, run by a worker for callbacks", none=True, types=(Callable,))
    on_fork: str = option(
        "raise",
        "in a forked child: 'raise' ForkedClientError, or 'recreate': its own connections and producer id, the parent's records left to it",
        choices=("raise", "recreate"),
    )
    exit_timeout_ms: float = option(5000, "how long the interpreter's end waits for the records of a producer that was not closed", low=0)
    interceptors: Any = option((), "list of gkafka.interceptors.ProducerInterceptor, in the order to call them", types=(list, tuple))


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class ConsumerConfig(Options):
    """What the fetching machinery takes: pykafka's documented keywords of SimpleConsumer map onto these."""

    fetch_message_max_bytes: int = option(
        1048576, "bytes asked of one partition in one fetch", low=1, high=1 << 30, aliases=("max.partition.fetch.bytes",)
    )
    fetch_max_bytes: int = option(
        4194304,
        "bytes asked of one broker in one fetch (at least one batch comes anyway)",
        low=1,
        high=1 << 30,
        aliases=("fetch.max.bytes",),
    )
    fetch_min_bytes: int = option(1, "the broker waits until it has this much", low=0, high=1 << 30)
    fetch_wait_max_ms: float = option(
        500, "longest that the broker waits for fetch_min_bytes", low=0, high=(1 << 31) - 1, aliases=("fetch.max.wait.ms",)
    )
    fetch_error_backoff_ms: float = option(500, "pause before a partition that answered an error is fetched again", low=0)
    queued_max_messages: int = option(2000, "a partition that holds this many messages is not fetched", low=1)
    queued_max_bytes: int = option(
        67108864,
        "nothing is fetched while a consumer holds this many bytes of batches, as they were fetched (compressed); each broker may add one answer of "
        "fetch_max_bytes",
        low=1,
        high=1 << 40,
    )
    consume_max_bytes: int = option(
        67108864,
        "bytes of records, decompressed, that one call hands out at most; a single record that is larger comes alone",
        low=1,
        high=1 << 40,
    )
    num_consumer_fetchers: int = option(1, "workers that drive the fetches; with more the leaders are divided among them", low=1, high=1024)
    isolation_level: str = option(
        "read_committed", "whether records of open and aborted transactions are hidden", choices=("read_committed", "read_uncommitted")
    )
    client_rack: str = option(
        "",
        "where this consumer is, as the brokers' broker.rack: a leader whose broker has replica.selector.class=...RackAwareReplicaSelector then "
        "names a follower nearby to fetch from (KIP-392)",
        types=(str,),
        aliases=("client.rack",),
    )
    check_crcs: bool = option(True, "verify each batch's checksum", types=(bool,))
    request_timeout_ms: float = option(30000, "longest wait for one answer of a broker, beyond fetch_wait_max_ms", low=1)
    stall_warning_ms: float = option(
        60000,
        "a partition that has something to read and has stood still for this long is told in the log, once and with the reason, which explain() "
        "gives at any time; 0: never",
        low=0,
    )


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class NativeConsumerConfig(ConsumerConfig):
    """client.get_consumer(**options): these beside those of ConsumerConfig."""

    auto_offset_reset: str = option(
        "earliest",
        "where a partition starts of which nothing is committed, and where it goes on when its offset is out of range; 'none': that is an error, "
        "which seek() settles",
        choices=("earliest", "latest", "none"),
    )
    auto_commit: bool | None = option(
        None, "commit in the background what the application has finished; None: with a group", none=True, types=(bool,)
    )
    auto_commit_interval_ms: float = option(5000, "time between two commits in the background", low=1, aliases=("auto.commit.interval.ms",))
    consume_timeout_ms: float = option(1000, "longest wait of consume() and consume_batch() that are given no timeout_ms", low=0)
    key_deserializer: Any = option(None, "callable applied to each key that is there", none=True, types=(Callable,))
    value_deserializer: Any = option(
        None, "callable applied to each value that is there; a tombstone stays None", none=True, types=(Callable,)
    )
    on_deserialize_error: str = option(
        "raise",
        "where a deserializer fails: 'raise' SerializationError, and stay before the record; 'skip' it with a warning; 'dlq': hand it to "
        "dead_letter, and pass it once that has it",
        choices=("raise", "skip", "dlq"),
    )
    dead_letter: Any = option(
        None,
        "with on_deserialize_error='dlq': the name of a topic, which gets the record with headers that say where it was and what is wrong, or a "
        "callable (message, error)",
        none=True,
        types=(str, Callable),
    )
    session_timeout_ms: float = option(
        45000,
        "a member that the coordinator has not heard of for this long has lost its partitions; it stops handing out before that, by its own clock",
        low=1,
        high=INT32,
        aliases=("session.timeout.ms",),
    )
    heartbeat_interval_ms: float = option(
        3000,
        "time between two heartbeats; less than session_timeout_ms, and a third of it or less if one that is lost shall cost nothing",
        low=1,
        high=INT32,
        aliases=("heartbeat.interval.ms",),
    )
    max_poll_interval_ms: float = option(
        300000,
        "a member whose application asks for no messages for this long leaves the group until it does; so long others wait for it in a rebalance",
        low=1,
        high=INT32,
        aliases=("max.poll.interval.ms",),
    )
    assignors: Any = option(
        ("cooperative-sticky",),
        "how the partitions may be divided, the best first: 'range', 'roundrobin', 'sticky', 'cooperative-sticky', or objects like those of "
        "gkafka.core.assignors; with only cooperative ones members keep what they have during a rebalance (KIP-429)",
        types=(list, tuple),
        aliases=("partition.assignment.strategy",),
    )
    group_protocol: str = option(
        "classic",
        "'consumer': the groups of KIP-848, on Kafka 4.0 and newer, where the coordinator divides the partitions and says how often to send a heartbeat: "
        "heartbeat_interval_ms and assignors are then refused, and session_timeout_ms must be no longer than its group.consumer.session.timeout.ms",
        choices=("classic", "consumer"),
        aliases=("group.protocol",),
    )
    group_remote_assignor: str | None = option(
        None,
        "with group_protocol='consumer': how the coordinator divides, 'uniform' or 'range'; None: as the cluster is configured",
        none=True,
        types=(str,),
        aliases=("group.remote.assignor",),
    )
    group_instance_id: str | None = option(
        None,
        "name of a static member (KIP-345): its partitions wait for it to come back, for session_timeout_ms, when it stops",
        none=True,
        types=(str,),
        aliases=("group.instance.id",),
    )
    on_assigned: Any = option(
        None,
        "callable (consumer, partitions): they are this member's now, nothing of them was handed out yet",
        none=True,
        types=(Callable,),
    )
    on_revoked: Any = option(
        None, "callable (consumer, partitions): they are given up when it returns; offsets can be committed", none=True, types=(Callable,)
    )
    on_lost: Any = option(
        None, "callable (consumer, partitions): others may have them already; nothing can be committed", none=True, types=(Callable,)
    )
