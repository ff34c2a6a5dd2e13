"""From a client's options to an ssl.SSLContext: certificates and keys as files or as PEM text, revocation lists, what is checked.

What cannot be used is told before there is a connection. Files are read anew when they have changed, so that a renewed certificate is
taken up by the next connection.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import stat
import tempfile
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gkafka.config import NOT_UTF8, ClientConfig, Secret, is_pem_text, is_utf8, may_be_key
from gkafka.exceptions import ConfigurationError, KafkaException
from gkafka.handlers.base import Handler
from gkafka.logs import get_logger

__all__ = ["check_tls", "contexts", "make_context"]

log = get_logger(__name__)

FILES: Final = ("ssl_cafile", "ssl_crlfile", "ssl_certfile", "ssl_keyfile")
PassPhrase = Callable[[], "str | bytes"]


def make_context(config: ClientConfig) -> ssl.SSLContext:
    """The SSLContext that a client's options describe; a user's `ssl_context` as it is.

    TLS 1.2 or newer; certificate and host name are checked unless tls_verify=False. Raises ConfigurationError naming the option.
    """
    if config.ssl_context is not None:
        return _users_context(config.ssl_context)
    context = _trusting(config)
    if config.tls_verify and config.ssl_cafile is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load_own_certificate(context, config, _pass_phrase(config))
    return context


def check_tls(config: ClientConfig) -> None:
    """Raise ConfigurationError, naming the option, for what is wrong already before there is a connection.

    A pass phrase that the user's function gives is not asked for: its key is looked at with the first connection.
    """
    if config.ssl_context is not None:
        _users_context(config.ssl_context)
        return
    context = _trusting(config)
    with contextlib.suppress(_AskedLater):
        _load_own_certificate(context, config, _ask_later if callable(config.ssl_password) else _pass_phrase(config))


class _AskedLater(Exception):
    """The key is encrypted."""


def _ask_later() -> str:
    raise _AskedLater


def _users_context(context: Any) -> ssl.SSLContext:
    if isinstance(context, type) or not (isinstance(context, ssl.SSLContext) or hasattr(context, "wrap_bio")):
        raise ConfigurationError(f"ssl_context={context!r}: must be an ssl.SSLContext")
    if getattr(context, "protocol", None) == ssl.PROTOCOL_TLS_SERVER:
        raise ConfigurationError("ssl_context: it is a server's: make it with ssl.create_default_context() or ssl.PROTOCOL_TLS_CLIENT")
    return context  # type: ignore[no-any-return]  # one in all that counts: also gevent's, or a stand-in that has wrap_bio()


# -- what is checked of a broker ---------------------------------------------------------------------------------------
def _trusting(config: ClientConfig) -> ssl.SSLContext:
    """All of the context but the system's authorities, which take long to read, and the client's own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.tls_verify and config.ssl_check_hostname
    if not config.tls_verify:
        context.verify_mode = ssl.CERT_NONE
    if config.ssl_ciphers is not None:
        _set_ciphers(context, config.ssl_ciphers)
    # Also what will not be used is looked at: a file that is named and not there is a mistake.
    if config.ssl_cafile is not None:
        with _pem("ssl_cafile", config.ssl_cafile) as pem:
            pem.load(lambda: context.load_verify_locations(pem.path))
    if config.ssl_crlfile is not None:
        _load_revocations(context, config.ssl_crlfile)
    return context


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        # "ALL" has ciphers without a certificate and without encryption; at @SECLEVEL=0 OpenSSL takes them, and nobody is checked any more.
        context.set_ciphers(f"{ciphers}:!aNULL:!eNULL")
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigurationError(f"ssl_ciphers={ciphers!r}: must be a list of ciphers in OpenSSL's form; none of these is known") from exc


def _load_revocations(context: ssl.SSLContext, crlfile: str) -> None:
    before = context.cert_store_stats()["crl"]
    with _pem("ssl_crlfile", crlfile) as pem:
        pem.load(lambda: context.load_verify_locations(pem.path))
        if context.cert_store_stats()["crl"] == before:
            raise ConfigurationError(f"{pem.name}: it holds no revocation list in PEM form (-----BEGIN X509 CRL-----)")
    # The broker's own certificate, as documented; lists of the authorities above it need not be there.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


