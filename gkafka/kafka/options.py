"""kafka-python's options, and what they are in gkafka's own.

Every option has an effect, or is refused where it could have none: `None` in a table of names means that the class that takes it sees to it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import gkafka
from gkafka.checks import check_count, check_seconds
from gkafka.client import KafkaClient
from gkafka.exceptions import (
    ConfigurationError,
    ConnectionFailedError,
    KafkaException,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    ProtocolError,
    causes,
)
from gkafka.sasloptions import hide_hosts
from gkafka.skins import NO_DELAY, Selecting, buffer_options
from gkafka.wire.versions import NamedRelease, newest_release_before

__all__ = [
    "CLIENT",
    "SECURITY",
    "UnusableError",
    "asks",
    "at_least",
    "client_options",
    "connect",
    "merge",
    "native",
    "not_reached",
    "reach",
    "retold",
    "telling",
    "told_as",
]

T = TypeVar("T")

_numbers = itertools.count(1)

CLIENT: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "client_id": f"kafka-python-{gkafka.__version__}",
    "request_timeout_ms": 40000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1000,
    "max_in_flight_requests_per_connection": 5,
    "metadata_max_age_ms": 300000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": [NO_DELAY],
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
    "ssl_crlfile": None,
    "ssl_ciphers": None,
    "tls_verify": True,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "sasl_oauth_extensions": None,
    "sasl_oauth_token_endpoint_url": None,
    "sasl_oauth_client_id": None,
    "sasl_oauth_client_secret": None,
    "sasl_oauth_scope": None,
    "sasl_oauth_audience": None,
    "sasl_oauth_form_fields": None,
    "sasl_oauth_client_auth": "client_secret_basic",
    "sasl_oauth_cafile": None,
    "sasl_oauth_proxy_url": None,
    "sasl_oauth_allow_http": False,
    "sasl_retry_timeout_ms": 30000,
    "sasl_aws_region": None,
    "sasl_aws_profile": None,
    "sasl_aws_role_arn": None,
    "sasl_aws_role_session_name": None,
    "allow_plaintext_credentials": False,
    "allow_unverified_tls": False,
    "api_version": None,
    "api_version_auto_timeout_ms": 2000,
    "metric_reporters": [],
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "selector": None,
    "allow_auto_create_topics": True,
    "proxy_url": None,
    "handler": "auto",
}
"""Options of both the producer and the consumer, with kafka-python 1.4's defaults. gkafka's own: `handler`, what says where tokens come from, `tls_verify`,
and the second words that unsafe settings take."""

_CLIENT_NAMES = {
    "reconnect_backoff_ms": "reconnect_backoff_ms",
    "reconnect_backoff_max_ms": "reconnect_backoff_max_ms",
    "metadata_max_age_ms": "metadata_max_age_ms",
    "security_protocol": "security_protocol",
    "ssl_context": "ssl_context",
    "ssl_check_hostname": "ssl_check_hostname",
    "ssl_cafile": "ssl_cafile",
    "ssl_certfile": "ssl_certfile",
    "ssl_keyfile": "ssl_keyfile",
    "ssl_password": "ssl_password",
    "ssl_crlfile": "ssl_crlfile",
    "ssl_ciphers": "ssl_ciphers",
    "tls_verify": "tls_verify",
    "sasl_mechanism": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_kerberos_service_name": "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name": "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider": "sasl_oauth_token_provider",
    "sasl_oauth_extensions": "sasl_oauth_extensions",
    "sasl_oauth_token_endpoint_url": "sasl_oauth_token_endpoint_url",
    "sasl_oauth_client_id": "sasl_oauth_client_id",
    "sasl_oauth_client_secret": "sasl_oauth_client_secret",
    "sasl_oauth_scope": "sasl_oauth_scope",
    "sasl_oauth_audience": "sasl_oauth_audience",
    "sasl_oauth_form_fields": "sasl_oauth_form_fields",
    "sasl_oauth_client_auth": "sasl_oauth_client_auth",
    "sasl_oauth_cafile": "sasl_oauth_cafile",
    "sasl_oauth_proxy_url": "sasl_oauth_proxy_url",
    "sasl_oauth_allow_http": "sasl_oauth_allow_http",
    "sasl_retry_timeout_ms": "sasl_retry_timeout_ms",
    "sasl_aws_region": "sasl_aws_region",
    "sasl_aws_profile": "sasl_aws_profile",
    "sasl_aws_role_arn": "sasl_aws_role_arn",
    "sasl_aws_role_session_name": "sasl_aws_role_session_name",
    "allow_plaintext_credentials": "allow_plaintext_credentials",
    "allow_unverified_tls": "allow_unverified_tls",
    "allow_auto_create_topics": "auto_create_topics",
    "proxy_url": "proxy_url",
}
_TOLD = {
    **{ours: theirs for theirs, ours in _CLIENT_NAMES.items() if ours != theirs},
    "hosts": "bootstrap_servers",
    "broker_version": "api_version",
    "max_broker_version": "api_version",
    "socket_timeout_ms": "request_timeout_ms",
    "offsets_channel_socket_timeout_ms": "request_timeout_ms",
    "max_in_flight_per_connection": "max_in_flight_requests_per_connection",
    "connect_timeout_ms": "twice api_version_auto_timeout_ms, but 4000 to 10000",
}
_ENDS = r"(?![\w'\"\-]|[.:]\w)"
"""What no name of an option is followed by."""
_BEFORE_OFFSETS = ((0, 8, 0), (0, 8, 1))
SHORTEST_AGE_MS = 100
USUAL_CONNECT_MS, SHORTEST_CONNECT_MS = 10000, 4000
SECURITY = tuple(
    name for name in CLIENT if name.startswith(("ssl_", "tls_", "sasl_")) or name in ("allow_plaintext_credentials", "allow_unverified_tls")
)
"""Whom to trust, and who the client is."""
_SPELLINGS = {ours: theirs for theirs, ours in _CLIENT_NAMES.items() if theirs in SECURITY and ours != theirs}
"""gkafka's names of what kafka-python has another one for, which are taken as well."""
_BESIDE_CONTEXT = tuple(name for name in _CLIENT_NAMES if name.startswith("ssl_") and name != "ssl_context")
_READING = "what has come is read at once, whatever its size"
_NONE_HERE = {
    "bootstrap_timeout_ms": "api_version_auto_timeout_ms bounds the constructor: give that, or neither",
    "bootstrap_topics_filter": "the topics that are used are asked for, and no others: leave it out",
    "client_dns_lookup": "all addresses of a name are tried: leave it out",
    "connections_max_idle_ms": "connections are kept open, and opened anew when a broker has closed them: leave it out",
    "enable_incremental_fetch_sessions": "fetch sessions are used where brokers have them: leave it out",
    "kafka_client": "the client beneath cannot be another one: leave it out",
    "legacy_iterator": "there is one way to iterate, which poll() goes, too: leave it out",
    "max_in_flight_requests_per_connection": "it is one of KafkaConsumer and KafkaProducer: leave it out",
    "metric_group_prefix": "metrics() has gkafka's names: leave it out",
    "metrics_enabled": "metrics are made when metrics() is called: leave it out",
    "receive_message_max_bytes": "answers are bounded anyhow: leave it out",
    "sasl_kerberos_name": "the principal is that of sasl_kerberos_service_name and sasl_kerberos_domain_name",
    "sock_chunk_buffer_count": f"{_READING}: leave it out",
    "sock_chunk_bytes": f"{_READING}: leave it out",
    "socks5_proxy": "it is called proxy_url here",
}
"""Options of some version of kafka-python that there are not here, or not of every client, and why that is."""
_OF_METRICS = ("metric_reporters", "metrics_num_samples", "metrics_sample_window_ms")


