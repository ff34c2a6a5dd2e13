"""Addresses as users write them."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from gkafka.checks import check_text
from gkafka.config import Secret
from gkafka.exceptions import ConfigurationError
from gkafka.sasloptions import hide_hosts
from gkafka.unseen import refused

__all__ = ["Proxy", "is_address", "parse_host", "parse_hosts", "parse_proxy_url", "parse_source_address", "parse_zookeeper"]


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The schemes that consoles, Terraform and Kafka's own listeners write before an address."""
NAME = re.compile(r"(?![0-9]+$)(?!(?:none|null|nan|undefined)$)\w[\w-]{0,62}(?:\.\w[\w-]{0,62})*\.?", re.IGNORECASE)
"""The name of a host, or its IPv4 address. A number alone is a port that was cut off, and None a value that nobody has set."""
NAMED = re.compile(r"\s*(?:bootstrap|metadata\.broker|hosts)[\w.-]*\s*=", re.IGNORECASE)
"""How a line of a file begins that was given whole."""
NOT_IN_NAMES = re.compile(r"[^\w.:-]")
PLACEHOLDER = re.compile(r"\$\{|\$\(|\{\{|<[^>]*>|%\(|^\$|%\w+%|\b__\w+__\b|^\s*(?:None|null|nan|undefined)\s*$")
"""What stands in a template for a value that nobody has filled in."""
BETWEEN = re.compile(r"#[^\n]*|\\[nrt]|(?<!\S)-(?!\S)|[\s,;|&'\"`<>(){}\u2018\u2019\u201c\u201d\u3001]+")
"""What lists that were made for something else have between addresses: other separators, quotes, a comment, a line break as its escape."""
IPV6 = r"\[(?=[^\]]*:[^\]]*:)[0-9a-fA-F:.]+(?:%\w+)?\]"
ADDRESS = re.compile(rf"(?:({'|'.join(PROTOCOLS)}):(?://)?)?({IPV6}|\w[\w.-]*)\]?(?!\w)(?:(?:\s*:\s*|\s+)(\d+)(?![\w.]))?", re.IGNORECASE)
"""One address in such a list: its scheme, host and port."""


def parse_hosts(hosts: str, security_protocol: str | None = None) -> list[tuple[str, int]]:
    """[(host, port)] of "h1:9092,h2,[::1]:9093"; 9092 where no port stands, and without a scheme such as SASL_SSL://.

    security_protocol: what the connections speak, which a scheme must not contradict; None: it is not known here.
    Raises ConfigurationError naming the part.
    """
    hosts = hide_hosts(hosts)
    if isinstance(hosts, (list, tuple)) and hosts and not any(isinstance(one, Secret) for one in hosts):
        raise ConfigurationError(f"hosts={hosts!r}: must be a text of host:port, separated by commas: ','.join(...) makes one of a list")
    if not isinstance(hosts, str):
        raise ConfigurationError(f"hosts={hosts!r}: must be a text of host:port, separated by commas")
    if isinstance(hosts, Secret):
        raise ConfigurationError(f"hosts: {_hidden(hosts)} is not host:port (no path or user belongs there)")
    if PLACEHOLDER.search(hosts):
        raise ConfigurationError(f"hosts: {hosts.strip()!r} is a placeholder that nobody has filled in: put host:port there")
    parts = [part.strip() for part in hosts.split(",") if part.strip()]
    if not parts:
        raise ConfigurationError(f"hosts={hosts!r}: give at least one host:port")
    found: list[tuple[str, str, int]] = []
    for part in parts:
        one = _parse_host(part)
        if isinstance(one, str):
            raise ConfigurationError(f"hosts: {one}{_cure(hosts, security_protocol)}")
        found.append(one)
    for part, (scheme, _, _) in zip(parts, found, strict=True):
        if scheme and security_protocol not in (None, scheme.upper()):
            raise ConfigurationError(
                f"hosts: {part!r} with security_protocol={security_protocol!r}: set security_protocol={scheme.upper()!r}, or take {scheme}:// off"
            )
    return [(host, port) for _, host, port in found]