# -- the client's own certificate --------------------------------------------------------------------------------------
def _load_own_certificate(context: ssl.SSLContext, config: ClientConfig, pass_phrase: PassPhrase) -> None:
    if config.ssl_certfile is None:
        if config.ssl_keyfile is not None:
            raise ConfigurationError(
                f"{_name('ssl_keyfile', config.ssl_keyfile)} without ssl_certfile: give the PEM file of the certificate too"
            )
        return
    with _pem("ssl_certfile", config.ssl_certfile) as cert:
        if config.ssl_keyfile is None:
            cert.load(lambda: context.load_cert_chain(cert.path, None, pass_phrase), _key_in_it)
            return
        with _pem("ssl_keyfile", config.ssl_keyfile) as key:
            key.load(lambda: context.load_cert_chain(cert.path, key.path, pass_phrase), lambda pem: _certificate_of(cert) or _key(pem))


def _key_in_it(pem: _Pem) -> str | None:
    """What is wrong with a file that is to hold both."""
    if pem.blocks and not any(map(_is_private, pem.blocks)):
        return f"{pem.name}: it holds no private key: give ssl_keyfile, the PEM file of the key that belongs to the certificate"
    return _certificate_of(pem) or _key(pem)


def _certificate_of(pem: _Pem) -> str | None:
    """What is wrong with the certificate of a pair."""
    if pem.blocks and not any("CERTIFICATE" in block for block in pem.blocks):
        return f"{pem.name}: it holds no certificate, but {_listed(pem.blocks)}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(pem.path)
    except ssl.SSLError:
        return pem.is_cut_off() or f"{pem.name}: its certificate is damaged"
    return None


def _key(pem: _Pem) -> str | None:
    """What is wrong with the key of a pair."""
    if pem.blocks and not any(map(_is_private, pem.blocks)):
        return f"{pem.name}: it holds no private key, but {_listed(pem.blocks)}"
    return pem.is_cut_off() or (None if pem.locked else f"{pem.name}: the key is damaged, or of a kind that OpenSSL does not know")


def _is_private(block: str) -> bool:
    return block.endswith("PRIVATE KEY")


def _listed(blocks: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(block.lower() for block in blocks))


def _pass_phrase(config: ClientConfig) -> PassPhrase:
    # Always a function: without one, OpenSSL asks for the pass phrase on the terminal and waits there.
    def give() -> str | bytes:
        given = config.ssl_password
        if given is None:
            option = "ssl_certfile" if config.ssl_keyfile is None else "ssl_keyfile"
            raise ConfigurationError(f"{_name(option, getattr(config, option))} is encrypted: give ssl_password")
        text = _asked(given) if callable(given) else given
        if not isinstance(text, (str, bytes)):
            raise ConfigurationError(f"ssl_password: the function must return the pass phrase as str, not {type(text).__name__}")
        return text.reveal() if isinstance(text, Secret) else text

    return give


def _asked(function: Callable[[], Any]) -> Any:
    """What the function of ssl_password gives. Raises ConfigurationError; what it raised is behind it, and its text, which may hold more, is not told."""
    try:
        return function()
    except KafkaException:
        raise
    except Exception as exc:
        raise ConfigurationError(f"ssl_password: the function that is to give the pass phrase raised {type(exc).__name__}") from exc