def merge(defaults: Mapping[str, Any], given: Mapping[str, Any], where: str, *, measured: bool = False) -> dict[str, Any]:
    """The options in force. measured: it has metrics. Raises ConfigurationError for a name that is none, and for what could have no effect."""
    given = _in_their_names(defaults, given, where)
    for name in given:
        if name not in defaults:
            raise ConfigurationError(f"{where}: there is no option {name!r}{_instead(name, defaults)}")
    for name in () if measured else _OF_METRICS:
        if name in given and given[name] not in (defaults[name], None, ()):
            text = (
                f"{where}: {name}={given[name]!r} would have no effect: this client has no metrics: a KafkaConsumer or a KafkaProducer has"
            )
            raise ConfigurationError(text)
    return {**defaults, **{name: _flag(value) if isinstance(defaults[name], bool) else value for name, value in given.items()}}


def _instead(name: str, defaults: Mapping[str, Any]) -> str:
    if name in _NONE_HERE:
        return f": {_NONE_HERE[name]}"
    near = difflib.get_close_matches(name, defaults, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _flag(value: Any) -> Any:
    """1.4 asks what is true: settings that come from elsewhere have 0 and 1."""
    return bool(value) if type(value) is int and value in (0, 1) else value


def _in_their_names(defaults: Mapping[str, Any], given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    for ours, theirs in _SPELLINGS.items():
        if ours in given and theirs in given and theirs in defaults:
            raise ConfigurationError(f"{where}: {theirs!r} is given twice, once by gkafka's own name for it")
    return {_SPELLINGS[name] if _SPELLINGS.get(name) in defaults else name: value for name, value in given.items()}


def native(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Those options that only have another name in gkafka."""
    return {ours: options[theirs] for theirs, ours in names.items()}


def at_least(low: float, given: Any) -> Any:
    """A time that is shorter than gkafka takes it, but is one, is the shortest that it takes."""
    return low if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 <= given < low else given


def client_options(options: Mapping[str, Any], *, named: str) -> dict[str, Any]:
    """What `gkafka.KafkaClient` is made with. named: of a client that was given no name, with a number of its own for %d."""
    taken = native(options, _CLIENT_NAMES)
    if taken["ssl_context"] is not None:  # documented: it makes all other ssl_ options void
        for name in _BESIDE_CONTEXT:
            del taken[name]
    # What is not given is left to gkafka, whose defaults are the same: it refuses what would have no effect beside the others.
    for theirs, ours in _CLIENT_NAMES.items():
        if theirs in SECURITY and ours in taken and options[theirs] == CLIENT[theirs]:
            del taken[ours]
    taken["metadata_max_age_ms"] = at_least(SHORTEST_AGE_MS, taken["metadata_max_age_ms"])
    client_id = options["client_id"]
    if "max_in_flight_requests_per_connection" in options:  # gkafka's own may be None
        check_count("max_in_flight_requests_per_connection", options["max_in_flight_requests_per_connection"])
    return {
        **taken,
        "hosts": _hosts(options["bootstrap_servers"]),
        "client_id": named % next(_numbers) if client_id is None else client_id,
        "socket_timeout_ms": options["request_timeout_ms"],
        "offsets_channel_socket_timeout_ms": options["request_timeout_ms"],
        **_versions(options["api_version"], options.get("group_id")),
        "connect_timeout_ms": _connect_timeout_ms(options),
        "max_in_flight_per_connection": options.get("max_in_flight_requests_per_connection"),
        "socket_options": _socket_options(options),
        "handler": _handler(options["handler"], options["selector"]),
    }


@contextlib.contextmanager
def told_as(names: Mapping[str, str]) -> Iterator[None]:
    """An error about one of gkafka's options names kafka-python's, and one that no broker is reached is kafka-python's. names: gkafka's ->
    kafka-python's, beside those of every client."""
    try:
        yield
    except KafkaException as exc:
        retold(exc, names)
        if (missed := not_reached(exc)) is not None:
            raise missed from exc
        raise


def telling(names: Mapping[str, str], *, but: Iterable[str] = (), also: Iterable[str] = ()) -> Callable[[type[T]], type[T]]:
    """For a class: what its public methods raise is as told_as() has it. but: methods that see to it themselves; also: such as
    __init__."""

    def tell(cls: type[T]) -> type[T]:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if name in also or (not name.startswith("_") and name not in but):
                setattr(cls, name, _telling(method, names))
        return cls

    return tell


def _telling(method: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            # A step of a loop, and no call with *args: Python looks for signals behind that, and what the method has taken would be lost.
            for result in itertools.starmap(functools.partial(method, **kwargs), (args,)):
                return result
        except KafkaException as exc:
            retold(exc, names)
            if (missed := not_reached(exc)) is not None:
                raise missed from exc
            raise
        finally:
            args, kwargs = (), {}  # a password may be among them, and the frame is a traceback's

    return told


def retold(error: KafkaException, names: Mapping[str, str]) -> None:
    """Put kafka-python's names of options into the text, and into those of its causes. What stands in quotes, or in a longer name, may be a topic or
    a group: it is left. A name of one word is only taken for one before = and before a text that was given."""
    told, pattern = _renaming(frozenset(names.items()))
    for at in itertools.takewhile(lambda cause: isinstance(cause, KafkaException), causes(error)):
        if at.args and isinstance(at.args[0], str):
            at.args = (pattern.sub(lambda found: told[found[0]], at.args[0]), *at.args[1:])


@functools.cache
def _renaming(names: frozenset[tuple[str, str]]) -> tuple[dict[str, str], re.Pattern[str]]:
    """What options are called, and where in a text. Made once for each kind of client."""
    told = {**_TOLD, **dict(names)}
    listed = sorted(told, key=len, reverse=True)
    several = "|".join(rf"{name}{_ENDS}" if "_" in name else rf"{name}(?==|: ')" for name in listed)
    return told, re.compile(rf"(?<!['\"\w.\-])(?:{several})")


class NotReachedError(NoBrokersAvailableError, KafkaTimeoutError):
    """No broker could be used in time: documented is a timeout exception, which kafka-python 3 raises, and older versions raise the first of these."""


class UnusableError(NotReachedError):
    """No broker can be used, however long one waits."""


def asks(options: Mapping[str, Any]) -> bool:
    """Does the constructor ask the brokers what they speak? Otherwise nothing connects before the first call that needs it."""
    return options["api_version"] in (None, "auto")


def connect(client: KafkaClient, timeout_s: float) -> None:
    """Reach the cluster. Raises KafkaTimeoutError, also if no broker answers, UnusableError where none can be used."""
    try:
        with told_as({}):
            client.connect(timeout_s)
    except UNUSABLE as exc:
        raise unusable(exc) from exc


def reach(client: KafkaClient, options: Mapping[str, Any], *, within: str = "api_version_auto_timeout_ms") -> None:
    """Find out what the brokers speak, unless api_version bounds it. Raises NotReachedError, at the latest after the time in the option `within`."""
    timeout_s = check_seconds(within, options[within]) / 1000
    if not asks(options):
        return
    try:
        connect(client, timeout_s)
    except NotReachedError:
        raise
    except KafkaTimeoutError as exc:
        raise NotReachedError(f"no broker answered within {within}={timeout_s * 1000:g}: {exc}") from exc


def not_reached(exc: KafkaException) -> NotReachedError | None:
    """What kafka-python's user is told in place of this error, if it says that no broker can be reached; None for all others."""
    is_that = isinstance(exc, NoBrokersAvailableError) and not isinstance(exc, KafkaTimeoutError)
    return NotReachedError(str(exc), **exc.about) if is_that else None


UNUSABLE = (ConnectionFailedError, ProtocolError)
"""What `connect` raises where each broker fails the same way, by TLS, a proxy or what it answers; kafka-python has one name for all of that."""


def unusable(exc: KafkaException) -> UnusableError:
    """The same as the error that kafka-python raises."""
    return UnusableError(f"no broker can be used: {exc}", **exc.about)


def _handler(given: Any, selector: Any) -> Any:
    """1.4's documented default means: as is best here. Whoever gives that has imported it."""
    usual = getattr(sys.modules.get("selectors"), "DefaultSelector", None)
    return given if selector is None or selector is usual else Selecting(given, selector)


def _hosts(given: Any) -> str:
    given = hide_hosts(given)
    if isinstance(given, str):
        return given
    if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        hosts = list(given)
        if hosts and all(isinstance(host, str) for host in hosts):
            return hide_hosts(",".join(hosts))  # type: ignore[no-any-return]  # a text stays one
    raise ConfigurationError(f"bootstrap_servers={given!r}: must be 'host:port', or a list of them")


def _connect_timeout_ms(options: Mapping[str, Any]) -> float:
    """Kafka 0.9 never answers the question for its versions. By the time that a connection has, it is judged how long to wait for that: short enough
    for the constructor to find it out within api_version_auto_timeout_ms."""
    if not asks(options):
        return USUAL_CONNECT_MS
    within_ms = check_seconds("api_version_auto_timeout_ms", options["api_version_auto_timeout_ms"])
    return min(max(2 * within_ms, SHORTEST_CONNECT_MS), USUAL_CONNECT_MS)


def _versions(given: Any, group: Any) -> dict[str, str]:
    """gkafka's options for api_version. Brokers from 0.10 on are asked all the same: they may have left off what an old release speaks."""
    if given is None or given == "auto":
        return {}
    if isinstance(given, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}", given, re.ASCII):
        given = tuple(map(int, given.split(".")))
    if not isinstance(given, tuple) or not 2 <= len(given) <= 4 or not all(type(part) is int and part >= 0 for part in given):
        raise ConfigurationError(f"api_version={given!r}: must be a tuple as (2, 8), or None to ask the broker")
    if given[:3] in _BEFORE_OFFSETS:  # they speak as 0.8.2 does, but for groups
        if group is not None:
            text = f"api_version={given!r} with group_id={group!r}: brokers before 0.8.2 keep no offsets for groups but in ZooKeeper"
            raise ConfigurationError(f"{text}: leave group_id out, and keep offsets yourself")
        return {"broker_version": NamedRelease("0.8.2", "api_version")}
    if given < (0, 8, 2):
        raise ConfigurationError(
            f"api_version={given!r}: must be (0, 8, 2) or newer, or (0, 8, 0) or (0, 8, 1) without groups; None asks the broker"
        )
    if (0, 9) <= given < (0, 10):
        return {"broker_version": NamedRelease("0.9", "api_version")}  # gkafka's "0.9.0" means: ask
    newest, is_newer = newest_release_before(given)
    release = NamedRelease(newest, "api_version")
    return {"broker_version": release} if given < (0, 10) or is_newer else {"broker_version": release, "max_broker_version": release}


def _socket_options(options: Mapping[str, Any]) -> tuple[tuple[int, int, Any], ...]:
    given = options["socket_options"]
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, (list, tuple)) and len(one) == 3 for one in given):
        raise ConfigurationError(f"socket_options={given!r}: must be a list of (level, option, value), as socket.setsockopt() takes them")
    sizes = [options["receive_buffer_bytes"], options["send_buffer_bytes"]]
    for name, size in zip(("receive_buffer_bytes", "send_buffer_bytes"), sizes, strict=True):
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ConfigurationError(f"{name}={size!r}: must be a number of bytes, 1 or more, or None")
    return (*map(tuple, given), *buffer_options(*sizes))
