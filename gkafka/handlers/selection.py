"""Which handler a client gets: decided when the client is made, never at import."""

from __future__ import annotations

import difflib
import warnings
from typing import Any, NamedTuple

from gkafka.exceptions import ConfigurationError
from gkafka.handlers.base import Handler
from gkafka.handlers.patching import PatchState, _outside, gevent_is_running
from gkafka.handlers.threads import ThreadingHandler
from gkafka.logs import get_logger

__all__ = ["Selecting", "resolve_handler"]

log = get_logger(__name__)
NAMES = ("auto", "threading", "gevent")
_warned: set[str] = set()


class Selecting(NamedTuple):
    """For `handler=`: a handler by name whose connections wait in this selector, as kafka-python's option `selector` says."""

    handler: Any
    selector: Any

    def made(self) -> Handler:
        """Raises ConfigurationError where the two exclude each other: what is no selector of gevent's would stop every greenlet."""
        if isinstance(self.handler, Handler):
            raise ConfigurationError(f"selector={self.selector!r} with handler={self.handler!r}: give ThreadingHandler(selector=...)")
        if self.handler not in NAMES:
            raise ConfigurationError(_unknown(self.handler))
        of_gevent = str(getattr(self.selector, "__module__", "")).startswith("gevent.")
        state = PatchState.now()
        waits = "gevent" if self.handler == "auto" and not of_gevent and state.threading and state.socket else self.handler
        if waits == ("threading" if of_gevent else "gevent"):
            raise ConfigurationError(
                f"selector={self.selector!r} with handler={waits!r}: greenlets wait in gevent's selectors, threads in those of the standard library"
            )
        return make_gevent_handler() if of_gevent else ThreadingHandler(selector=self.selector)


def resolve_handler(handler: Any = "auto", use_greenlets: bool = False) -> Handler:
    """The Handler for a client's `handler=` and `use_greenlets=` arguments.

    A Handler instance is used as it is. "threading" and "gevent" name one. "auto" follows gevent's monkey-patching:
    threading and socket patched: gevent; nothing that matters: threading; else it is refused, since such a mix hangs.
    use_greenlets=True means "gevent". Raises ConfigurationError.
    """
    chosen = _choose(handler, bool(use_greenlets))
    log.info("handler %s (%s)", chosen.name, "given" if chosen is handler else f"handler={handler!r}, use_greenlets={use_greenlets!r}")
    return chosen


def _choose(handler: Any, use_greenlets: bool) -> Handler:
    if isinstance(handler, Selecting):
        return handler.made()
    if isinstance(handler, Handler):
        if use_greenlets and isinstance(handler, ThreadingHandler):
            raise ConfigurationError(f"use_greenlets=True with handler={handler!r}: give one of them")
        return handler
    if handler not in NAMES:
        raise ConfigurationError(_unknown(handler))
    if use_greenlets and handler == "threading":
        raise ConfigurationError("use_greenlets=True with handler='threading': give one of them")
    if use_greenlets or handler == "gevent":
        return make_gevent_handler()
    return ThreadingHandler() if handler == "threading" else _auto(PatchState.now())


def _unknown(handler: Any) -> str:
    text = f"handler={handler!r}: must be one of {', '.join(map(repr, NAMES))}, or an instance of gkafka.handlers.Handler"
    if isinstance(handler, type) and issubclass(handler, Handler):
        return f"{text}; make one: handler={handler.__name__}()"
    near = difflib.get_close_matches(str(handler), NAMES, n=1)
    return f"{text}; did you mean {near[0]!r}?" if near else text


def _auto(state: PatchState) -> Handler:
    if state.threading and state.socket:
        return make_gevent_handler()
    if state.is_mixed:
        raise state.mixed_error()
    if gevent_is_running():
        _warn_once(
            "gevent in use but not patched: OS threads were chosen, and waiting for them stops every greenlet; pass handler='gevent'"
        )
        return ThreadingHandler()
    chosen = ThreadingHandler()
    chosen.looks_for_hub = True
    return chosen


def make_gevent_handler() -> Handler:
    """A GEventHandler. Raises ConfigurationError where gevent is missing or cannot work."""
    from gkafka.handlers.greenlets import GEventHandler

    return GEventHandler()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=_outside())
