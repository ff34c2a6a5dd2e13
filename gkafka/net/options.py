"""What a client is configured with, checked as a whole before anything connects: by whoever makes connections of it, a client or a broker alone."""

from __future__ import annotations

from typing import Any

from gkafka.checks import check_count, check_text
from gkafka.config import ClientConfig, Secret, build, check_security, check_socket_options
from gkafka.exceptions import ConfigurationError
from gkafka.hosts import parse_proxy_url
from gkafka.sasloptions import check_sasl, tls_options
from gkafka.wire.apis import Versions

__all__ = ["check_client", "config_of", "source_of"]


def config_of(where: str, ssl_config: Any = None, **given: Any) -> ClientConfig:
    """Options as pykafka's constructors take them, checked. where: the call that the user made. ssl_config: an SslConfig, or what hide_tls() made of
    something else.
    """
    config = build(ClientConfig, {**given, **tls_options(ssl_config)}, where=where)
    check_client(config)
    return config


def check_client(config: ClientConfig) -> None:
    """Raise ConfigurationError for options that do not go together, for files that cannot be used, and for a release that is not known."""
    check_security(config)
    check_socket_options(config)
    check_sasl(config)
    if config.proxy_url is not None:
        parse_proxy_url(config.proxy_url)
    if config.sasl_oauth_proxy_url is not None:
        _check_proxy("sasl_oauth_proxy_url", config.sasl_oauth_proxy_url)
    if config.uses_tls:
        from gkafka.net.tlscontext import check_tls  # ssl is imported only by those who use it

        check_tls(config)
    for option in ("broker_version", "max_broker_version"):
        if (said := getattr(config, option)) is not None:
            Versions.for_broker(said, option)


def _check_proxy(name: str, url: str) -> None:
    """What parse_proxy_url() checks, of an option with this name."""
    try:
        parse_proxy_url(url)
    except ConfigurationError as exc:
        wrong = str(exc).replace("proxy_url", name)
    else:
        return
    raise ConfigurationError(wrong)


def source_of(host: Any, port: Any) -> tuple[str, int] | None:
    """Where sockets come from, as pykafka's connections are told it. host, port: as hide_hosts() leaves them."""
    if isinstance(host, Secret):
        raise ConfigurationError("source_host: must be a host, or an address of this machine; no user belongs there")
    text, number = check_text("source_host", host), check_count("source_port", port, low=0, high=65535)
    return (text, number) if text or number else None