def _parse_host(part: str) -> tuple[str, str, int] | str:
    """(scheme, host, port) of one address, or what is wrong with it."""
    scheme, sign, address = part.partition("://") if "://" in part else ("", "", part)
    host, port = _split(address)
    if sign and scheme.upper() not in PROTOCOLS:
        return f"{part!r} is not host:port: of schemes only {'://, '.join(PROTOCOLS)}:// may stand before it"
    if host and _is_port(port) and port != "0":
        return scheme, host, int(port or 9092)
    if not address:
        return f"{part!r} names no host: give host:port behind it"
    if _is_ipv6(address):
        return f"{part!r}: write an IPv6 address as [address]:port"
    if address.startswith("[") and not re.match(IPV6, address):
        return f"{part!r}: only an IPv6 address stands in brackets"
    strange = NOT_IN_NAMES.search(re.sub(IPV6, "", address))
    if strange is None:
        return f"{part!r}: must be host:port with a port from 1 to 65535, several separated by commas"
    if strange[0] == "/":
        return f"{part!r} is not host:port (no path or user belongs there)"
    return f"{part!r}: {strange[0]!r} belongs to no host"


def _cure(hosts: str, security_protocol: str | None) -> str:
    """What to say of a text from which addresses can be read: that they are to be given so. "" if they cannot."""
    text = unicodedata.normalize("NFKC", hosts)  # a colon, a comma or a space of another script, as the one that is meant
    text = re.sub(r"(\w)://\s+", r"\1://", text.replace(":\\/\\/", "://")).rstrip("\\ \n")
    text = BETWEEN.sub(" ", "".join(c for c in text if unicodedata.category(c) != "Cf"))
    found = [_written(*one) for one in ADDRESS.findall(text)]
    cure = ",".join(found)
    if not found or set(ADDRESS.sub("", text)) - set("[] ") or any(isinstance(_parse_host(one), str) for one in found):
        return ""
    if (
        len(found) > 1
        and re.search(r"\S\s+\S|\(", hosts)
        and not all(port or "[" in host or re.search(r"\w\.\w", host) for _, host, port in ADDRESS.findall(text))
    ):
        return ""  # a word alone may belong to what is around the addresses, as tolist(...), "and", "(leader)"
    schemes = {one.partition("://")[0].upper() for one in found if "://" in one}
    told = f"separate addresses by commas, as {cure!r}" if len(found) > 1 else f"give {cure!r}"
    if len(schemes) > 1 or security_protocol is None or schemes <= {security_protocol}:
        return f": {told}"
    return f": {told}, and set security_protocol={schemes.pop()!r}"


def _written(scheme: str, host: str, port: str) -> str:
    return f"{scheme}{'://' if scheme else ''}{host}{':' if port else ''}{port}"


def parse_host(host: Any) -> str:
    """The host alone, as pykafka's Broker() and BrokerConnection() take it, a text or bytes. Raises ConfigurationError for what is none."""
    host = hide_hosts(host)
    if isinstance(host, Secret):
        raise ConfigurationError(f"host={_hidden(host)} is not the name or the address of a host (no user belongs there)")
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if not isinstance(name, str) or not is_address(name, 9092) or not (NAME.fullmatch(name) or _is_ipv6(name)):
        raise ConfigurationError(f"host={host!r} is not the name or the address of a host")
    return name


def _hidden(text: Secret) -> str:
    """How to tell of a text that is no address and may hold a secret: with no more of it than a host behind a user."""
    place = text.reveal().rpartition("@")[2].partition("/")[0]
    if "@" in text and _split(place)[0]:
        return repr(f"...@{place}")
    named = ", the name of an option and a value: give the value alone" if NAMED.match(text.reveal()) else ""
    return f"*** ({len(text)} characters{named})"


def _split(part: str) -> tuple[str, str]:
    """(host, port) of "host:port", "host", "[address]:port" or "[address]"; the port is "" if there is none. ("", "") for anything else."""
    bracket, sign, rest = part[1:].partition("]") if part.startswith("[") else ("", "", "")
    host, colon, port = part.partition(":") if not bracket else (bracket, rest[:1], rest[1:])
    is_host = bool(sign) and _is_ipv6(host) if bracket else NAME.fullmatch(host) is not None
    return (host, port) if is_host and colon in ("", ":") and bool(port) == bool(colon) else ("", "")


