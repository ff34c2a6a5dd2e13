"""Addresses as users write them."""

from __future__ import annotations

from gkafka.exceptions import ConfigurationError

__all__ = ["parse_hosts", "parse_source_address"]


def parse_hosts(hosts: str) -> list[tuple[str, int]]:
    """[(host, port)] of "h1:9092,h2,[::1]:9093"; 9092 where no port stands. Raises ConfigurationError naming the part."""
    found = [_parse_host(part.strip()) for part in hosts.split(",") if part.strip()]
    if not found:
        raise ConfigurationError(f"hosts={hosts!r}: give at least one host:port")
    return found


def _parse_host(part: str) -> tuple[str, int]:
    if "/" in part or "@" in part:
        raise ConfigurationError(f"hosts: {part!r} is not host:port (no scheme, path or user belongs there)")
    host, port = part, "9092"
    if part.startswith("["):
        host, _, rest = part[1:].partition("]")
        port = rest.removeprefix(":") or "9092"
    elif part.count(":") == 1:
        host, port = part.split(":")
    elif part.count(":") > 1:
        raise ConfigurationError(f"hosts: {part!r}: write an IPv6 address as [address]:port")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"hosts: {part!r}: must be host:port with a port from 1 to 65535")
    return host, int(port)


def parse_source_address(source_address: str) -> tuple[str, int] | None:
    """(host, port) of "host:port" or "host" (any port); None for ""."""
    if not source_address:
        return None
    host, _, port = source_address.rpartition(":") if ":" in source_address else (source_address, "", "0")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"source_address={source_address!r}: must be host:port with a port from 0 to 65535")
    return host, int(port)
