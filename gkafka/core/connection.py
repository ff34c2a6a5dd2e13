"""One connection to a broker, without the socket: what is asked first, what is in flight, what an answer belongs to.

    NEW -> CONNECTING -> NEGOTIATING -> OPEN -> CLOSED        (MOVES below is the whole picture)
                                     -> AUTHENTICATING -> OPEN

One driver (`net.opening`) connects, sends what `connected` and `negotiated` return until they return nothing, and has the client authenticated
if the state is AUTHENTICATING (`ask`, `answer`). Then another (`net.channel`) sends what `prepare` returns and gives each frame that arrives to
`take`. Time is an argument: monotonic seconds.

Source: KIP-35 (ApiVersions), KIP-511 (error 35 answered in version 0), https://kafka.apache.org/protocol#protocol_network
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from gkafka.exceptions import KafkaTimeoutError, ProtocolError, UnsupportedVersion, error_for
from gkafka.wire.apis import MOST_ENTRIES, Api, TooManyEntries, Versions, decode_response, encode_request, parse_api_versions
from gkafka.wire.apiversions import ApiVersionsRequest
from gkafka.wire.offsets import ListOffsetsRequest
from gkafka.wire.templates import BatchRequest
from gkafka.wire.versions import NamedRelease

__all__ = ["MOVES", "TOLD", "UNTOLD", "Ask", "Connection", "Event", "Outcome", "Sent", "State", "frame_size"]

Buffer = bytes | bytearray | memoryview
UNSUPPORTED_VERSION = 35
LAST_ID = 0x7FFFFFFF
SMALLEST_FRAME = 4  # bytes: a correlation id and nothing else
LARGEST_FIRST_ANSWER = 1 << 20  # bytes: what is asked while negotiating has a short answer; "HTTP" read as a size is 1.2 GB


class State(enum.Enum):
    NEW = "new"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    OPEN = "open"
    CLOSED = "closed"


class Event(enum.Enum):
    CONNECT = "a connection is being made"
    ASK = "the peer is asked what it speaks"
    GIVE_UP = "the peer closed instead of answering, or did not answer in time"
    KNOWN = "what the peer speaks is known"
    NEEDS_PROOF = "what the peer speaks is known, and it is to be told who the client is"
    AUTHENTICATED = "the peer knows who the client is"
    LOSE = "the connection is gone"


MOVES: dict[tuple[State, Event], State] = {
    (State.NEW, Event.CONNECT): State.CONNECTING,
    (State.CONNECTING, Event.ASK): State.NEGOTIATING,
    (State.CONNECTING, Event.KNOWN): State.OPEN,  # nothing has to be asked
    (State.NEGOTIATING, Event.ASK): State.NEGOTIATING,  # the next question, on the same connection
    (State.NEGOTIATING, Event.GIVE_UP): State.CONNECTING,  # the next question, on a new connection
    (State.NEGOTIATING, Event.KNOWN): State.OPEN,
    (State.CONNECTING, Event.NEEDS_PROOF): State.AUTHENTICATING,
    (State.NEGOTIATING, Event.NEEDS_PROOF): State.AUTHENTICATING,
    (State.AUTHENTICATING, Event.AUTHENTICATED): State.OPEN,
    (State.NEW, Event.LOSE): State.CLOSED,
    (State.CONNECTING, Event.LOSE): State.CLOSED,
    (State.NEGOTIATING, Event.LOSE): State.CLOSED,
    (State.AUTHENTICATING, Event.LOSE): State.CLOSED,
    (State.OPEN, Event.LOSE): State.CLOSED,
    (State.CLOSED, Event.LOSE): State.CLOSED,
}


# -- what is asked of a fresh connection -------------------------------------------------------------------------------
class Ask(enum.Enum):
    HIGHEST = "ApiVersions"
    LOWEST = "ApiVersions v0"
    GROUPS = "DescribeGroups v0"  # 0.9.0 has it; 0.8.2 closes the connection on an api that it does not know
    OFFSETS = "ListOffsets v0"  # every Kafka since 0.8.0 has it, and it changes nothing there
    CONFIRM = "ApiVersions v0 once more"
    NOTHING = "nothing"


class Outcome(enum.Enum):
    ANSWERED = "answered"
    REFUSED = "error 35"
    CLOSED = "the peer closed the connection"
    SILENT = "no answer, though there was time for one"


PROVES = {Ask.GROUPS: "0.9.0", Ask.OFFSETS: "0.8.2"}  # what it can be, if it has no ApiVersions

# What comes after what. Real brokers: 0.8.2 closes on ApiVersions, 0.9.0.1 never answers it. A modern one that is stopped, paused or behind
# a proxy without a backend does the same, and would answer the next question when it is back. So a broker is taken for an old one only if
# it answers an old question and then, alive as it is, still does not answer ApiVersions. The version of a broker that is taken for an old one
# holds for this connection.
UNTOLD: dict[tuple[Ask, Outcome], Ask] = {
    (Ask.HIGHEST, Outcome.REFUSED): Ask.LOWEST,  # KIP-511
    (Ask.HIGHEST, Outcome.CLOSED): Ask.LOWEST,
    (Ask.HIGHEST, Outcome.SILENT): Ask.GROUPS,
    (Ask.LOWEST, Outcome.CLOSED): Ask.GROUPS,
    (Ask.LOWEST, Outcome.SILENT): Ask.GROUPS,
    (Ask.GROUPS, Outcome.ANSWERED): Ask.CONFIRM,
    (Ask.GROUPS, Outcome.CLOSED): Ask.OFFSETS,
    (Ask.OFFSETS, Outcome.ANSWERED): Ask.CONFIRM,
    (Ask.CONFIRM, Outcome.CLOSED): Ask.NOTHING,
    (Ask.CONFIRM, Outcome.SILENT): Ask.NOTHING,
}
TOLD: dict[tuple[Ask, Outcome], Ask] = {  # broker_version says 0.10 or newer: asked all the same, because it may be newer still
    (Ask.HIGHEST, Outcome.REFUSED): Ask.LOWEST,
    (Ask.HIGHEST, Outcome.CLOSED): Ask.LOWEST,
    (Ask.LOWEST, Outcome.REFUSED): Ask.NOTHING,
    (Ask.LOWEST, Outcome.CLOSED): Ask.NOTHING,
}
# A broker that knows SaslHandshake, or has once answered, has ApiVersions: nothing else is assumed.
ASKED: dict[tuple[Ask, Outcome], Ask] = {
    (Ask.HIGHEST, Outcome.REFUSED): Ask.LOWEST,
    (Ask.HIGHEST, Outcome.CLOSED): Ask.LOWEST,
}
ASK_FIRST = "0.9.0"  # the documented default of broker_version: it stands for "not told", see `kafka-tools docs options`
BYTES_PER_ENTRY = 256
"""An answer has at most one entry for so many bytes of max_response_bytes, or MOST_ENTRIES: each becomes an object, which takes half a kilobyte."""
FEW_ENTRIES = 4096
"""Are read within 10 ms, by who has no more time."""
MOST_MECHANISMS = 1_000
"""Entries in the answers to SaslHandshake and SaslAuthenticate."""
QUIET_S = 1.5  # a broker that does not answer ApiVersions within this may be a 0.9.0, which never does


def _has_no_api_versions(broker_version: str) -> bool:
    """Older than 0.10."""
    return ApiVersionsRequest.API.key not in Versions.for_broker(broker_version).ranges


def _api(ask: Ask) -> str:
    """Its name, with which what is asked begins."""
    return ask.value.partition(" ")[0]


# -- frames ------------------------------------------------------------------------------------------------------------
HINTS = (
    (b"HTTP", "the peer speaks HTTP; is this the port of a web server?"),
    (b"GET ", "the peer speaks HTTP; is this the port of a web server?"),
    (b"POST", "the peer speaks HTTP; is this the port of a web server?"),
    (b"\x15\x03", "the peer answers with a TLS alert; does this listener need security_protocol='SSL'?"),
    (b"\x16\x03", "the peer speaks TLS; does this listener need security_protocol='SSL'?"),
    (b"SSH-", "the peer is an SSH server"),
)


def frame_size(
    prefix: Buffer, limit: int, peer: str, smallest: int = SMALLEST_FRAME, accepted: str = "accepted here (option max_response_bytes)"
) -> int:
    """The size that a frame's first four bytes claim, checked before memory is taken for it. limit, smallest: what is allowed; accepted: when, or by
    which option.

    Raises ProtocolError for a size that cannot be, with a hint if the bytes are those of another protocol.
    """
    (size,) = struct.unpack_from(">i", prefix)
    if smallest <= size <= limit:
        return int(size)
    first = bytes(prefix[:4])
    for start, hint in HINTS:
        if first.startswith(start):
            raise ProtocolError(f"{peer}: not a Kafka broker's answer: {hint}", broker=peer)
    if first.isascii() and first.decode().isprintable():
        raise ProtocolError(f"{peer}: not a Kafka broker's answer: it begins with the text {first.decode()!r}", broker=peer)
    why = f"more than the {limit} that are {accepted}" if size > limit else "negative" if size < 0 else "too small for an answer"
    raise ProtocolError(f"{peer}: an answer claims a size of {size} bytes, which is {why}", broker=peer)


class Sent:
    """A request that awaits its answer. token: what the driver gave to `prepare`; deadline: monotonic seconds; asked: see `Message.asked`."""

    __slots__ = ("api", "asked", "correlation_id", "deadline", "sent_at", "timeout_s", "token", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, token: Any, now: float, timeout_s: float, asked: int | None = None
    ) -> None:
        self.api = api
        self.version = version
        self.asked = asked
        self.correlation_id = correlation_id
        self.token = token
        self.sent_at = now
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s


class Connection:
    """The state of one connection. peer: host:port, for the texts of errors; broker: what their `broker` attribute holds.

    known_as: what an earlier connection to this broker was taken for; nothing is asked then. tells: an earlier one was told what it speaks,
    so nothing is assumed of it. doubted: an earlier one took it for an old one, which may be wrong; only what proves that is asked.
    versions: what the broker speaks, as the user says; nothing is asked then either. max_broker_version: the release whose versions are the
    newest that are used of those that the broker tells. connect_timeout_s: how long all the questions together
    may take. authenticates: the client has to say who it is before the connection is open. Not locked: the driver sees to it that one
    worker at a time is in here.
    """

    def __init__(
        self,
        peer: str,
        *,
        client_id: str | None,
        broker_version: str,
        max_response_bytes: int,
        software: tuple[str, str] = ("gkafka", "unknown"),
        broker: str | int | None = None,
        known_as: str | None = None,
        tells: bool = False,
        doubted: bool = False,
        versions: Versions | None = None,
        max_broker_version: str | None = None,
        connect_timeout_s: float = 10.0,
        authenticates: bool = False,
    ) -> None:
        self.peer = peer
        self.broker = peer if broker is None else broker
        self.state = State.NEW
        self.versions: Versions | None = None
        self.spoken = ""  # how the versions became known, for the log
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._most_entries = max(max_response_bytes // BYTES_PER_ENTRY, MOST_ENTRIES)
        self._software = software
        for said in filter(None, (broker_version, max_broker_version)):
            Versions.for_broker(said)  # a version that is not known is refused here, not when the broker turns out to be old
        self._max_broker_version = max_broker_version
        self.taken_for: str | None = known_as  # the old version that it is spoken to in, without ever having said so
        self._then = ASKED if authenticates or tells else UNTOLD if broker_version == ASK_FIRST else TOLD
        self.guessed = broker_version == ASK_FIRST and versions is None
        """Once it is open: nobody has said what the peer speaks."""
        self._authenticates = authenticates
        self.bare = False
        """While authenticating: frames have no header (the mechanism's messages of Kafka 0.10 and 0.11)."""
        self._ask = Ask.HIGHEST
        self._asks: list[str] = []
        self._asked_at = 0.0
        self._quiet_s = min(QUIET_S, connect_timeout_s / 5)
        self._told = versions
        if versions is not None:
            self.taken_for = known_as = None
            self._ask = Ask.NOTHING
        if known_as is None and broker_version != ASK_FIRST and versions is None:
            self.taken_for = broker_version
        if doubted and self._then is UNTOLD and versions is None:
            self._ask = Ask.GROUPS
        if known_as is not None or (_has_no_api_versions(broker_version) and broker_version != ASK_FIRST):
            self._ask = Ask.NOTHING
        self._asked_version = 0
        self._asked_api = ApiVersionsRequest.API
        self._next_id = 1  # not 0: an answer of zeros must not match
        self._asked_id = 0
        self._in_flight: deque[Sent] = deque()
        self._earliest: deque[Sent] = (
            deque()
        )  # of those in flight, each one whose deadline is before all later ones': the first is the earliest

    def _move(self, event: Event) -> None:
        self.state = MOVES[self.state, event]

    # -- opening
    def connecting(self) -> None:
        """A connection is about to be made for the first time."""
        self._move(Event.CONNECT)

    def connected(self, now: float) -> list[Buffer]:
        """What to send first on a connection that was just made; nothing if it is open at once."""
        return self._question(now)

    def negotiated(self, frame: memoryview, now: float) -> list[Buffer]:
        """Take the answer to what was asked; returns what to send next, nothing if the connection is open now.

        Raises ProtocolError for an answer that is none, UnsupportedVersion or another BrokerError for one that refuses.
        """
        self._check_id(frame, self._asked_id, _api(self._ask))
        if self._ask in PROVES:
            self.taken_for = PROVES[self._ask]
            self._quiet_s = max(self._quiet_s, 4 * (now - self._asked_at))  # a slow broker gets the time that it needs
            return self._go_on(Outcome.ANSWERED, now)
        # Error 35 comes in many shapes: v0's layout whatever was asked (KIP-511), with a list, without, or garbled. Its first int16 is enough.
        _, answer = self._parse(frame)
        if answer.error_code == UNSUPPORTED_VERSION:
            return self._go_on(Outcome.REFUSED, now)
        error = error_for(answer.error_code, broker=self.broker, api="ApiVersions")
        if error is not None:
            raise error
        said = Versions.from_response(answer, self.peer)
        self.versions = said if self._max_broker_version is None else said.at_most(self._max_broker_version)
        self.taken_for, self.guessed = None, False
        self.spoken = f"ApiVersions v{self._asked_version}"
        self._move(Event.NEEDS_PROOF if self._authenticates else Event.KNOWN)
        return []

    @property
    def quiet_deadline(self) -> float | None:
        """When the lack of an answer to what was asked says something too: then call `gave_up(SILENT)`. None: wait on."""
        if self.state is not State.NEGOTIATING or (self._ask, Outcome.SILENT) not in self._then:
            return None
        return self._asked_at + self._quiet_s

    def gave_up(self, outcome: Outcome) -> bool:
        """The peer closed instead of answering, or did not answer. True: connect again, there is something else to ask or to assume."""
        following = self._then.get((self._ask, outcome))
        if self.state is not State.NEGOTIATING or following is None:
            return False
        self._ask = following
        self._move(Event.GIVE_UP)
        return True

    @property
    def asked(self) -> str:
        """Everything that was asked of the peer so far, for the text of an error."""
        return ", ".join(self._asks)

    @property
    def last_asked(self) -> str:
        """What was asked of the peer last."""
        return self._asks[-1]

    def _go_on(self, outcome: Outcome, now: float) -> list[Buffer]:
        following = self._then.get((self._ask, outcome))
        if following is None:
            raise UnsupportedVersion(
                f"{self.peer}: the broker refuses ApiVersions in every version; if its version is known, give it as broker_version",
                broker=self.broker,
                api="ApiVersions",
            )
        self._ask = following
        return self._question(now)

    def _parse(self, frame: memoryview) -> Any:
        try:
            return parse_api_versions(frame, self._asked_version)
        except ProtocolError as exc:
            raise ProtocolError(f"{self.peer}: {exc}", broker=self.broker, api="ApiVersions") from exc

    def _question(self, now: float) -> list[Buffer]:
        if self._ask is Ask.NOTHING:
            return self._take_at_word()
        self._move(Event.ASK)
        self._asks.append(self._ask.value)
        self._asked_id, self._asked_at = self._take_id(), now
        if self._ask is Ask.GROUPS:
            return [_describe_no_groups(self._asked_id, self._client_id)]
        if self._ask is Ask.OFFSETS:
            return list(encode_request(ListOffsetsRequest(replica_id=-1, topics=[]), 0, self._asked_id, self._client_id))
        name, version = self._software
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        self._asked_version = ApiVersionsRequest.API.stable.high if self._ask is Ask.HIGHEST else 0
        return list(encode_request(request, self._asked_version, self._asked_id, self._client_id))

    def _take_at_word(self) -> list[Buffer]:
        if self._told is not None:
            self.versions, self.spoken = self._told, "as api_versions says"
        else:
            assert self.taken_for is not None
            said = self.taken_for.option if isinstance(self.taken_for, NamedRelease) else "broker_version"
            how = "it does not answer ApiVersions and is taken for" if self.guessed else f"{said} says"
            self.versions = Versions.for_broker(self.taken_for).assumed_of(self.peer, f"{how} Kafka {self.taken_for}")
            self.spoken = f"taken for {self.taken_for}"
        self._move(Event.NEEDS_PROOF if self._authenticates else Event.KNOWN)
        return []

    # -- authenticating
    def ask(self, request: Any, max_version: int | None = None) -> list[Buffer]:
        """The frame of a request that authenticates the client. One at a time."""
        if self.state is not State.AUTHENTICATING or self.versions is None:
            raise RuntimeError(f"{self.peer}: {request.API.name} for a connection that is {self.state.value}")
        self._asked_version = self.versions.pick_for(request, max_version=max_version)
        self._asked_api, self._asked_id = request.API, self._take_id()
        self._asks.append(f"{request.API.name} v{self._asked_version}")
        return encode_request(request, self._asked_version, self._asked_id, self._client_id)

    def answer(self, frame: memoryview) -> Any:
        """What the peer answers to `ask`: the message. Raises ProtocolError for anything else."""
        api = self._asked_api
        self._check_id(frame, self._asked_id, api.name)
        try:
            return decode_response(api, self._asked_version, frame, most_entries=MOST_MECHANISMS)[1]
        except ProtocolError as exc:
            raise ProtocolError(f"{self.peer}: {exc}", broker=self.broker, api=api.name) from exc

    def authenticated(self) -> list[Buffer]:
        """The peer knows who the client is: the connection is open."""
        self.bare = False
        self._move(Event.AUTHENTICATED)
        return []

    # -- open
    def prepare(
        self, request: Any, token: Any, now: float, timeout_s: float, *, max_version: int | None = None, expects_response: bool = True
    ) -> list[Buffer]:
        """The frame of a request, which counts as sent from now on. expects_response=False: nothing will answer it (acks=0).

        Raises UnsupportedVersion if the broker speaks no version that can say it; the connection is as it was then.
        """
        if self.state is not State.OPEN or self.versions is None:
            raise RuntimeError(f"{self.peer}: a request for a connection that is {self.state.value}")
        version = self.versions.pick_for(request, max_version=max_version)
        if type(request) is BatchRequest:
            frame = request.encode(version, self._next_id, self._client_id)
        else:
            frame = encode_request(request, version, self._next_id, self._client_id)
        correlation_id = self._take_id()
        if expects_response:
            self._expect(Sent(request.API, version, correlation_id, token, now, timeout_s, request.asked(version)))
        return frame

    def take(self, frame: memoryview, note: Callable[[Sent], object] = lambda sent: None) -> Sent:
        """The request that a frame answers: the oldest in flight, since Kafka answers in order. It is no longer in flight.

        note: told of it just before, so that whoever is interrupted here knows whom nobody else will tell.
        Raises ProtocolError if the frame answers something else; the connection cannot be used further then.
        """
        if not self._in_flight:
            raise ProtocolError(f"{self.peer}: an answer came though nothing was asked", broker=self.broker)
        sent = self._in_flight[0]
        self._check_id(frame, sent.correlation_id, sent.api.name)
        note(sent)
        self._in_flight.popleft()
        if self._earliest[0] is sent:
            self._earliest.popleft()
        return sent

    def decode(self, sent: Sent, frame: memoryview, few: bool = False) -> Any:
        """The answer's message; None where it is to have few entries and has more. Raises ProtocolError, naming broker and api, for bytes that are none."""
        most = min(FEW_ENTRIES, self._most_entries) if few else self._most_entries
        try:
            return decode_response(sent.api, sent.version, frame, most_entries=most, asked=sent.asked)[1]
        except ProtocolError as exc:
            if few and isinstance(exc, TooManyEntries):
                return None
            raise type(exc)(f"{self.peer}: {exc}", broker=self.broker, api=sent.api.name) from exc

    def frame_size(self, prefix: Buffer) -> int:
        """See the function of this name."""
        limit = self._max_response_bytes
        try:
            if self.state is State.OPEN or limit <= LARGEST_FIRST_ANSWER:
                return frame_size(prefix, limit, self.peer, 0 if self.bare else SMALLEST_FRAME)
            return frame_size(
                prefix, LARGEST_FIRST_ANSWER, self.peer, 0 if self.bare else SMALLEST_FRAME, "accepted before the connection is open"
            )
        except ProtocolError as exc:
            api, what = self._waited_for()
            raise ProtocolError(f"{exc} (in place of the answer to {what})" if what else str(exc), broker=self.broker, api=api) from None

    def _waited_for(self) -> tuple[str | None, str]:
        """Whose answer comes next: the API, and what was asked."""
        if self.state is State.NEGOTIATING:
            return _api(self._ask), self.asked
        if self.state is State.AUTHENTICATING:
            api = "SaslAuthenticate" if self.bare else self._asked_api.name
            return api, api
        api = next((sent.api.name for sent in self.unanswered), "")
        return api or None, api

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def deadline(self) -> float | None:
        """When the next request in flight runs out of time; None if nothing is in flight."""
        return self._earliest[0].deadline if self._earliest else None

    def poll(self, now: float) -> list[Sent]:
        """The requests in flight whose time is over. One is enough to give the connection up: its late answer could not be told from another."""
        if not self._earliest or self._earliest[0].deadline > now:
            return []
        return [sent for sent in self._in_flight if sent.deadline <= now]

    def overdue(self, sent: Sent) -> KafkaTimeoutError:
        """The error of a request whose time is over."""
        return KafkaTimeoutError(
            f"{self.peer}: no answer to {sent.api.name} v{sent.version} within {sent.timeout_s:g} s; the connection is closed",
            broker=self.broker,
            api=sent.api.name,
        )

    @property
    def unanswered(self) -> list[Sent]:
        """What is in flight, oldest first."""
        return list(self._in_flight)

    def lose(self) -> list[Sent]:
        """The connection is gone. Returns what was in flight, oldest first; a second call returns nothing."""
        self._move(Event.LOSE)
        lost = list(self._in_flight)
        self._in_flight.clear()
        self._earliest.clear()
        return lost

    def _expect(self, sent: Sent) -> None:
        while self._earliest and self._earliest[-1].deadline > sent.deadline:
            self._earliest.pop()
        self._earliest.append(sent)
        self._in_flight.append(sent)

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id = taken % LAST_ID + 1
        return taken

    def _check_id(self, frame: memoryview, expected: int, api: str) -> None:
        got = int.from_bytes(frame[:4], "big", signed=True)
        if got != expected:
            raise ProtocolError(
                f"{self.peer}: an answer with correlation id {got} came where {api} ({expected}) is to be answered",
                broker=self.broker,
                api=api,
            )


def _describe_no_groups(correlation_id: int, client_id: str | None) -> bytes:
    """The frame of DescribeGroups v0 (key 15) for an empty list of groups: 0.9.0 answers with an empty list."""
    name = (client_id or "").encode()
    body = struct.pack(">hhih", 15, 0, correlation_id, len(name)) + name + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body
