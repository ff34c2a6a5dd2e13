"""Which refusals of credentials are to be believed: those with which the client got in before are not wrong after one.

A broker that has just started may serve before it has read its users, and a service that checks tokens may be late. So a refusal is believed when the
broker has refused for the whole patience, or when no broker ever let this client in.
"""

from __future__ import annotations

from math import inf

__all__ = ["Refusals"]


class Refusals:
    """Of one client, by broker.

    patience_s: how long a broker may refuse; silence_s: a broker that was asked nothing for so long begins anew, unless its refusal was believed.
    """

    def __init__(self, patience_s: float, silence_s: float) -> None:
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._got_in = False
        self._rows: dict[str, tuple[float, float]] = {}  # broker -> when its refusals began (-inf: they are believed), and the last of them

    def accepted(self, broker: str) -> None:
        """The broker took the client's credentials."""
        self._got_in = True
        self._rows.pop(broker, None)

    def refused(self, broker: str, now: float) -> float:
        """For how many seconds more the broker is to be tried again; 0: it is to be believed. now: monotonic seconds."""
        if not self._got_in:
            return 0.0
        began, last = self._rows.get(broker, (now, now))
        if began > -inf and now - last > self._silence_s:
            began = now
        left = max(0.0, self._patience_s - (now - began))
        self._rows[broker] = (began if left else -inf, now)
        return left
