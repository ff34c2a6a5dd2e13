"""SASL on one connection, without the socket: which requests authenticate it, and what each mechanism says in them.

    SaslHandshake -> the mechanism's messages in SaslAuthenticate (KIP-152), or bare in frames of their own (Kafka 0.10 and 0.11) -> done

The driver sends what `begin` and `take` return and gives `take` each answer, until there is nothing more to send. The same again on the open
connection is a re-authentication (KIP-368). Nonces, tokens and libraries' objects are arguments. No object here shows a secret in its repr.

Source: KIP-43, KIP-152, KIP-255, KIP-342, KIP-368; RFC 4616 (PLAIN), RFC 4752 (GSSAPI), RFC 7628 (OAUTHBEARER)
"""

from __future__ import annotations

import abc
import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from gkafka.config import Secret
from gkafka.core.backoff import Chance
from gkafka.escaping import escaped
from gkafka.exceptions import AuthenticationError, ProtocolError, UnsupportedVersion, error_for
from gkafka.sasloptions import wrong_extension
from gkafka.wire.sasl import (
    FRAMED,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from gkafka.wire.apis import Message, Versions

__all__ = ["Authentication", "Gssapi", "Mechanism", "OAuthBearer", "Plain", "Refusal", "masked", "remarks", "renewal_s"]

UNSUPPORTED_MECHANISM = 33
REFUSED = 58
LONGEST_CHALLENGE = 1 << 16  # bytes; GSSAPI's tickets are the largest that brokers send
LONGEST_TEXT = 300  # characters of a broker's own text that an error repeats
LONGEST_ERROR = 600  # of an error's text, with ours
LONGEST_MASKED = 4096
"""Of a peer's text that secrets are looked for in."""
RECOGNIZABLE = 8
"""So many characters of a secret in a text are no chance."""
BASE64 = "A-Za-z0-9+/_-"
URL_SAFE = str.maketrans("+/", "-_")
SHORTEST_S = 0.1
"""No broker has a client authenticate more often than that; Kafka's own sessions last minutes."""
EARLIEST, LATEST = 0.85, 0.95  # of a session's lifetime: when it is renewed, as the Java client does
NO_LAYER = 1  # GSSAPI: what comes after the authentication is neither signed nor encrypted
TOKEN = re.compile(r"[\x21-\x7e]+")


class Refusal(AuthenticationError):
    """Raised by a mechanism; its text is the broker's, as it came."""


class Mechanism(abc.ABC):
    """What one side of a mechanism says: `first`, then what `respond` makes of each challenge. Used once.

    complete: it has nothing more to say and, where the mechanism can tell, the broker has proven itself. secrets: texts that no error may
    repeat, even if the broker's words do. remark: what an error adds if the broker refuses, "" if nothing. distrusts: what the broker said cannot be
    true, so that it is not the right one. takes_long: its answers need much computing, or wait for somebody else.
    """

    takes_long = False

    __slots__ = ("complete", "distrusts", "name", "remark", "secrets")

    def __init__(self, name: str, *secrets: str) -> None:
        self.name = name
        self.complete = self.distrusts = False
        self.remark = ""
        self.secrets: Sequence[Secret] = tuple(map(_secret, secrets))

    @abc.abstractmethod
    def first(self) -> bytes:
        """What the client says first."""

    @abc.abstractmethod
    def respond(self, challenge: bytes) -> bytes | None:
        """What the client says to this; None: nothing, it is complete. Raises AuthenticationError if the broker is wrong."""

    def told_why(self) -> str:
        """What the broker said about its refusal in the mechanism's own words; "" if nothing."""
        return ""


def remarks(given: Mapping[str, str | None]) -> str:
    """What is strange at the edges of texts that are sent as they are given: mostly a file's line break, or the quotes of another file. "" if nothing.

    given: what each is called -> its text, of which nothing else is told.
    """
    found = [f"{name} {strange}" for name, text in given.items() if (strange := _strange(_secret(text or "").reveal()))]
    return f"{' and '.join(found)}: it is sent so; take that off if it is not meant" if found else ""


def _strange(text: str) -> str:
    if text.endswith(("\n", "\r")):
        return "ends in a line break"
    if text.startswith("\ufeff"):
        return "begins with a byte order mark"
    if text != text.strip():
        return "begins or ends with white space"
    return "stands in quotes" if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else ""


def _secret(text: str) -> Secret:
    return text if isinstance(text, Secret) else Secret(text)


class Plain(Mechanism):
    """A user name and a password, as they are (RFC 4616)."""

    __slots__ = ("_username",)

    def __init__(self, username: str, password: str) -> None:
        super().__init__("PLAIN", password)
        self._username = username
        self.remark = remarks({"the user name": username, "the password": password})

    def first(self) -> bytes:
        return b"\0%b\0%b" % (self._username.encode(), self.secrets[0].encode())

    def respond(self, challenge: bytes) -> bytes | None:
        self.complete = True
        return None


class OAuthBearer(Mechanism):
    """A token, and extensions that go with it (RFC 7628, KIP-342).

    Raises AuthenticationError for a token or extensions that cannot be sent.
    """

    __slots__ = ("_extensions", "_why")

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        super().__init__("OAUTHBEARER", token)
        if not TOKEN.fullmatch(token):
            strange = _strange(self.secrets[0].reveal())
            raise AuthenticationError(
                f"the token {strange}: take that off"
                if strange
                else "the token holds characters that no token has, as spaces or line breaks, or is empty"
            )
        self.remark = remarks({"the token": token})
        self._extensions = checked_extensions(extensions or {})
        self._why = ""

    def first(self) -> bytes:
        pairs = [
            f"auth=Bearer {self.secrets[0].reveal()}",
            *(f"{key}={_secret(value).reveal()}" for key, value in self._extensions.items()),
        ]
        return ("n,,\x01" + "".join(f"{pair}\x01" for pair in pairs) + "\x01").encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if not challenge:
            self.complete = True
            return None
        if self._why:
            raise AuthenticationError("the broker goes on about a token that it has refused")
        self._why = _status(challenge)
        return b"\x01"  # the broker's error comes after this

    def told_why(self) -> str:
        return self._why


def checked_extensions(extensions: Mapping[str, str]) -> Mapping[str, str]:
    """The extensions, if they can stand in a message. The error names their keys only."""
    for key, value in extensions.items():
        if wrong := wrong_extension(key, value):
            raise AuthenticationError(f"OAUTHBEARER extension {wrong}")
    return extensions


def _status(challenge: bytes) -> str:
    """RFC 7628's error: {"status": ..., "scope": ..., "openid-configuration": ...}."""
    import json  # seldom needed, and not light

    try:
        told = json.loads(challenge)
        return ", ".join(f"{name}: {told[name]}" for name in ("status", "scope", "openid-configuration") if told.get(name))
    except (ValueError, AttributeError, RecursionError):
        return "it gives no reason that can be read"


class Gssapi(Mechanism):
    """Kerberos, by a security context of python-gssapi's kind: step(), complete, wrap(), unwrap() (RFC 4752). No security layer after it.

    A context's own errors pass through.
    """

    __slots__ = ("_context",)
    takes_long = True

    def __init__(self, context: Any) -> None:
        super().__init__("GSSAPI")
        self._context = context

    def first(self) -> bytes:
        return self._context.step() or b""

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._context.complete:
            return self._context.step(challenge) or b""
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & NO_LAYER:
            raise AuthenticationError("GSSAPI: the broker asks for a security layer, which Kafka has not")
        self.complete = True
        answer: bytes = self._context.wrap(bytes((NO_LAYER, 0, 0, 0)), False).message
        return answer


class Authentication:
    """The requests that authenticate one connection, once.

    versions: what the broker speaks; peer: host:port, for errors.
    """

    def __init__(self, mechanism: Mechanism, versions: Versions, *, peer: str) -> None:
        self.lifetime_ms = 0
        """How long the broker takes this client for authenticated; 0: as long as the connection lasts."""
        self.done = False
        self._mechanism = mechanism
        self._peer = peer
        self._framed = versions.supports(SaslHandshakeRequest.API, FRAMED)
        self._known = versions.supports(SaslHandshakeRequest.API, 0)

    @property
    def bare(self) -> bool:
        """Do the mechanism's messages stand in frames without a header?"""
        return not self._framed

    def newest_version(self, request: Message) -> int | None:
        """Of one of our requests: the newest version that may be used; None: any."""
        return 0 if self.bare and isinstance(request, SaslHandshakeRequest) else None

    def begin(self) -> SaslHandshakeRequest:
        """The first request."""
        if not (self._framed or self._known):
            raise UnsupportedVersion(
                f"{self._peer}: the broker does not know SaslHandshake: it is older than Kafka 0.10, or no broker of Kafka's kind",
                broker=self._peer,
                api="SaslHandshake",
            )
        return SaslHandshakeRequest(mechanism=self._mechanism.name)

    def take(self, answer: Message | bytes | memoryview) -> SaslAuthenticateRequest | bytes | None:
        """What to send after this answer: a request, or, if `bare`, a message without a header. None: nothing.

        Raises AuthenticationError, naming what the broker said, if it refuses or cannot be trusted.
        """
        if isinstance(answer, SaslHandshakeResponse):
            self._check_handshake(answer)
            return self._say(self._mechanism.first())
        if isinstance(answer, SaslAuthenticateResponse):
            self._check_answer(answer)
            self.lifetime_ms = max(0, answer.session_lifetime_ms)
            challenge = bytes(answer.auth_bytes)
        else:
            assert isinstance(answer, bytes | memoryview)
            challenge = bytes(answer)
        return self._after(challenge)

    def _after(self, challenge: bytes) -> SaslAuthenticateRequest | bytes | None:
        if len(challenge) > LONGEST_CHALLENGE:
            raise ProtocolError(f"{self._peer}: a SASL message of {len(challenge)} bytes", broker=self._peer, api="SaslAuthenticate")
        if not self._mechanism.complete:
            said = self._respond(challenge)
            if said is not None:
                return self._say(said)
        if not self._mechanism.complete:
            raise AuthenticationError(self._text("the broker ended the exchange too early"), broker=self._peer, api="SaslAuthenticate")
        self.done = True
        return None

    def _respond(self, challenge: bytes) -> bytes | None:
        try:
            return self._mechanism.respond(challenge)
        except Refusal as exc:
            said = f"the broker refuses: {self._shown(str(exc))}{self._remark()}"
        except AuthenticationError as exc:
            said = str(exc)
            self._mechanism.distrusts = True
        raise AuthenticationError(self._text(said), broker=self._peer, api="SaslAuthenticate")

    def _remark(self) -> str:
        return f" ({self._mechanism.remark})" if self._mechanism.remark else ""

    def _say(self, message: bytes) -> SaslAuthenticateRequest | bytes:
        if self._framed:
            return SaslAuthenticateRequest(auth_bytes=message)
        self.done = self._mechanism.complete  # an old broker does not answer the last message
        return message

    def _check_handshake(self, answer: SaslHandshakeResponse) -> None:
        if not answer.error_code:
            return
        said = None
        if answer.error_code == UNSUPPORTED_MECHANISM:
            offered = ", ".join(escaped(name, 40) for name in answer.mechanisms[:20]) or "none"
            said = f"sasl_mechanism={self._mechanism.name!r} is not offered by this listener; it offers {offered}"
        error = error_for(answer.error_code, said, broker=self._peer, api="SaslHandshake")
        assert error is not None
        raise error if isinstance(error, AuthenticationError) else AuthenticationError(str(error), broker=self._peer, api="SaslHandshake")

    def _check_answer(self, answer: SaslAuthenticateResponse) -> None:
        if not answer.error_code:
            return
        said, why = self._shown(answer.error_message or ""), self._shown(self._mechanism.told_why())
        text = f"{self._mechanism.name}: {said or 'the broker gives no reason'}"
        if why and "status" not in said:
            text += f" ({why})"
        if answer.error_code == REFUSED:
            text += self._remark()
        error = error_for(answer.error_code, text, broker=self._peer, api="SaslAuthenticate")
        assert error is not None
        if isinstance(error, AuthenticationError) or error.retriable:
            raise error
        raise AuthenticationError(str(error), broker=self._peer, api="SaslAuthenticate")

    def _text(self, what: str) -> str:
        """what: words of ours. To mask in them what happens to be a secret, too, would show that."""
        return f"{self._peer}: {self._mechanism.name}: {escaped(what, LONGEST_ERROR)}"

    def _shown(self, text: str) -> str:
        """The broker's words, without what it may have repeated of our secrets."""
        return escaped(masked(text, self._mechanism.secrets), LONGEST_TEXT)


def masked(text: str, secrets: Iterable[Secret]) -> str:
    """A peer's text without our secrets: as they are, as JSON writes them, in base64 wherever they stand in it, whole or cut off.

    Only the first LONGEST_MASKED characters are looked at, and the text is cut there: a peer may have written the beginning of a secret 30,000 times.
    """
    forms: set[str] = set()
    coded: set[str] = set()
    for secret in filter(None, secrets):
        plain = secret.reveal()
        forms |= {plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
        coded |= _in_base64(plain.encode(errors="replace"))
    cut = ""
    if len(text) > LONGEST_MASKED:
        text, cut = _cut(text[:LONGEST_MASKED], forms | coded), f"... (cut: it has {len(text)} characters)"
    # All of them whole, before any beginning: that of one may be the beginning of another, whose end would stay.
    for form in sorted(forms | coded, key=len, reverse=True):
        edge = f"[{BASE64}]?" if form in coded else ""  # that character tells some bits of it
        text = re.sub(edge + re.escape(form) + edge, "***", text)
    forms |= coded
    text = _without_beginnings(text, forms)
    backwards = _without_beginnings(text[::-1], {form[::-1] for form in forms})  # and without their ends, of what was cut off before them
    return backwards[::-1] + cut


def _cut(text: str, forms: Iterable[str]) -> str:
    """Without what a secret may have begun with where the text was cut, of less than is masked anyway."""
    begun = max((n for form in forms for n in range(1, RECOGNIZABLE) if text.endswith(form[:n])), default=0)
    return text[: len(text) - begun]


def _in_base64(plain: bytes) -> set[str]:
    """What is the same of it whatever stands around it, at each of the three places in a group that it may begin."""
    shifted = (base64.b64encode(bytes(shift) + plain).decode().rstrip("=") for shift in range(3))
    forms = {text[begin:-1] for text, begin in zip(shifted, (0, 2, 3), strict=True) if len(text) - begin > RECOGNIZABLE}
    return forms | {form.translate(URL_SAFE) for form in forms}


def _without_beginnings(text: str, forms: Iterable[str]) -> str:
    """Where so much of one that it is no chance stands in the text, and then something else."""
    forms = [form for form in forms if len(form) >= RECOGNIZABLE]
    for head in {form[:RECOGNIZABLE] for form in forms}:
        alike = [form for form in forms if form.startswith(head)]
        at = text.find(head)
        while at >= 0:
            end = at + max(_in_common(form, text[at:]) for form in alike)
            text = f"{text[:at]}***{text[end:]}"
            at = text.find(head, at + 3)
    return text


def _in_common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def renewal_s(lifetime_ms: int, chance: Chance) -> float | None:
    """How long after the authentication the next one is due, so that many connections do not come at once. None: never.

    SHORTEST_S at the least, whatever the broker says: a lifetime of 1 ms would keep the client, and the broker, at nothing else.
    """
    if not lifetime_ms:
        return None
    return max(SHORTEST_S, lifetime_ms / 1000 * (EARLIEST + (LATEST - EARLIEST) * chance.random()))
