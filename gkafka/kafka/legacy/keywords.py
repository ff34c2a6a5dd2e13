"""Keywords that a constructor has not are told with the nearest one that it has."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, TypeVar

from gkafka.exceptions import UnknownOptionError

__all__ = ["hinting"]

T = TypeVar("T")
OLDER = ("async",)
"""Names that no parameter can have any more."""


def hinting(cls: type[T]) -> type[T]:
    """For a class: a keyword that neither its constructor has nor one that it comes from raises UnknownOptionError, a TypeError as Python's own."""
    init: Any = cls.__dict__["__init__"]

    @functools.wraps(init)
    def made(self: Any, *args: Any, **options: Any) -> None:
        known = _names(type(self)) if options else ()
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            args, options = (), {}  # a password may be among them, and the frame is the traceback's
            near = difflib.get_close_matches(unknown, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownOptionError(f"{type(self).__name__}(): there is no option {unknown!r}{hint}")
        init(self, *args, **options)

    setattr(cls, "__init__", made)  # noqa: B010  # mypy takes no method for another one
    return cls


def _names(cls: type[Any]) -> tuple[str, ...]:
    """What constructors of a class, and of those that it comes from, take by name."""
    made: list[Any] = [one.__dict__["__init__"] for one in cls.__mro__ if "__init__" in one.__dict__ and one is not object]
    found = [parameter for init in made for parameter in inspect.signature(init).parameters.values()]
    named = [p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
    takes_older = any(p.kind is p.VAR_KEYWORD and p.name == "old" for p in found)
    return (*dict.fromkeys(named), *(OLDER if takes_older else ()))
