"""Which refusals of credentials are to be believed: those with which the client got in before are not wrong after one.

A broker that has just started may serve before it has read its users, and a service that checks tokens may be late. So a refusal is believed when the
broker has refused for the whole patience, or when no broker ever let this client in.
"""

from __future__ import annotations

__all__ = ["Refusals"]


class Refusals:
    """Of one client, by broker.

    patience_s: how long a broker may refuse; silence_s: a broker that was asked nothing for so long begins anew, unless its refusal was believed.
    """

    def __init__(self, patience_s: float, silence_s: float) -> None:
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._got_in = False
        self._rows: dict[str, tuple[float, float]] = {}  # broker -> when its refusals began, and the last of them
        self._believed: set[str] = set()

    def accepted(self, broker: str) -> None:
        """The broker took the client's credentials."""
        self._got_in = True
        self._rows.pop(broker, None)
        self._believed.discard(broker)

    def refused(self, broker: str, now: float) -> float:
        """For how many seconds more the broker is to be tried again; 0: it is to be believed. now: monotonic seconds."""
        if not self._got_in or broker in self._believed:
            return 0.0
        began, last = self._rows.get(broker, (now, now))
        if now - last > self._silence_s:
            began = now
        self._rows[broker] = began, now
        left_s = max(0.0, self._patience_s - (now - began))
        if not left_s:
            self._believed.add(broker)
        return left_s
