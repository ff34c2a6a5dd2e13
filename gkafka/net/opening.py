"""Opens one connection: connects, finds out what the peer speaks, has the client authenticated.

    open_stream() > ask what the peer speaks, on a new connection where the last question was not answered > authenticate

What is asked after what is decided by `core.connection`. The owner is `net.channel`: it lets this run in its reader, and is the connection once it is
open. Do not mix it up with `net.openings`, the line in which the connections of a client wait for their turn to be opened.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

from gkafka.config import ClientConfig
from gkafka.core.connection import Connection, Outcome, State
from gkafka.core.sasl import Authentication
from gkafka.exceptions import AuthenticationError, KafkaException, KafkaTimeoutError, SocketDisconnectedError, TlsError, TokenEndpointError
from gkafka.handlers import Handler, Stream
from gkafka.logs import get_logger
from gkafka.net.buffers import BufferPool, FrameReader
from gkafka.net.session import Session
from gkafka.net.steps import Steps
from gkafka.net.stream import open_stream
from gkafka.wire.apis import Message
from gkafka.wire.sasl import SaslHandshakeRequest

__all__ = ["Opener"]

log = get_logger(__name__)


class Unanswered(Exception):
    """The peer does not answer what was asked; there is something else to ask it."""


class Opener:
    """Opens a connection for its owner, once: `open` waits, in a worker of the owner.

    connection: the machine. session: None where nobody says who the client is. buffers, receive_bytes: for what the peer answers, now and later.
    hold(stream): takes each stream before it is connected, and the one that is open at last; its owner closes it when the connection is closed, which ends
    every wait here. step(move, *about): returns move(*about), a step of the machine, when no close() can come between. look(): is called where bytes are
    waited for; returns until when. awaited_until(): when the last of those gives up who wait for the connection. All four raise the error with which the
    connection was closed. lost(exc): the error for a broken socket; exc is None where the peer closed it.
    """

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int,
        config: ClientConfig,
        connection: Connection,
        *,
        session: Session | None,
        buffers: BufferPool,
        receive_bytes: int,
        step: Callable[..., Any],
        hold: Callable[[Stream], None],
        look: Callable[[], float],
        awaited_until: Callable[[], float],
        lost: Callable[[Exception | None], KafkaException],
    ) -> None:
        self.steps = Steps(handler.monotonic)
        """Where it stands, for texts."""
        self._handler = handler
        self._host = host
        self._port = port
        self._config = config
        self._connection = connection
        self._session = session
        self._buffers = buffers
        self._receive_bytes = receive_bytes
        self._step = step
        self._hold = hold
        self._look = look
        self._awaited_until = awaited_until
        self._lost = lost

    def open(self) -> tuple[Stream, FrameReader]:
        """Return the open stream, and what reads its frames. Raises the error with which the connection ends."""
        self._handler.checkpoint()  # many that are refused at once would keep a hub
        self._deadline = self._handler.monotonic() + self._config.connect_timeout_ms / 1000
        self._step(self._connection.connecting)
        try:
            while not self._try():
                self.steps.at("pause before another question")
                left = self._deadline - self._handler.monotonic()
                self._handler.sleep(max(0.0, min(self._config.reconnect_backoff_ms / 1000, left)))
        except AuthenticationError as exc:
            if self._session is None:
                raise
            raise self._session.authenticator.refused(exc)  # noqa: B904  # it has its cause
        if self._session is not None:
            self._session.authenticator.accepted()
        return self._stream, self._frames

    def _try(self) -> bool:
        """Connect, negotiate and authenticate. False: the peer hung up, and there is something else to ask it on a new connection."""
        deadline = min(self._deadline, self._awaited_until())  # nobody would be left to connect for
        self._stream = open_stream(
            self._handler, self._host, self._port, deadline=deadline, config=self._config, made=self._hold, steps=self.steps
        )
        self._hold(self._stream)
        self._frames = FrameReader(self._receive, self._connection.frame_size, self._buffers, self._receive_bytes)
        try:
            self._negotiate()
            self._authenticate()
        except (TlsError, TokenEndpointError):  # of our certificate, said behind the handshake; of a token. It answers no question
            raise
        except (Unanswered, SocketDisconnectedError) as exc:
            self._look()  # whether there is anybody to ask it otherwise for
            outcome = Outcome.SILENT if isinstance(exc, Unanswered) else Outcome.CLOSED
            if not self._frames.pristine or not self._step(self._connection.gave_up, outcome):
                self._name_the_questions(exc)
                raise
            log.info("%s: %s (asked: %s); trying in another way", self._connection.peer, outcome.value, self._connection.asked)
            self._stream.close()
            return False
        return True

    # -- what the peer speaks
    def _negotiate(self) -> None:
        frame = self._step(self._connection.connected, self._handler.monotonic())
        while frame:
            self.steps.at(self._connection.asked)
            self._stream.send_all(frame, self._deadline)
            answer = self._frames.read()
            self.steps.heard(f"the answer to {self._connection.last_asked}")
            self._handler.checkpoint()  # many that connect at once are answered at once
            frame = self._step(self._connection.negotiated, answer, self._handler.monotonic())

    def _name_the_questions(self, exc: Exception) -> None:
        """A peer that closes whatever it is asked: say what that was, and what it may mean."""
        asked = self._connection.asked
        remark = "" if self._session is None or not self._session.authenticator.remark else f" ({self._session.authenticator.remark})"
        texts = {
            State.AUTHENTICATING: f"the connection was lost during the authentication, after {asked} ({exc}); brokers older than Kafka 1.0 end it so"
            f" when they refuse the credentials{remark}",
            State.NEGOTIATING: f"the peer closes the connection when asked {asked} ({exc}); is it a Kafka broker, and is"
            f" security_protocol={self._config.security_protocol!r} what this listener speaks?",
        }
        if self._connection.state in texts:
            text = f"{self._connection.peer}: {texts[self._connection.state]}"
            raise SocketDisconnectedError(text, broker=self._connection.broker) from exc

    # -- who the client is
    def _authenticate(self) -> None:
        """If the client has to say who it is: then the connection is open when the broker has accepted that."""
        if self._session is None:
            return
        assert self._connection.versions is not None
        authenticator, self._rounds = self._session.authenticator, count(1)
        self.steps.at(f"credentials of {authenticator.name}")
        self._session.began(authenticator.authenticate(self._connection.versions, self._exchange, self._deadline))
        self._step(self._connection.authenticated)

    def _exchange(self, said: Any, authentication: Authentication) -> Any:
        assert self._session is not None
        self._connection.bare = not isinstance(said, Message)
        if self._connection.bare:
            frame, name = [len(said).to_bytes(4, "big") + said], "SASL message"
        else:
            frame, name = self._connection.ask(said, authentication.newest_version(said)), self._connection.last_asked
        self.steps.at(name if isinstance(said, SaslHandshakeRequest) else f"{name}, round {next(self._rounds)}")
        self._stream.send_all(frame, self._deadline)
        answer: Any = None if authentication.done else self._frames.read()
        if answer is not None and not self._connection.bare:
            answer = self._connection.answer(answer)
        self.steps.heard(f"the answer to {self.steps.name}")
        self.steps.at(f"{self._session.authenticator.name}: what to say next")
        return answer

    # -- receiving
    def _receive(self, view: memoryview) -> int:
        """At least one byte. Raises what ends the connection: the peer closed, time is over, its owner closed it, a fork."""
        while True:
            until = self._next_look()
            try:
                if received := self._stream.recv_into(view, until):
                    return received
            except KafkaTimeoutError:
                continue
            except OSError as exc:
                raise self._handler.interruption(exc) or self._lost(exc) from None
            raise self._lost(None)

    def _next_look(self) -> float:
        """When to stop waiting for bytes and look again. Raises if there is nothing to wait for any more."""
        self._handler.check_fork()
        quiet = self._connection.quiet_deadline or inf
        if not self._frames.pristine:
            self.steps.heard("part of an answer")
            quiet = inf
        until = self._look()
        now = self._handler.monotonic()
        if now >= self._deadline:
            raise KafkaTimeoutError(
                f"{self._connection.peer}: connected, but no answer to {self.steps.name} within"
                f" connect_timeout_ms={self._config.connect_timeout_ms:g}{self.steps.received}",
                broker=self._connection.broker,
            )
        if now >= quiet:
            raise Unanswered
        return min(until, quiet, self._deadline)
