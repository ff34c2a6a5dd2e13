"""TLS over any Stream, by memory BIOs: the library encrypts, the stream waits.

So it is cooperative with every SSLContext, the user's own and those of the standard library in a gevent process included (an SSLSocket
made from them would block the hub), and reader and writer never wait inside one SSLObject.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from gkafka.config import ClientConfig
from gkafka.exceptions import ConnectionFailedError, ForkedClientError, KafkaException, SocketDisconnectedError, TlsError
from gkafka.handlers.base import Buffer, Handler, Stream
from gkafka.handlers.sockets import drop, flatten
from gkafka.net.tlscontext import contexts
from gkafka.undoing import Undoing

__all__ = ["TlsStream", "start_tls"]

RECORD: Final = 16384  # most plaintext in one TLS record
INPUT: Final = 65536  # ciphertext taken from the stream at once; what OpenSSL holds undecrypted is bounded by it
OURS: Final = (
    "bad certificate",
    "unsupported certificate",
    "certificate revoked",
    "certificate expired",
    "certificate unknown",
    "unknown ca",
)
"""Alerts of a server that speak of the client's certificate."""
LAST_WORDS: Final = 4096  # bytes: alerts take some thirty each
TURN: Final = 262144  # plaintext encrypted before the lock is given up and other workers get a turn


# -- the handshake -----------------------------------------------------------------------------------------------------
def start_tls(
    handler: Handler,
    stream: Stream,
    host: str,
    port: int,
    *,
    deadline: float,
    config: ClientConfig,
    heard: Callable[[str], object] = lambda what: None,
) -> TlsStream:
    """Shake hands over a connected stream, and own it from then on: it is closed if the handshake fails.

    heard: is told what came of the server's part.

    Raises TlsError (certificate, host name, versions), ConnectionFailedError (the peer went away or does not speak TLS),
    KafkaTimeoutError, ConfigurationError.
    """
    with Undoing(stream.close):
        context = contexts.get(handler, config)
        tls = TlsStream(handler, stream, context, server_name(host), f"{host}:{port}")
        tls.handshake(deadline, heard)
    return tls


def server_name(host: str) -> str:
    """The name that is asked for by SNI and looked for in the certificate.

    Without the dot that ends an absolute name, and without the zone of an IPv6 address; OpenSSL itself sends no SNI for an address.
    """
    name = host.rstrip(".")
    return name.partition("%")[0] if ":" in name else name


