"""F23: close() in every state that a producer can be in. It returns in time, and every record has an outcome."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gkafka.exceptions import DeliveryError, KafkaException, ProducerStoppedException
from tests.faults.inside import Inside
from tests.faults.proxy import PRODUCE, Delay, Lose
from tests.faults.runs import Form, Line
from tests.faults.stage import Stage
from tests.kit.clock import figure, now

__all__ = ["STATES", "play_closing"]

INIT_PRODUCER_ID = 22
SLACK_S = 0.5
ROUNDS = {"long": 15, "short": 1}
BURST = {"long": 3, "short": 1}


class Scene:
    """One producer, brought into a state. burst: what a close() finds, times so much."""

    def __init__(self, inside: Inside, lane: int) -> None:
        self.inside, self.lane, self.burst = inside, lane, BURST[inside.form.name]
        self.client = inside.client()
        self.producer: Any = None
        self.beside: list[Any] = []
        self.refused = 0
        self._asked = 0

    def make(self, **options: Any) -> Any:
        self.producer = self.client.get_producer(**{"delivery_timeout_ms": 30_000, "linger_ms": 5, **options})
        return self.producer

    def produce(self, count: int, caller: int = 0) -> None:
        """caller: each that produces at the same time has an order of its own."""
        for _ in range(count * self.burst):
            self.inside.produce(self.producer, self.lane + caller)

    def warm(self, **options: Any) -> None:
        """A producer that has delivered one record to each partition."""
        self.make(**options)
        for partition in range(3):
            self.inside.produce(self.producer, self.lane, partition).result(60)

    def silence(self) -> None:
        """From here on nothing is answered."""
        self.inside.stage.plan.silence()
        self._asked = self._produce_requests()

    def until_asked(self) -> None:
        """Until a broker has one of the requests that it does not answer: a close() may end before the first one is sent, and then all are said not to be there."""
        self.inside.side.until(lambda: self._produce_requests() > self._asked, "records are sent")

    def _produce_requests(self) -> int:
        return sum(len(times) for (_, api), times in list(self.inside.stage.plan.asked.items()) if api == PRODUCE)

    def spawn(self, fn: Callable[[], Any]) -> Any:
        self.beside.append(self.inside.side.spawn(fn))
        return self.beside[-1]


def unused(scene: Scene) -> None:
    scene.make()


def idle(scene: Scene) -> None:
    scene.warm()


def lingering(scene: Scene) -> None:
    scene.warm()
    scene.inside.side.sleep(0.02)
    scene.producer = None
    scene.make(linger_ms=25_000)
    scene.produce(10)


def under_way(scene: Scene) -> None:
    scene.make()
    scene.produce(3000)


def no_answer(scene: Scene) -> None:
    scene.warm()
    scene.silence()
    scene.produce(100)
    scene.until_asked()


def no_connection(scene: Scene) -> None:
    scene.warm()
    for door in scene.inside.stage.doors:
        door.down()
    scene.produce(100)


def first_connection(scene: Scene) -> None:
    """Nobody answers yet; a caller waits in its first produce()."""
    for door in scene.inside.stage.doors:
        door.down()
    scene.make()
    scene.spawn(lambda: scene.inside.produce(scene.producer, scene.lane))
    scene.inside.side.sleep(0.1)


def buffer_full(scene: Scene) -> None:
    """Callers wait for room that nobody gives back."""
    scene.warm(buffer_bytes=65536, batch_bytes=4096, max_request_bytes=16384)
    scene.silence()
    for caller in range(1, 4):
        scene.spawn(lambda caller=caller: scene.produce(1000, caller))  # type: ignore[misc]
    scene.inside.side.until(lambda: scene.producer.stats()["buffer_bytes_free"] < 4096, "the buffer is full")
    scene.until_asked()


def no_producer_id(scene: Scene) -> None:
    scene.inside.stage.plan.add(INIT_PRODUCER_ID, Delay(30))
    scene.make()
    scene.produce(100)


def retrying(scene: Scene) -> None:
    scene.warm()
    scene.inside.stage.plan.add(PRODUCE, Lose())
    scene.produce(100)
    scene.inside.side.until(lambda: scene.producer.stats()["retried_batches"] > 0, "batches are retried")


def flushing(scene: Scene) -> None:
    scene.warm()
    scene.silence()
    scene.produce(100)
    scene.spawn(scene.producer.flush)
    scene.inside.side.sleep(0.05)
    scene.until_asked()


def in_callback(scene: Scene) -> None:
    """A delivery's callback closes the producer itself."""
    scene.warm()
    for _ in range(100 * scene.burst):
        entry, value = scene.inside.offer(scene.lane)
        delivery = scene.producer.produce(entry.topic, value, partition=entry.partition)
        scene.inside.accepted(entry, delivery)
    delivery.add_done_callback(lambda delivery: scene.producer.close(5))


def closing_already(scene: Scene) -> None:
    """Another worker closes it, too."""
    scene.warm()
    scene.produce(2000)
    scene.spawn(lambda: scene.producer.close(5))


