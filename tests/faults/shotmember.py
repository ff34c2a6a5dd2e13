"""A member of a group whose calls or workers are cut off, until it is told "calm". Told "fire", that begins."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.faults.guns import MEMBER, Hit, SignalGun, WorkerGun, was_cut
from tests.faults.inside import Side
from tests.faults.member import Member, Membership
from tests.faults.restarts import FETCH, Restarts
from tests.faults.restarts import MEMBER as MEMBERS
from tests.kit import clock

__all__ = ["FIRES", "ShotMember"]

AGAIN = 0.005
"""Share of the pieces of work after which it leaves the group and comes back."""
TRIES = 20
"""So often something is tried under fire, then without."""
ENDS = "ends by", "has failed"
"""Lines of errors that say that a worker is not there any more."""


class Fire:
    """Cuts calls or workers off. shots: how many of each kind."""

    def __init__(self, handler: str, chance: random.Random) -> None:
        self.side, self.chance = Side(handler), chance
        self.shots: dict[str, int] = {}

    def call(self, function: Callable[[], Any]) -> bool:
        """Return False if the call was cut off."""
        function()
        return True

    def during(self, work: Callable[[], Any]) -> None:
        """Do all of the work under fire."""
        raise NotImplementedError


class Signals(Fire):
    def __init__(self, handler: str, chance: random.Random) -> None:
        super().__init__(handler, chance)
        self._gun = SignalGun(handler, chance, lambda: 0.002 + chance.random() * 0.1)

    def call(self, function: Callable[[], Any]) -> bool:
        try:
            self._gun.call(function)
        except BaseException as error:
            if not was_cut(error):
                raise
            return False
        finally:
            self.shots = {"signals": self._gun.shots, "signals at workers": self._gun.at["workers"]}
        return True

    def during(self, work: Callable[[], Any]) -> None:
        with self._gun.firing():
            if not self.side.gevent:
                work()
                return
            worker = self.side.spawn(work)
            while not worker.is_over:
                self._gun.wait(0.02)  # and nothing else: what is raised in other greenlets comes up here
        if worker.outcome is not None:
            raise worker.outcome


class Timeouts(Fire):
    """Calls are cut off by a time-out, or their greenlets killed."""

    def __init__(self, handler: str, chance: random.Random) -> None:
        super().__init__(handler, chance)
        self.shots = {"timeouts": 0, "kills": 0}

    def call(self, function: Callable[[], Any]) -> bool:
        import gevent

        seconds = self.chance.random() * 0.02
        if self.chance.random() < 0.5:
            with gevent.Timeout(seconds, False):
                function()
                return True
            self.shots["timeouts"] += 1
            return False
        caller = gevent.spawn(_outcome, function)
        caller.join(seconds)
        if not caller.dead:
            caller.kill()
            self.shots["kills"] += 1
            return False
        if caller.value is not None:
            raise caller.value
        return True

    def during(self, work: Callable[[], Any]) -> None:
        work()


class Workers(Fire):
    """Nobody cuts calls off: threads of the client are hit."""

    def __init__(self, handler: str, chance: random.Random) -> None:
        super().__init__(handler, chance)
        self._gun = WorkerGun(chance, MEMBER)
        self._is_over = False

    def during(self, work: Callable[[], Any]) -> None:
        shooter = threading.Thread(target=self._shoot, daemon=True)
        shooter.start()
        try:
            work()
        finally:
            self._is_over = True
            shooter.join(60)

    def _shoot(self) -> None:
        while not self._is_over:
            time.sleep(0.01 + self.chance.random() * 0.1)
            self._gun.shoot()
            self.shots = {"shots at workers": self._gun.shots}


FIRES: Mapping[str, type[Fire]] = {"signals": Signals, "timeouts": Timeouts, "workers": Workers}


def _outcome(function: Callable[[], Any]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


class ShotMember(Member):
    """Calls that hand out add to a list in the step that they return in, so that what was handed out is known whatever cut them off."""

    def __init__(self, given: Membership) -> None:
        super().__init__(given)
        self._chance = random.Random(given.name)
        self._fire = FIRES[given.shots](given.client, self._chance)
        self._is_fired_at, self._is_calm = False, False
        self._longest_s = 0.0
        self._restarts = Restarts(propagate=bool(given.log))

    def run(self) -> None:
        with self._restarts:
            while not self._is_fired_at and self._turn():
                pass
            self._fire.during(self._under_fire)
            self._is_fired_at = False
            super().run()

    def _under_fire(self) -> None:
        while not self._is_calm and self._turn():
            if self._chance.random() < AGAIN:
                self._until_done(self._consumer.leave)  # type: ignore[attr-defined]
                self._until_done(self._consumer.come_back)  # type: ignore[attr-defined]
            elif self._chance.random() < 5 * AGAIN:
                with contextlib.suppress(Exception):  # as a commit of partitions that another member has now
                    self._call(lambda: self._consumer.commit_one(self._chance))  # type: ignore[attr-defined]

    def _obey(self, order: str) -> bool:
        self._is_fired_at = self._is_fired_at or order == "fire"
        self._is_calm = self._is_calm or order in ("calm", "stop")
        return super()._obey(order)

    def _call(self, function: Callable[[], Any]) -> bool:
        began = clock.now()
        try:
            if not self._is_fired_at or self._is_calm:
                function()
                return True
            return self._fire.call(function)
        finally:
            self._longest_s = max(self._longest_s, clock.figure(clock.now() - began))

    def _until_done(self, function: Callable[[], Any]) -> None:
        for _ in range(TRIES):
            if self._call(function):
                return
        function()

    def _take(self) -> None:
        began, kept = clock.now(), []  # type: ignore[var-annotated]
        try:
            self._call(lambda: self._consumer.take_into(kept))  # type: ignore[attr-defined]
        except (Exception, Hit) as error:  # Hit: what is raised in a listener is told as the listener's
            self._note(error)
        self._took(began, self._consumer.shown(kept))  # type: ignore[attr-defined]

    def _commit(self) -> None:
        began, committed = clock.now(), []  # type: ignore[var-annotated]
        self._since = 0
        try:
            self._call(lambda: committed.append(self._consumer.commit()))
        except Exception as error:
            self._told.notes.committed(began, clock.now(), {}, type(error).__name__)
            return
        if committed:
            self._told.notes.committed(began, clock.now(), committed[0])

    def _more(self) -> Mapping[str, Any]:
        restarts = self._restarts
        ended = [text for text in restarts.errors if any(end in text for end in ENDS)]
        return {
            "calm": self._is_calm and not self._is_fired_at,
            "shots": self._fire.shots,
            "restarts": {"fetch": restarts.of[FETCH], "member": restarts.of[MEMBERS]},
            "hit": restarts.hit,
            "longest_s": self._longest_s,
            "ended workers": ended[:5],
            "error lines": dict(restarts.errors.most_common(5)),
        }