def explain(exc: ssl.SSLError, where: str, what: str) -> TlsError:
    """OpenSSL's error in the words of who has to do something about it. what: the sentence for an error nothing more is known of."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return TlsError(f"{where}: certificate verify failed: {exc.verify_message}: {_certificate_hint(exc)}", broker=where)
    reason = exc.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"):
        error = TlsError(f"{where}: the server answered, but not in TLS: is this port a PLAINTEXT listener? ({reason})", broker=where)
        error.has_no_tls = True
        return error
    if reason in ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE"):
        return TlsError(f"{where}: no TLS version in common; gkafka speaks TLS 1.2 and newer ({reason})", broker=where)
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return TlsError(
            f"{where}: the server refused the handshake: it may ask for a client certificate, ssl_certfile=... ({reason})", broker=where
        )
    if "ALERT" in reason:
        alert = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        # What Java says to a client without a certificate is "bad certificate", too.
        hint = ": it wants a certificate of this client that it knows the authority of, ssl_certfile=..." if alert in OURS else ""
        return TlsError(f"{where}: the server refused the handshake with the TLS alert {alert!r}{hint}", broker=where)
    return TlsError(f"{where}: {what}: {reason or exc}", broker=where)


def _certificate_hint(exc: ssl.SSLCertVerificationError) -> str:
    if exc.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH
        return "connect by a name that is in the certificate, or have the brokers advertise one"
    if exc.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return "the broker needs a new certificate"
    if exc.verify_code in (2, 18, 19, 20, 21):  # the issuer is unknown, or the certificate is its own issuer
        return "give the authority that signed it: ssl_cafile=..."
    if exc.verify_code == 23:  # X509_V_ERR_CERT_REVOKED
        return "its authority took it back, as ssl_crlfile says: the broker needs a new certificate"
    if exc.verify_code in (3, 11, 12):  # no list of this authority, not yet valid, out of date
        return "ssl_crlfile must hold the newest list of the authority that signed it"
    return "the broker's certificate, or the authorities in ssl_cafile, have to be changed"


# -- the stream --------------------------------------------------------------------------------------------------------
class TlsStream(Stream):
    """An encrypted stream. One reader and one writer, as in every Stream.

    The lock is held around OpenSSL, which only computes, and around sends that do not wait; never across a wait. What OpenSSL has to
    send goes through one buffer, in the order it was produced, whoever caused it.
    """

    def __init__(self, handler: Handler, stream: Stream, context: ssl.SSLContext, server_hostname: str, where: str) -> None:
        self.peer = stream.peer
        self._where = where
        self._handler = handler
        self._stream = stream
        self._lock = handler.Mutex()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        except (ValueError, ssl.SSLError) as exc:
            raise TlsError(f"{where}: TLS cannot be set up: {exc}", broker=where) from exc
        self._input = memoryview(bytearray(INPUT))
        self._ciphertext = b""  # produced, not yet taken by the stream
        self._owed = 0  # bytes of plaintext that are in _ciphertext and that no try_send() has counted yet
        self._draining = False  # a writer sends ciphertext outside the lock: nobody else may send
        self._broken = False
        self._closing = False
        self._heard = False  # the server has said more than the handshake: nothing can be wrong with our certificate

    # handshake
    def handshake(self, deadline: float, heard: Callable[[str], object] = lambda what: None) -> None:
        """Raises TlsError, ConnectionFailedError, KafkaTimeoutError. When it returns, the checks of the context have passed."""
        received = 0
        while True:
            try:
                done = self._handshake_step()
            except ssl.SSLError as exc:
                self._send_alert()
                raise explain(exc, self._where, "the TLS handshake failed") from exc
            self._drain(deadline)
            if done:
                return
            came = self._receive(deadline)
            received += came
            heard(f"{received} bytes of the server's part")
            if not came:
                raise ConnectionFailedError(
                    f"{self._where}: the server closed the connection during the TLS handshake: is this port a PLAINTEXT listener?",
                    broker=self._where,
                )

    def _handshake_step(self) -> bool:
        with self._lock:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            finally:
                self._ciphertext += self._outgoing.read()
            return True

    def _send_alert(self) -> None:
        """Tell the server why, if it can be told at once."""
        with contextlib.suppress(SocketDisconnectedError), self._lock:
            self._offer()

    # reading
    def recv_into(self, view: memoryview | bytearray, deadline: float | None = None) -> int:
        target = memoryview(view)
        while True:
            received = self._decrypt(target)
            if received is None:
                self._receive(deadline)
            elif received or not self._closing:
                return received
            else:  # our own close_notify was answered before our close() had come to an end
                raise SocketDisconnectedError(f"{self.peer}: the connection was closed by this client")

    def look_again(self) -> None:
        self._stream.look_again()

    def _decrypt(self, target: memoryview) -> int | None:
        """What can be decrypted now, as much as fits; 0 at the end, None if more ciphertext is needed."""
        total = 0
        with self._lock:
            try:
                while total < len(target):
                    received = cast(int, self._tls.read(len(target) - total, target[total:]))
                    if not received:
                        return total
                    total += received
                    self._heard = True
            except ssl.SSLWantReadError:
                return total or None
            except ssl.SSLEOFError:
                # No close_notify. Kafka's frames carry their length: a cut is noticed by whoever reads them.
                return total
            except ssl.SSLError as exc:
                if total:
                    return total  # the error comes again with the next call
                raise self._broken_off(exc) from exc
            finally:
                if self._outgoing.pending:
                    self._answer()
        return total

    def _broken_off(self, exc: ssl.SSLError) -> SocketDisconnectedError:
        """What an error behind the handshake is. With TLS 1.3 the server looks at our certificate only then; all else is a connection that was
        damaged on the way, as one in clear text would be: another one may be better."""
        reason = exc.reason or ""
        alert = reason.rpartition("ALERT_")[2].replace("_", " ").lower() if "ALERT" in reason else ""
        if alert in (*OURS, "certificate required", "handshake failure", "access denied"):
            return explain(exc, self._where, "TLS failed")
        return SocketDisconnectedError(f"{self._where}: TLS failed: {reason or exc}", broker=self._where)

    def _answer(self) -> None:
        """Reading made OpenSSL say something (an answer to a key update). Best effort: the peer does not wait for it."""
        self._ciphertext += self._outgoing.read()
        with contextlib.suppress(SocketDisconnectedError):
            self._offer()

    def _receive(self, deadline: float | None) -> int:
        received = self._stream.recv_into(self._input, deadline)
        with self._lock:
            if received:
                self._incoming.write(self._input[:received])
            else:
                self._incoming.write_eof()
        return received

    # writing
    def try_send(self, buffers: Sequence[Buffer]) -> int:
        """See Stream. What is counted has left as ciphertext; a record that is half sent is counted by a later call, which is given the
        same bytes again (OpenSSL's own rule for repeated writes)."""
        views = flatten(buffers)
        total = 0
        while views:
            taken = self._pushed(views)
            total += taken
            views = drop(views, taken)
            if self._ciphertext or self._draining:
                break
        return total

    def send_all(self, buffers: Sequence[Buffer], deadline: float | None = None) -> None:
        views = flatten(buffers)
        while views:
            taken = self._pushed(views)
            views = drop(views, taken)
            if views:
                self._drain(deadline)
                self._handler.checkpoint()

    def _pushed(self, views: list[memoryview]) -> int:
        try:
            with self._lock:
                return self._push(views, TURN)
        except SocketDisconnectedError as exc:
            refusal = self._last_words()
            if refusal is None:
                raise
            raise refusal from exc

    def _push(self, views: list[memoryview], limit: int) -> int:
        """Encrypt and send until `limit` bytes are out or the stream takes no more: how many bytes of the views are out."""
        if self._broken:
            raise SocketDisconnectedError(f"{self.peer}: an earlier send on this connection failed")
        if not self._offer():
            return 0
        taken, self._owed = self._owed, 0
        for piece in pieces(views, taken):
            try:
                self._tls.write(piece)
            except ssl.SSLError as exc:  # the peer has said goodbye
                raise SocketDisconnectedError(f"{self.peer}: TLS: {exc.reason or exc}") from exc
            self._ciphertext = self._outgoing.read()
            if not self._offer():
                self._owed = len(piece)
                break
            taken += len(piece)
            if taken >= limit:
                break
        return taken

    def _offer(self) -> bool:
        """Send ciphertext without waiting: whether all of it is out."""
        if self._ciphertext and not self._draining:
            sent = self._stream.try_send([self._ciphertext])
            self._ciphertext = self._ciphertext[sent:]
        return not self._ciphertext and not self._draining

    def _last_words(self) -> TlsError | None:
        """Why a send failed, if the server said it before: an alert about our certificate comes behind the handshake, and what was sent meanwhile
        makes its end a reset. Without a wait: who sends holds locks. A reader that is at work sees it by itself."""
        if self._heard:
            return None
        said = bytearray(LAST_WORDS)
        with contextlib.suppress(KafkaException):  # closed meanwhile
            received = self._stream.receive_now(said)
            with self._lock:
                self._incoming.write(said[:received])
                try:
                    self._tls.read(1)
                except ssl.SSLWantReadError:
                    return None
                except ssl.SSLError as exc:
                    found = self._broken_off(exc)
                    return found if isinstance(found, TlsError) else None
        return None

    def _drain(self, deadline: float | None) -> None:
        """Send ciphertext, waiting. Outside the lock: what the reader adds meanwhile stays behind it."""
        while self._ciphertext or self._draining:
            with self._lock:
                if self._draining:
                    raise RuntimeError(f"{self.peer}: two workers send on one stream")
                out, self._ciphertext = self._ciphertext, b""
                self._draining = True
            try:
                with Undoing(self._break):
                    self._stream.send_all([out], deadline)
            finally:
                self._draining = False

    def _break(self) -> None:
        self._broken = True  # the peer has part of a record: whatever came next would be garbage to it

    # the end
    def shutdown(self) -> None:
        self._say_goodbye()
        self._stream.shutdown()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._say_goodbye()
        self._stream.close()

    def _say_goodbye(self) -> None:
        """close_notify, if nobody is inside and the stream takes it at once; never from a forked child."""
        with contextlib.suppress(ForkedClientError, SocketDisconnectedError):
            self._handler.check_fork()
            if not self._lock.acquire(False):
                return
            try:
                if self._offer():
                    with contextlib.suppress(ssl.SSLError, ValueError):  # it waits for the peer's; or the handshake is not done
                        self._tls.unwrap()
                    self._ciphertext = self._outgoing.read()
                    self._offer()
            finally:
                self._lock.release()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def closed(self) -> bool:
        return self._closing or self._stream.closed

    # what was agreed
    @property
    def version(self) -> str | None:
        """ "TLSv1.3", for logs and tests."""
        return self._tls.version()

    @property
    def certificate(self) -> dict[str, Any]:
        """The peer's, as ssl.SSLSocket.getpeercert() has it; empty if it was not checked."""
        return dict(self._tls.getpeercert() or {})

    @property
    def certificate_der(self) -> bytes:
        """The same as it was sent, checked or not; b"" if there is none."""
        return self._tls.getpeercert(binary_form=True) or b""


def pieces(views: list[memoryview], skip: int) -> Iterator[bytes | memoryview]:
    """The bytes of the views from `skip` on, in pieces that fill a TLS record; small buffers are joined."""
    small: list[memoryview] = []
    size = 0
    for view in drop(views, skip):
        for start in range(0, view.nbytes, RECORD):
            part = view[start : start + RECORD]
            if size + part.nbytes > RECORD:
                yield small[0] if len(small) == 1 else b"".join(small)
                small, size = [], 0
            small.append(part)
            size += part.nbytes
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)