def _is_ipv6(text: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _is_port(port: str) -> bool:
    return not port or (port.isascii() and port.isdecimal() and len(port) < 100 and int(port) < 65536)


def is_address(host: str, port: int) -> bool:
    """Whether a broker can be there, as another one says: whatever is told may end in a log, a terminal or a request to a proxy."""
    return 0 < len(host) <= 255 and host.isprintable() and not any(c.isspace() for c in host) and 0 < port < 65536


def parse_source_address(source_address: str) -> tuple[str, int] | None:
    """(host, port) of "host:port", "host" or "[address]:port" (any port where none stands); None for ""."""
    source_address = hide_hosts(source_address)
    if not isinstance(source_address, str):
        raise refused("source_address", source_address, "must be a text, host:port")
    if isinstance(source_address, Secret):
        raise ConfigurationError(f"source_address={_hidden(source_address)}: must be host:port, and no user belongs there")
    if not source_address:
        return None
    host, port = _split(source_address)
    if not host or not _is_port(port):
        raise ConfigurationError(f"source_address={source_address!r}: must be host:port with a port from 0 to 65535")
    return host, int(port or 0)


@dataclass(frozen=True)
class Proxy:
    """What a proxy_url says. kind: "socks5" or "http"."""

    kind: str
    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def credentials(self) -> tuple[str, str]:
        return self.username or "", self.password or ""


PROXY_KINDS = {"socks5": "socks5", "socks5h": "socks5", "http": "http"}


def parse_proxy_url(url: str) -> Proxy:
    """Raises ConfigurationError, which shows no more of the URL than its scheme: the rest may be credentials."""
    found = _proxy(url)
    if isinstance(found, str):  # raised here, where no variable holds a part of the URL
        raise ConfigurationError(found)
    return found


def _proxy(url: str) -> Proxy | str:
    """The proxy, or what is wrong with its URL."""
    scheme, slashes, rest = str.partition(url, "://")
    userinfo, at, place = rest.rpartition("@")
    kind = PROXY_KINDS.get(scheme.lower())
    form = "must be socks5://host:port or http://host:port, with user:password@ before the host if the proxy wants that"
    if not slashes or kind is None:
        return f"proxy_url: {form}; no other kind of proxy is known"
    shown = f"proxy_url={scheme + '://***'!r}"
    host, port = _split(place.removesuffix("/"))
    if not host or not port or not _is_port(port) or port == "0":
        return f"{shown}: {form}; the port is from 1 to 65535"
    if not at:
        return Proxy(kind, host, int(port))
    try:
        username, password = (_unescaped(part) for part in userinfo.partition(":")[::2])
    except ValueError:
        return f"{shown}: a % in a user name or a password begins an escape, two hex digits for each byte of UTF-8, as %25 for a % itself"
    for text in (username, password):
        if not 1 <= len(text.encode("utf-8", "replace")) <= 255 or re.search(r"[\0-\x1f\x7f\ud800-\udfff]", text):
            return f"{shown}: a user name and a password are needed, each of 1 to 255 bytes and without control characters"
    if ":" in username:
        return f"{shown}: a user name with a colon cannot be told from the password"
    return Proxy(kind, host, int(port), username, password)


def _unescaped(text: str) -> str:
    """Raises ValueError for a percent sign that begins no escape, and for escapes of what is no UTF-8."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError
    return unquote(text, errors="strict")


def parse_zookeeper(what: str, hosts: Any) -> tuple[str, str]:
    """("h1,h2:2181", "chroot/deep") of "h1,h2:2181/chroot/deep", "" without a chroot. what: the option's name. Raises ConfigurationError."""
    hosts = hide_hosts(hosts)
    found = _zookeeper(what, hosts)
    if isinstance(found, str):  # raised here, where no variable shows a part of a password
        raise ConfigurationError(found)
    return found


def _zookeeper(what: str, hosts: Any) -> tuple[str, str] | str:
    """The servers and the chroot, or what is wrong with them."""
    if not isinstance(hosts, (str, bytes)):
        return f"{what}={hosts!r}: must be a text such as 'host:port,host:port/chroot'"
    shown = f"{what}={_hidden(hosts) if isinstance(hosts, Secret) else repr(hosts)}"
    servers, _, chroot = check_text(what, hosts).partition("/")
    named = [part.strip() for part in servers.split(",") if part.strip()]
    if not named:
        return f"{shown}: give at least one host:port of ZooKeeper"
    for part in named:
        if not _is_zookeeper(part):
            told = "no user belongs there, and each" if isinstance(hosts, Secret) else repr(part)
            return f"{shown}: {told} must be host:port with a port from 1 to 65535 (an IPv6 address as [address]:port), separated by commas"
    chroot = chroot.strip("/")
    if "," in chroot:
        return f"{shown}: a chroot stands once, behind the last address, as in host:port,host:port/chroot"
    if chroot and any(step in ("", ".", "..") or not step.isprintable() for step in chroot.split("/")):
        told = "the chroot" if isinstance(hosts, Secret) else repr("/" + chroot)
        return f"{shown}: {told} is no path in ZooKeeper: give host:port,host:port/chroot"
    return ",".join(named), chroot


def _is_zookeeper(part: str) -> bool:
    host, port = _split(part)
    return bool(host) and _is_port(port) and port != "0"
