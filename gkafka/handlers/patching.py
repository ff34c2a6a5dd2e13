"""What gevent has monkey-patched in this process; asked without importing gevent."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

from gkafka.exceptions import ConfigurationError

__all__ = ["PatchState", "gevent_is_running"]


class PatchState(NamedTuple):
    """Which of the two modules that matter are cooperative."""

    threading: bool
    socket: bool

    @classmethod
    def now(cls) -> PatchState:
        monkey: Any = sys.modules.get("gevent.monkey")
        if monkey is None:
            return cls(False, False)
        return cls(bool(monkey.is_module_patched("threading")), bool(monkey.is_module_patched("socket")))

    def warn_about_threads(self) -> None:
        """To whoever asks for OS threads where threading is patched: they get greenlets."""
        if self.threading or self.socket:
            warnings.warn(
                "ThreadingHandler in a process that gevent has monkey-patched: its threads are greenlets, without fair "
                "scheduling. Use handler='gevent' (or 'auto')",
                RuntimeWarning,
                stacklevel=_outside(),
            )

    def check_unchanged(self) -> None:
        """Raises ConfigurationError if the process was patched after this state was read."""
        if PatchState.now() != self:
            raise ConfigurationError(
                "gevent monkey-patched the process after this client was made with OS threads: monkey-patch before the client is "
                "made (gevent.monkey.patch_all() as the first lines of the program), or pass handler='gevent'"
            )


def gevent_is_running() -> bool:
    """Whether the calling thread has a gevent hub that runs, or is inside a Greenlet."""
    if "gevent.hub" not in sys.modules:
        return False
    from gevent._hub_local import get_hub_if_exists  # type: ignore[import-untyped]

    hub = get_hub_if_exists()
    return hub is not None and bool(hub)  # a greenlet is true from its first switch to its end


def _outside() -> int:
    """The stacklevel of the first caller outside gkafka: the line that a warning should name."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gkafka":
        level, frame = level + 1, frame.f_back
    return level