# -- PEM, in files or as text ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Pem:
    """A file for OpenSSL to read. name: how an error calls it; a text is not shown."""

    name: str
    path: str

    def load(self, load: Callable[[], object], looked_at: Callable[[_Pem], str | None] | None = None) -> None:
        """looked_at: finds out what is wrong with files of the client's own, where OpenSSL does not say; None: nothing that can be seen."""
        try:
            load()
        except ssl.SSLError as exc:
            seen = None if exc.reason == "KEY_VALUES_MISMATCH" else self.is_cut_off() if looked_at is None else looked_at(self)
            raise ConfigurationError(seen or f"{self.name}: {self._hint(exc.reason or '', looked_at is not None)}") from exc
        except OSError as exc:
            raise ConfigurationError(f"{self.name}: {exc.strerror or exc}") from exc
        except ConfigurationError:
            raise
        except ValueError as exc:  # OpenSSL takes pass phrases up to 1,024 bytes
            raise ConfigurationError(f"{self.name}: {exc}") from exc

    @staticmethod
    def _hint(reason: str, may_be_locked: bool) -> str:
        damaged = f"the file is damaged, or not what the option takes{f' ({reason})' if reason else ''}"
        hints = {
            "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
            "NO_CERTIFICATE_OR_CRL_FOUND": "the file holds no certificate in PEM form",
        }
        if may_be_locked:
            wrong = "ssl_password does not open the key (a line break at its end, as of a file, would be a part of it)"
            # OpenSSL 3 gives no reason for an encrypted PKCS8 key.
            hints |= {"BAD_DECRYPT": wrong, "BAD_PASSWORD_READ": wrong, "": f"{wrong}, or the file is damaged"}
        return hints.get(reason, damaged)

    @property
    def blocks(self) -> list[str]:
        """What its blocks are, in order: CERTIFICATE, PRIVATE KEY, ..."""
        return _lines_of(self.path, BEGIN)

    @property
    def locked(self) -> bool:
        """Whether a key of it is encrypted."""
        return bool(_lines_of(self.path, LOCKED))

    def is_cut_off(self) -> str | None:
        begun, ended = self.blocks, _lines_of(self.path, END)
        if len(begun) <= len(ended):
            return None
        return f"{self.name}: the file is cut off: -----BEGIN {begun[-1]}----- has no end"


BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
END: Final = re.compile(rb"-----END ([A-Z0-9 ]+)-----")
LOCKED: Final = re.compile(rb"-----BEGIN (ENCRYPTED) PRIVATE KEY-----|Proc-Type: 4,(ENCRYPTED)")


def _lines_of(path: str, mark: re.Pattern[bytes]) -> list[str]:
    """Nothing but these words is taken out of the file, so that no traceback has more of it."""
    try:
        with open(path, "rb") as file:
            return [(found[1] or found[2]).decode() if mark.groups > 1 else found[1].decode() for found in mark.finditer(file.read())]
    except OSError:
        return []


def _name(option: str, value: str) -> str:
    if is_pem_text(value):
        return f"{option} (PEM text)"
    return f"{option} (a text of {len(value)} characters)" if may_be_key(value) else f"{option}={value!r}"


@contextlib.contextmanager
def _pem(option: str, value: str) -> Iterator[_Pem]:
    name = _name(option, value)
    if is_pem_text(value):
        if not is_utf8(value):  # Python's own error would hold the text
            raise ConfigurationError(f"{name}: {NOT_UTF8}")
        with _file_of(_in_lines(value)) as path:
            yield _Pem(name, path)
        return
    if may_be_key(value) and not os.path.exists(value):  # no cause that would show it
        raise ConfigurationError(f"{name}: neither a file nor PEM text, which begins with a line -----BEGIN ...-----")
    _check_file(option, value)
    yield _Pem(name, value)


def _in_lines(text: str) -> bytes:
    """PEM text as OpenSSL reads it: a file of properties gives it as one line, with blanks between."""
    return ONE_LINE.sub(
        lambda m: f"{m[1]}\n" + "\n".join(textwrap.wrap("".join(m[2].split()), 64)) + f"\n{m[3]}\n", str.__str__(text)
    ).encode()


@contextlib.contextmanager
def _file_of(text: bytes) -> Iterator[str]:
    """The path of a file with this text: OpenSSL reads own certificates and revocation lists from nowhere else.

    In memory where there are such files (Linux), else a temporary one that only this user may read.
    """
    fd, path, on_disk = _new_file()
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(text)
        del text  # else a traceback of what fails now could show it
        yield path
    finally:
        os.close(fd)
        if on_disk:
            os.unlink(path)


