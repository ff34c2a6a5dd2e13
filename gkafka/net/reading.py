"""Who reads from a connection: its reader worker or, while that stands aside, a caller who waits for an answer anyway.

Who sends one request and waits for its answer would otherwise pay for waking two threads, and for the interpreter's lock that goes from one to
the other: more than all else that such a call costs. So the reader, after an answer that somebody waited for, stands aside for a while:

    caller: waits in vain for the turn > is woken by the reader           (and has said that it would read itself)
    reader: hands up that answer > stands aside
    caller: sends > waits for bytes > takes the turn > hands up its own answer, and what came before it
    reader: nobody comes for what is due > reads again

While a caller waits for bytes the reader does not come back: the bytes would be gone when the caller looks, and it would wait on for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from gkafka.core.connection import Sent
from gkafka.handlers import Handler
from gkafka.handlers.turn import Turn

__all__ = ["SMALL_ANSWER", "Reading"]

SMALL_ANSWER = 16 * 1024
"""Bytes. With TLS, what is larger is received beside the caller, who has something to do while it is decrypted. What needs no decryption is in the cache of
whoever received it, and costs less there than on another processor."""
WATCH_S = 0.005
"""How often the reader looks while it stands aside: so long may an answer wait that nobody came for."""
IDLE_S = 0.1
"""Without an answer for so long it reads again: it is the one that notices the connection's end."""
STUCK_S = 2.0
"""A caller that signals may interrupt, and that has had the turn for so long, was interrupted, and again before it could say so."""


class Reading:
    """The turn to read of one connection, and whether its reader stands aside. Not with greenlets: their reader costs a switch.

    largest: bytes of an answer after which the reader still stands aside. answers: how many were handed up. is_aside: callers may read. guest_until: one of
    them does, and has so much time. torn: one of them was interrupted while it did, or goes on only after the reader. answering: whose answer was taken out,
    and is not told yet; untold: the same, by a caller who was interrupted.
    """

    def __init__(self, handler: Handler, largest: float = inf) -> None:
        self._handler = handler
        self._largest = largest
        self._turn = Turn()
        self._turn.take(self)
        self._place = Turn()  # of the one caller that waits for bytes
        self._wanted = -1  # requests that may be under way beside what a caller waits for, since the last answer; -1: none does
        self._asked = -1  # the same of one that waited for that answer
        self._beside = 0
        self._expected_until = 0.0  # a caller waits for bytes, until then at the latest
        self._stuck_at = inf
        self._by = 0
        self._dozes = False  # the reader looks less often: a caller waits, and nothing comes
        self._back = handler.Event()
        self.is_aside = False
        self.answers = 0
        self.guest_until: float | None = None
        self.torn = False
        self.answering: Sent | None = None
        self.untold: Sent | None = None

    # -- callers
    def want(self, beside: int) -> None:
        """A caller waits for what another one reads; it would rather read itself. beside: requests that are under way all the time."""
        self._wanted = beside
        if self.is_aside:  # whoever reads stops when it has its own answer, and wakes nobody to go on
            self.call_back()

    def come(self, me: object, now: float) -> bool:
        """May the caller wait for bytes? One may; and not a signal handler on top of it."""
        if not self.is_aside:
            return False
        if not self._place.take(me):
            if now - self._expected_until < STUCK_S or not self._expected_until:
                return False
            self._place.take_over(me)  # from who was interrupted on its way
        return True

    def expect(self, me: object, until: float) -> bool:
        """The caller would wait for bytes until then. False: it has to leave."""
        self._expected_until = until + WATCH_S  # before it looks: who comes back does so in the other order
        return self.is_aside and self._place.holder is me

    def take(self, me: object, now: float, until: float) -> bool:
        """May the caller read, until then at the latest? From here on, until it gives the turn back, what is half done is so for good if it is interrupted."""
        if self._turn.take(me):
            self._by = self._handler.current_id()
            self._stuck_at = now + STUCK_S if self._handler.interruptible() else inf
            self.guest_until = until
            return True
        return False

    def give(self, me: object) -> None:
        """It has read."""
        self.guest_until = None
        self._turn.give(me)
        if not self.is_aside:
            self._back.set()

    def has(self, me: object) -> bool:
        """Is it the caller's turn?"""
        return self._turn.holder is me

    @property
    def is_below(self) -> bool:
        """Does the calling thread read already, below the signal handler that it is in?"""
        return self._turn.holder not in (None, self) and self._by == self._handler.current_id()

    def leave(self, me: object, under_way: int) -> None:
        """The caller waits no longer: somebody else has to read what is still to come."""
        self._place.give(me)
        self._expected_until = 0.0
        if under_way > self._beside or self._dozes:
            self.call_back()

    def call_back(self) -> None:
        """Let the reader read, at once; or when the caller leaves that waits for bytes."""
        self._back.set()

    def sent(self, under_way: int) -> None:
        """One more request went out."""
        if under_way > self._beside + 1:
            self.call_back()

    def tear(self) -> None:
        """A caller was interrupted while it read: nobody knows how far it got. The reader ends the connection, and tells whose answer that was."""
        self.untold = self.answering
        self.torn = True

    # -- who reads
    def note(self, sent: Sent) -> None:
        """The answer to this is taken out; `answering` is None again when it was told."""
        self.answering = sent

    def answered(self, size: int) -> None:
        """Whoever reads handed up an answer of so many bytes."""
        self.answers += 1
        is_small = size <= self._largest
        self._asked, self._wanted = self._wanted if is_small else -1, -1
        if self.is_aside and not is_small:
            self.call_back()

    # -- the reader
    def stand_aside(self, under_way: Callable[[], int], is_over: Callable[[], bool]) -> None:
        """Leave the reading to callers, if one of them asked for it and nobody else waits for what is under way. Returns when the reader has the turn.

        under_way(): requests without an answer; is_over(): is there nothing to be read any more? It is asked again and again.
        """
        # Who began to wait since the answer was handed up was told to wait for the reader.
        if self._asked < 0 or self._wanted >= 0 or under_way() > self._asked:
            return
        self._beside, self._asked = self._asked, -1
        self._back.clear()
        self._turn.give(self)
        self.is_aside = True
        try:
            if self._wanted < 0:  # and so was who came just before: want() looks the other way round
                self._watch(under_way, is_over)
            self.is_aside = False
            while self._handler.monotonic() < self._expected_until and not is_over():  # a caller came just now
                self.is_aside = True
                self._watch(under_way, is_over)
                self.is_aside = False
        finally:
            self.is_aside = False
            self._take_back()

    def _watch(self, under_way: Callable[[], int], is_over: Callable[[], bool]) -> None:
        monotonic = self._handler.monotonic
        answers, since = self.answers, monotonic()
        pause = WATCH_S
        while True:
            called = self._back.wait(pause)
            self._back.clear()
            self._dozes = False
            if is_over():
                return
            now = monotonic()
            news = self.answers != answers
            if news:
                answers, since = self.answers, now
            quiet = now - since > IDLE_S
            if now < self._expected_until:
                self._dozes = quiet  # before it looks: who leaves does so in the other order
                pause = max(WATCH_S, self._expected_until - now) if quiet else WATCH_S
            elif called or quiet or (not news and under_way()):
                return
            else:
                pause = WATCH_S

    def _take_back(self) -> None:
        while not self._turn.take(self):
            if self.torn or self._handler.monotonic() >= self._stuck_at:
                self.torn = True
                self._turn.take_over(self)
                return
            self._back.wait(WATCH_S)  # who reads gives the turn back, and says so
            self._back.clear()
