"""What belongs to the process that made it is not pickled: multiprocessing and concurrent.futures would send it to another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from gkafka.othernames import lacks

__all__ = ["OfOneProcess", "refuse_to_pickle"]


def refuse_to_pickle(thing: object, outcome: str = "", kind: str = "") -> NoReturn:
    """Raise the TypeError of what cannot be pickled, with what to do. outcome: the call whose result can be, if the thing has one.

    kind: what users call it, if that is not its class.
    """
    what_to_do = (
        f"send what {outcome} returns"
        if outcome
        else "create the client in the process that uses it, in the function that runs there or in the pool's initializer"
    )
    raise TypeError(
        f"a {kind or type(thing).__name__} cannot be pickled or copied, it belongs to the process that created it: {what_to_do}"
    )


class OfOneProcess:
    """Base of all that has connections or workers, or speaks for what has them. A call of another client's that it lacks is told by name."""

    __slots__ = ()

    if not TYPE_CHECKING:  # else each name would count as there

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(lacks(self, name), name=name, obj=self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raises TypeError. pickle and copy come here."""
        refuse_to_pickle(self)