def _new_file() -> tuple[int, str, bool]:
    """(descriptor, path, whether it is on a disk)."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            fd = os.memfd_create("gkafka-pem")
            path = f"/proc/self/fd/{fd}"
            if os.path.exists(path):
                return fd, path, False
            os.close(fd)
    return (*tempfile.mkstemp(prefix="gkafka-", suffix=".pem"), True)


def _check_file(option: str, path: str) -> None:
    try:
        if _is_pipe(os.stat(path).st_mode):
            raise ConfigurationError(
                f"{option}={path!r}: not a file that can be read again and again: what a pipe gives can be the option's text"
            )
        with open(path, "rb") as file:
            start = file.read(65536)
    except FileNotFoundError as exc:
        raise ConfigurationError(f"{option}={path!r}: there is no such file") from exc
    except ConfigurationError:  # which is a ValueError, too
        raise
    except OSError as exc:
        raise ConfigurationError(f"{option}={path!r}: {exc.strerror}") from exc
    except ValueError as exc:  # a NUL in it
        raise ConfigurationError(f"{option}={path!r}: {exc}") from exc
    if b"-----BEGIN " not in start:
        raise ConfigurationError(f"{option}={path!r}: not a PEM file. PKCS12 and Java key stores have to be converted: {CONVERT[option]}")


def _is_pipe(mode: int) -> bool:
    """What may keep whoever opens it for ever, and gives what it has only once."""
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


ONE_LINE: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)[ \t]+([A-Za-z0-9+/= \t]+)[ \t](-----END [A-Z0-9 ]+-----)")
_CA_COMMAND = "keytool -exportcert -rfc -keystore store.jks -alias ca -file ca.pem, or openssl pkcs12 -in store.p12 -nokeys -out ca.pem"
_OWN_COMMAND = (
    "openssl pkcs12 -in store.p12 -out client.pem -nodes (a JKS first: "
    "keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12)"
)
CONVERT: Final = {
    "ssl_cafile": _CA_COMMAND,
    "ssl_crlfile": "openssl crl -inform DER -in list.crl -out list.pem",
    "ssl_certfile": _OWN_COMMAND,
    "ssl_keyfile": _OWN_COMMAND,
}


# -- contexts of clients in use ----------------------------------------------------------------------------------------
Stamp = tuple["tuple[int, int, int] | None", ...]


class _Contexts:
    """The contexts of the clients in use; made anew when one of their files has changed, so that a renewed certificate is taken up."""

    def __init__(self, keep: int = 32) -> None:
        self._keep = keep
        self._made: OrderedDict[int, tuple[ClientConfig, Stamp, ssl.SSLContext]] = OrderedDict()
        self._warned: OrderedDict[int, tuple[ClientConfig, object]] = OrderedDict()

    def get(self, handler: Handler, config: ClientConfig) -> ssl.SSLContext:
        """Raises ConfigurationError. A pair of certificate and key that is just being exchanged is taken up when it fits again."""
        stamp = tuple(_stamp(getattr(config, option)) for option in FILES)
        known = self._made.get(id(config))  # an entry holds its config, so no other can have this id
        if known is not None and known[1] == stamp:
            return known[2]
        if known is None:
            self._warn_once(config)
        try:
            # Reading the system's authorities takes OpenSSL many milliseconds, without the GIL. A function of the user's stays in this worker.
            context = make_context(config) if callable(config.ssl_password) else handler.offload(make_context, config)
        except ConfigurationError as exc:
            if known is None or known[1][:2] != stamp[:2]:  # whom to trust is never what it was before
                raise
            log.warning("%s: the certificate before it is shown until the files can be used", exc)
            context = known[2]
        self._made[id(config)] = (config, stamp, context)
        while len(self._made) > self._keep:
            self._made.popitem(last=False)
        return context

    def _warn_once(self, config: ClientConfig) -> None:
        """Connections may begin side by side: the one whose mark stays warns."""
        mark = object()
        if self._warned.setdefault(id(config), (config, mark))[1] is mark:
            _warn_of_what_is_not_checked(config)
        while len(self._warned) > self._keep:
            self._warned.popitem(last=False)


def _warn_of_what_is_not_checked(config: ClientConfig) -> None:
    if config.ssl_context is not None:
        return
    if not config.tls_verify:
        log.warning(
            "tls_verify=False: neither certificates nor host names of brokers are checked; whoever is in between can read and change all"
        )
    elif not config.ssl_check_hostname:
        log.warning(
            "ssl_check_hostname=False: the host names of brokers are not checked; whoever has any certificate of these authorities can read "
            "and change all"
        )


def _stamp(value: str | None) -> tuple[int, int, int] | None:
    if value is None or is_pem_text(value):
        return None
    try:
        found = os.stat(value)
    except (OSError, ValueError):
        return None  # make_context says what is wrong with it
    return found.st_mtime_ns, found.st_ino, found.st_size


contexts: Final = _Contexts()
