"""The members of the groups under a fault, as the harness has them in its hands."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.faults.child import Child
from tests.faults.consumed import Diary, Eras, Place
from tests.faults.member import Membership
from tests.faults.stage import Stuck
from tests.kit import clock

__all__ = ["CONTROL", "Member", "Party"]

CONTROL = "confluent"


class Member(Child):
    """A member's process. killed: when, monotonic seconds."""

    def __init__(self, given: Membership) -> None:
        self.given = given
        self.killed: float | None = None
        self.frozen = self.leaving = False
        super().__init__("tests.faults.member", given)

    @property
    def name(self) -> str:
        return self.given.name

    @property
    def mine(self) -> set[Place]:
        return {(topic, p) for topic, p in self.said.get("mine", ())}

    @property
    def newest(self) -> dict[Place, tuple[int, float]]:
        """Place -> (id of the newest record that it was handed, when that was produced)."""
        return {(topic, p): (id, produced) for topic, p, id, produced in self.said.get("newest", ())}

    def count(self, name: str) -> int:
        return int(self.said.get(name, 0))

    def cpu_s(self) -> float:
        """Processor time until now, in seconds; 0 if it has ended."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def check_alive(self) -> None:
        if self.status is not None and self.killed is None and not (self.leaving and self.status == 0):
            raise Stuck(f"{self.name} ended by itself with status {self.status}:\n{self.errors()}")

    def kill(self) -> float:
        """SIGKILL. Returns when."""
        self.killed = clock.figure(clock.now())
        self.process.kill()
        self.process.wait(30)
        return self.killed

    def freeze(self) -> float:
        self.frozen = True
        self.process.send_signal(signal.SIGSTOP)
        return clock.figure(clock.now())

    def wake(self) -> float:
        now = clock.figure(clock.now())
        self.frozen = False
        self.process.send_signal(signal.SIGCONT)
        return now

    def leave(self) -> float:
        """Ask it to stop in order. Returns when."""
        self.leaving = True
        self.tell("stop")
        return clock.figure(clock.now())

    @property
    def there(self) -> bool:
        return self.status is None and not self.frozen and not self.leaving


class Party:
    """A group under test. client: "threading", "gevent" or "confluent"; kind: of the consumer."""

    def __init__(self, client: str, kind: str, group: str) -> None:
        self.client, self.kind, self.group = client, kind, group
        self.members: list[Member] = []
        self.figures: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self.client if self.client == CONTROL else f"{self.client}/{self.kind}"

    @property
    def there(self) -> list[Member]:
        return [member for member in self.members if member.there]

    @property
    def read(self) -> int:
        return sum(member.count("read") for member in self.members)

    def produced(self, place: Place) -> float:
        """When the newest record of the place that the group has read was produced."""
        return max((member.newest.get(place, (0, 0.0))[1] for member in self.members), default=0.0)

    def id(self, place: Place) -> int:
        return max((member.newest.get(place, (-1, 0.0))[0] for member in self.members), default=-1)

    def most(self, name: str, value: float) -> None:
        """A figure is the worst of all times it was measured."""
        self.figures[name] = round(max(self.figures.get(name, 0.0), clock.figure(value)), 2)

    def diaries(self, eras: Eras | None = None) -> list[Diary]:
        """What is written until now."""
        return [Diary.load(Path(member.given.ledger), member.killed, eras) for member in self.members]
