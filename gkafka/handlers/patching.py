"""What gevent has monkey-patched in this process; asked without importing gevent."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

from gkafka.exceptions import ConfigurationError

__all__ = ["HUB", "MONKEY", "PatchState", "gevent_is_running"]

MONKEY, HUB = "gevent.monkey", "gevent.hub"


class PatchState(NamedTuple):
    """Which of the modules that matter are cooperative."""

    threading: bool
    socket: bool
    select: bool
    queue: bool

    @classmethod
    def now(cls) -> PatchState:
        monkey: Any = sys.modules.get(MONKEY)
        if monkey is None:
            return cls(False, False, False, False)
        return cls(*(bool(monkey.is_module_patched(module)) for module in cls._fields))

    @property
    def is_mixed(self) -> bool:
        """Would threads, or greenlets in their place, wait for what the other kind has to do? (A queue that is not patched waits as threading does.)"""
        return len({self.threading, self.socket, self.select}) > 1 or (self.queue and not self.threading)

    def mixed_error(self) -> ConfigurationError:
        """What to say of that."""
        done = [module for module, patched in self._asdict().items() if patched]
        missing = [module for module in self._fields if module not in done]
        return ConfigurationError(
            f"gevent has monkey-patched {', '.join(done)} but not {', '.join(missing)}: clients of OS threads hang in this mix. Patch all of them"
            " (monkey.patch_all() without any =False), or none, or choose handler='gevent', which works in any process"
        )

    def check_for_threads(self) -> None:
        """For whoever asks for OS threads: where everything is patched they get greenlets, and a warning. Raises ConfigurationError for a mix."""
        if self.is_mixed:
            raise self.mixed_error()
        if self.threading:
            warnings.warn(
                "ThreadingHandler in a process that gevent has monkey-patched: its threads are greenlets, without fair "
                "scheduling. Use handler='gevent' (or 'auto')",
                RuntimeWarning,
                stacklevel=_outside(),
            )

    def has_changed(self) -> bool:
        """Was the process patched after this state was read?"""
        return MONKEY in sys.modules and PatchState.now() != self

    @staticmethod
    def changed_error() -> ConfigurationError:
        """What to say of that."""
        return ConfigurationError(
            "gevent monkey-patched the process after this client was made with OS threads: monkey-patch before the client is "
            "made (gevent.monkey.patch_all() as the first lines of the program), or pass handler='gevent'. close() still delivers what it was given, over connections that are there"
        )


def gevent_is_running() -> bool:
    """Whether the calling thread has a gevent hub that runs, or is inside a Greenlet."""
    if HUB not in sys.modules:
        return False
    from gevent._hub_local import get_hub_if_exists

    hub = get_hub_if_exists()
    return hub is not None and bool(hub)  # a greenlet is true from its first switch to its end


def _outside() -> int:
    """The stacklevel of the first caller outside gkafka: the line that a warning should name."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gkafka":
        level, frame = level + 1, frame.f_back
    return level
