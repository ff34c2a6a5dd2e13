"""How a command looks at a cluster: all that it asks shares its time, and what does not answer hides nothing of the rest.

A broker that is down, a partition without a leader or a topic that is denied costs a command its own line of the output. What there is to tell is
printed; then the errors are told, and the exit code is PARTIAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.connection import HALF, connect, settings_of
from gkafka.cli.failures import FAILED, PARTIAL, PartialError
from gkafka.cli.progress import progress

if TYPE_CHECKING:
    from gkafka.client import KafkaClient
    from gkafka.exceptions import KafkaException

__all__ = ["HALF", "Look", "as_far_as_it_goes", "end_in_part", "looking", "patience", "why"]

OFFSETS_TOPIC = "__consumer_offsets"
SOCKET_S = 30.0
"""As long as a client waits for an answer by itself."""


class Look:
    """A client, its administrator, and what could not be found out. seconds: for all that is asked. kind: a part of the administrator, None for all."""

    def __init__(self, client: KafkaClient, seconds: float, kind: Callable[[Any], Any] | None = None) -> None:
        self.client = client
        self._progress = progress()
        self.admin: Any = client.admin() if kind is None else kind(client.cluster)
        self._now = client.handler.monotonic
        self._until = self._now() + seconds
        self._missing: list[tuple[Any, KafkaException]] = []

    def reach(self) -> Look:
        """Reach the cluster, by whichever broker answers, before anything is asked that has a part of the time only."""
        self.client.cluster.connect(self.left())
        return self

    def left(self, share: float = 1.0) -> float:
        """Seconds; share: this part of them. More than none: what comes late fails as late."""
        return max(0.001, (self._until - self._now()) * share)

    def all_of(self, call: Callable[..., Mapping[Any, Any]], *args: Any, share: float = 1.0, **kwargs: Any) -> dict[Any, Any]:
        """What a call tells, of all that there is. Raises what keeps it from telling anything."""
        from gkafka.exceptions import AdminError

        try:
            with self._progress.doing(_asked(call, *args[:1])):
                return dict(call(*args, timeout=self.left(share), **kwargs))
        except AdminError as exc:
            if not exc.results:
                raise
            self._note(exc.errors)
            return exc.results

    def groups(self, **which: Any) -> dict[str, Any]:
        """All groups, and a note of those that nobody tells of: their partition of __consumer_offsets has no leader. which: as of list_groups()."""
        from gkafka.exceptions import KafkaException, LeaderNotFoundError

        found = self.all_of(self.admin.list_groups, share=HALF, **which)
        try:
            home = self.admin.describe_topics([OFFSETS_TOPIC], timeout=self.left(HALF))[OFFSETS_TOPIC]
        except KafkaException:  # it is not there yet, or not for this client to see
            return found
        if without := [(OFFSETS_TOPIC, p.partition) for p in home.partitions.values() if p.leader < 0]:
            error = LeaderNotFoundError(
                "groups are missing in the list: their partition of __consumer_offsets has no leader", topic=OFFSETS_TOPIC
            )
            self._note(dict.fromkeys(without, error))
        return found

    def named(
        self,
        near: Callable[..., AbstractContextManager[None]],
        call: Callable[..., Mapping[Any, Any]],
        names: Any,
        share: float = 1.0,
    ) -> tuple[dict[Any, Any], dict[Any, KafkaException]]:
        """What a call tells of the things that a user has named, and why it does not of the others. Raises if it tells of none of them; near: with
        the nearest names that there are."""
        from gkafka.exceptions import AdminError

        with near(self.admin, self.left):
            try:
                with self._progress.doing(_asked(call, names)):
                    return dict(call(names, timeout=self.left(share))), {}
            except AdminError as exc:
                if not exc.results:
                    raise
                self._note(exc.errors)
                return exc.results, exc.errors

    def more(
        self,
        items: Iterable[Any],
        call: Callable[..., Mapping[Any, Any]],
        asked: Any,
        share: float = 1.0,
        *,
        gone: type[KafkaException] | None = None,
    ) -> tuple[dict[Any, Any], dict[Any, KafkaException]]:
        """What a call tells beside that which is known already, and of which items it does not, and why. asked: what the call takes.

        gone: the error of what was there when it was listed, and is not any more: nothing is missing of that.
        """
        from gkafka.exceptions import AdminError, ClientClosedError, ConfigurationError, KafkaException

        if not asked:
            return {}, {}
        try:
            with self._progress.doing(_asked(call, asked)):
                return dict(call(asked, timeout=self.left(share))), {}
        except AdminError as exc:
            found, failed = exc.results, exc.errors
        except (ClientClosedError, ConfigurationError):
            raise
        except KafkaException as exc:
            found, failed = {}, dict.fromkeys(items, exc)
        if gone is not None:
            failed = {item: error for item, error in failed.items() if not isinstance(error, gone)}
        self._note(failed)
        return found, failed

    def _note(self, errors: Mapping[Any, KafkaException]) -> None:
        from gkafka.exceptions import AdminError

        for item, error in errors.items():
            parts = error.errors if isinstance(error, AdminError) else {item: error}
            self._missing += parts.items()

    def partial(self, *, found: bool = True) -> PartialError | None:
        """Of what could not be found out; None if all was. found: False if nothing was, which is a failure."""
        return PartialError(self._missing, PARTIAL if found else FAILED) if self._missing else None

    def end(self, *, found: bool = True) -> None:
        """Behind what the command has printed: raise PartialError for what it could not find out. found: as of partial()."""
        error = self.partial(found=found)
        if error is not None:
            raise error


def _asked(call: Callable[..., Any], things: Any = ()) -> str:
    """What a call of the administrator asks for, and of how many things."""
    count = len(things) if isinstance(things, Sized) and not isinstance(things, str) else 0
    name: str = getattr(call, "func", call).__name__  # of a partial() its function's
    return name.replace("_", " ") + (f" ({count})" if count else "")


def patience(ctx: click.Context) -> dict[str, Any]:
    """Options of a client that only looks: one broker that does not answer leaves time to ask another one."""
    settings = settings_of(ctx)
    if "socket_timeout_ms" in settings.client:
        return {}
    return {"socket_timeout_ms": min(settings.timeout_s * HALF, SOCKET_S) * 1000}


@contextmanager
def looking(ctx: click.Context, kind: Callable[[Any], Any] | None = None) -> Iterator[Look]:
    """A Look at the cluster that the options name, by a client that is closed at the end. kind: as of Look."""
    with connect(ctx, **patience(ctx)) as client:
        yield Look(client, settings_of(ctx).timeout_s, kind).reach()


def as_far_as_it_goes(call: Callable[[], Mapping[Any, Any] | None]) -> tuple[dict[Any, Any], dict[Any, KafkaException]]:
    """(what a call did, why it did not do the rest). Raises if it did nothing."""
    from gkafka.exceptions import AdminError

    try:
        return dict(call() or {}), {}
    except AdminError as exc:
        if not exc.results:
            raise
        return exc.results, exc.errors


def end_in_part(errors: Mapping[Any, KafkaException]) -> None:
    """Behind what the command has printed: raise PartialError if there are errors."""
    if errors:
        raise PartialError(errors.items())


def why(error: KafkaException | None) -> str | None:
    """An error as a row of JSON has it."""
    from gkafka.cli.wording import in_tools_words

    return None if error is None else in_tools_words(" ".join(str(error).split()))
