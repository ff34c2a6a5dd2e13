"""Whose turn it is to do what one at a time does: taken and given back in single steps, so that whoever is interrupted leaves it known whose it was."""

from __future__ import annotations

__all__ = ["Turn"]

KEY = "turn"


class Turn:
    """Nobody waits for it. A signal handler's exception may end its holder at any moment: who sees to that takes it over from him."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, object] = {}  # dict.setdefault() is atomic

    def take(self, me: object) -> bool:
        """Is it mine now? Also if it was before."""
        return self._held.setdefault(KEY, me) is me

    def take_over(self, me: object) -> None:
        """Mine, whoever had it."""
        self._held[KEY] = me

    def give(self, me: object) -> None:
        """If it is mine."""
        if self._held.get(KEY) is me:
            del self._held[KEY]

    @property
    def holder(self) -> object:
        """None: nobody."""
        return self._held.get(KEY)
