"""What messages tell of a value that was given in place of another: what no text nor number is may hold a password, and is told by its type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from numbers import Number
from typing import Any

from gkafka.exceptions import ConfigurationError

__all__ = ["described", "hide_options", "refusal", "refused", "told", "unseen"]

SHOWN = (str, bytes, Number, Enum, os.PathLike, type, type(None))
AS_KEYWORDS = "; options are given as keyword arguments: **conf"


class Unseen:
    """Stands for a value that is of no use but may show a secret all the same. Its class has the name of the value's."""

    __slots__ = ()
    holds_options = False

    def __repr__(self) -> str:
        return "***"


def unseen(value: Any) -> Any:
    """What stands for this value from here on."""
    return type(type(value).__name__, (Unseen,), {"__slots__": (), "holds_options": _holds_options(value)})()


def hide_options(value: Any) -> Any:
    """A dict of options in place of a single argument, as other clients take them, or in a list of them, as what nothing shows; all else as it is."""
    if type(value) in (list, tuple) and _holds_options(value):
        return [hide_options(one) for one in value]
    return unseen(value) if _holds_options(value) else value


def told(name: str, value: Any) -> str:
    """An argument with its value, or with no more than its type."""
    return f"{name}={value!r}" if _is_shown(value) else f"{name}=<{type(value).__name__}>"


def described(error: BaseException) -> str:
    """Return an exception's type and text, or its type alone where its text cannot be had: `__str__` may be the application's, and raise."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


def refused(name: str, value: Any, rule: str) -> ConfigurationError:
    """The error that tells what an argument is, and by what rule it is wrong."""
    return ConfigurationError(refusal(name, value, rule))


def refusal(name: str, value: Any, rule: str) -> str:
    """Its text, for errors of other classes."""
    return f"{told(name, value)}: {rule}{AS_KEYWORDS if _holds_options(value) else ''}"


def _is_shown(value: Any) -> bool:
    """A text, a number and their like, and what holds nothing, or no text."""
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return not any(isinstance(one, (str, bytes)) or not _is_shown(one) for one in value)
    return isinstance(value, SHOWN)


def _holds_options(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_holds_options, value))
    if isinstance(value, Mapping):
        return any(isinstance(key, str) for key in value)
    return isinstance(value, Unseen) and value.holds_options
