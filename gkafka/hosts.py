"""Addresses as users write them."""

from __future__ import annotations

from gkafka.exceptions import ConfigurationError

__all__ = ["parse_hosts", "parse_source_address"]


def parse_hosts(hosts: str) -> list[tuple[str, int]]:
    """[(host, port)] of "h1:9092,h2,[::1]:9093"; 9092 where no port stands. Raises ConfigurationError naming the part."""
    if not isinstance(hosts, str):
        raise ConfigurationError(f"hosts={hosts!r}: must be a text of host:port, separated by commas")
    found = [_parse_host(part.strip()) for part in hosts.split(",") if part.strip()]
    if not found:
        raise ConfigurationError(f"hosts={hosts!r}: give at least one host:port")
    return found


def _parse_host(part: str) -> tuple[str, int]:
    if "/" in part or "@" in part:
        raise ConfigurationError(f"hosts: {part!r} is not host:port (no scheme, path or user belongs there)")
    if part.count(":") > 1 and not part.startswith("["):
        raise ConfigurationError(f"hosts: {part!r}: write an IPv6 address as [address]:port")
    host, port = _split(part)
    if not host or not _is_port(port) or port == "0":
        raise ConfigurationError(f"hosts: {part!r}: must be host:port with a port from 1 to 65535")
    return host, int(port or 9092)


def _split(part: str) -> tuple[str, str]:
    """(host, port) of "host:port", "host", "[address]:port" or "[address]"; the port is "" if there is none. ("", "") for anything else."""
    if part.startswith("["):
        host, bracket, rest = part[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        whole = bool(bracket) and (not rest or (colon == ":" and bool(port)))
    else:
        host, colon, port = part.partition(":")
        whole = bool(port) or not colon
    if not whole or any(c.isspace() or not c.isprintable() or c in "[]" for c in host):
        return "", ""
    return host, port


def _is_port(port: str) -> bool:
    return not port or (port.isascii() and port.isdecimal() and int(port) < 65536)


def parse_source_address(source_address: str) -> tuple[str, int] | None:
    """(host, port) of "host:port", "host" or "[address]:port" (any port where none stands); None for ""."""
    if not isinstance(source_address, str):
        raise ConfigurationError(f"source_address={source_address!r}: must be a text, host:port")
    if not source_address:
        return None
    many = source_address.count(":") > 1 and not source_address.startswith("[")
    host, port = ("", "") if many else _split(source_address)
    if not host or not _is_port(port):
        raise ConfigurationError(f"source_address={source_address!r}: must be host:port with a port from 0 to 65535")
    return host, int(port or 0)