def close_killed(scene: Scene) -> None:
    """A close() that waits is killed (greenlets) or gives up first; the next one ends it."""
    scene.warm()
    scene.inside.stage.plan.silence()
    scene.produce(100)
    closing = scene.spawn(lambda: scene.producer.close(20 if scene.inside.side.gevent else 0.05))
    scene.inside.side.sleep(0.1)
    if scene.inside.side.gevent:
        closing.kill()


STATES: tuple[tuple[Callable[[Scene], None], str], ...] = (
    (unused, "none"),
    (idle, "none"),
    (lingering, "none"),
    (under_way, "none"),
    (no_answer, "maybe"),
    (no_connection, "some"),
    (first_connection, "refused"),
    (buffer_full, "maybe"),
    (no_producer_id, "no"),
    (retrying, "maybe"),
    (flushing, "maybe"),
    (in_callback, "any"),
    (closing_already, "none"),
    (close_killed, "some"),
)
"""State, and what it leaves undelivered: none; records reported as "no" or "maybe" persisted, or either; a caller that is refused."""


def play_closing(stage: Stage, form: Form, seed: int, clients: Sequence[str]) -> list[Line]:
    return [_play(stage, form, seed, handler) for handler in clients if handler != "confluent"]


def _play(stage: Stage, form: Form, seed: int, handler: str) -> Line:
    inside = Inside(stage, "F23", handler, form, seed, 30.0)
    chance = random.Random(seed)
    closes: Counter[str] = Counter()
    lane = 0
    for _ in range(ROUNDS[form.name]):
        for state, leaves in chance.sample(STATES, len(STATES)):
            lane += 10
            try:
                _close_in(inside, Scene(inside, lane), state, leaves, chance.uniform(0.3, 1.0))
                closes[state.__name__] += 1
            finally:
                stage.plan.clear()
                for door in stage.doors:
                    door.up()
    least = min(closes[state.__name__] for state, _ in STATES)
    return inside.line({"closes": closes.total(), "in each state": least})


def _close_in(inside: Inside, scene: Scene, state: Callable[[Scene], None], leaves: str, timeout: float) -> None:
    first = len(inside.ledger.entries)
    state(scene)
    if leaves in ("none", "any"):
        timeout = 10.0
    listed, took = _close(scene, timeout)
    name = state.__name__
    slack_s = SLACK_S + inside.form.room_s
    inside.expect(took <= timeout + slack_s, f"{name}: close({timeout:.2f}) took {took:.2f} s")
    for beside in scene.beside:
        inside.expect(beside.join(slack_s + timeout), f"{name}: a caller still waits after close()")
    inside.side.until(lambda: _resolved(inside, first), f"{name}: every record has an outcome")
    entries = inside.ledger.entries[first:]
    failed = [e for e in entries if e.error and not e.refused]
    inside.expect(
        state is close_killed or leaves == "any" or listed == len(failed), f"{name}: close() lists {listed} of {len(failed)} records"
    )
    _expect_outcome(inside, name, leaves, [e.persisted for e in failed], sum(e.refused for e in entries))
    _expect_closed(inside, scene, name)


def _expect_outcome(inside: Inside, name: str, leaves: str, persisted: list[str], refused: int) -> None:
    if leaves == "none":
        inside.expect(not persisted, f"{name}: {len(persisted)} records were not delivered")
    elif leaves == "refused":
        inside.expect(refused > 0, f"{name}: no caller was refused")
    elif leaves in ("no", "maybe", "some"):
        inside.expect(bool(persisted), f"{name}: nothing failed, the state was not reached")
        inside.expect(leaves == "some" or leaves in persisted, f"{name}: records are said to be persisted {set(persisted)}, not {leaves!r}")


def _close(scene: Scene, timeout: float) -> tuple[int, float]:
    """(records that it lists, seconds)."""
    began = now()
    try:
        scene.producer.close(timeout)
        listed = 0
    except DeliveryError as error:
        listed = len(error.records)
    return listed, figure(now() - began)


def _resolved(inside: Inside, first: int) -> bool:
    return all(e.refused or e.accepted_at is None or e.resolved_at is not None for e in inside.ledger.entries[first:])


def _expect_closed(inside: Inside, scene: Scene, name: str) -> None:
    """It refuses records, closes again at once, and its client leaves no worker."""
    try:
        inside.produce(scene.producer, scene.lane)
        inside.blame.append(f"{name}: a closed producer took a record")
    except ProducerStoppedException:
        pass
    _, took = _close(scene, 60.0)
    inside.expect(took < SLACK_S + inside.form.room_s, f"{name}: the second close() took {took:.2f} s")
    inside.count(scene.producer)
    try:
        scene.client.close(1.0 + inside.form.room_s)
    except KafkaException as error:
        inside.expect(isinstance(error, DeliveryError), f"{name}: closing the client raised {error!r}")
    left = [worker for worker in scene.client.handler.workers() if worker.is_alive()]
    inside.expect(not left, f"{name}: workers that did not end: {left}")
