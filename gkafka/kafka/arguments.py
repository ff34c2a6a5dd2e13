"""Arguments of public methods, checked by what their annotations say before anything is done with them.

Python takes whatever is given: `validate_only="no"` would count as true, and a text as a list of letters.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from operator import index
from types import MappingProxyType
from typing import Any, TypeVar

from gkafka.checks import check_flag, check_seconds, check_topic_name
from gkafka.common import TopicPartition
from gkafka.kafka.errors import IllegalArgumentError, WrongTypeError
from gkafka.unseen import told, unseen

__all__ = ["check_numbers", "check_partition", "check_partitions", "checking", "flags", "hiding", "listed", "partitions_of"]

T = TypeVar("T")
Rule = Callable[[str, Any], Any]
Hides = Mapping[str, Callable[[Any], Any]]
SECRET = ("alterations",)
"""Arguments whose values are never shown: a password may stand in the wrong place."""


class WrongKindError(IllegalArgumentError, WrongTypeError):
    """An argument of another kind than it must be. kafka-python raises a TypeError for some, others fail inside it."""


def listed(name: str, given: Any) -> list[Any]:
    """A list that was given for an argument. A text is none: it would be taken letter by letter."""
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__"):
        shown = f"{name}: a {type(given).__name__}" if name in SECRET else told(name, given)
        raise WrongKindError(f"{shown}: must be a list, also for one")
    return list(given)


def check_partition(given: Any) -> TopicPartition:
    """A (topic, partition) pair. Raises WrongTypeError for anything else."""
    if not isinstance(given, tuple) or len(given) != 2 or isinstance(given[1], bool) or not isinstance(given[1], int):
        raise WrongTypeError(f"partition={given!r}: must be a TopicPartition(topic, partition)")
    return TopicPartition(check_topic_name(given[0]), given[1])


def check_partitions(given: Any) -> list[TopicPartition]:
    """A list of such pairs."""
    if isinstance(given, (str, bytes, tuple)) and not (isinstance(given, tuple) and all(isinstance(one, tuple) for one in given)):
        raise WrongTypeError(f"partitions={given!r}: must be a list of TopicPartition")
    if isinstance(given, Mapping) and given:
        text = "would be taken without their values: give a list of TopicPartition; an offset to begin at is what seek(partition, offset) takes"
        raise WrongTypeError(f"partitions={given!r}: {text}")
    if not isinstance(given, Iterable):
        raise WrongTypeError(f"partitions={given!r}: must be a list of TopicPartition")
    return [check_partition(one) for one in given]


def check_numbers(name: str, given: Any) -> list[int]:
    """A list of whole numbers."""
    return [_number(name, one) for one in listed(name, given)]


def partitions_of(name: str, given: Mapping[Any, Any]) -> list[Any]:
    """The partitions that {topic: numbers} means."""
    return [check_partition((topic, p)) for topic, numbers in given.items() for p in check_numbers(f"{name}[{topic!r}]", numbers)]


def _number(name: str, given: Any) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError
        return index(given)
    except TypeError:
        raise WrongTypeError(f"{name}={given!r}: must be a whole number") from None


def _partitions(name: str, given: Any) -> list[Any]:
    return [check_partition(one) for one in listed(name, given)]


def _mapping(name: str, given: Any) -> dict[Any, Any]:
    if not isinstance(given, Mapping):
        raise WrongKindError(f"{name}={given!r}: must be a dict")
    return dict(given)


def _by_partition(name: str, given: Any) -> dict[Any, Any]:
    return {check_partition(tp): value for tp, value in _mapping(name, given).items()}


RULES: tuple[tuple[str, Rule], ...] = (
    (r"bool", check_flag),
    (r"int", _number),
    (r"float", check_seconds),
    (r"Iterable\[TopicPartition\]", _partitions),
    (r"Iterable\[int\]", check_numbers),
    (r"Iterable\[.*\]", listed),
    (r"Mapping\[TopicPartition, .*\]", _by_partition),
    (r"Mapping\[.*\]", _mapping),
)


def checking(cls: type[T]) -> type[T]:
    """For a class: its public methods check all their arguments that there is a rule for."""
    return _checking(cls, RULES)


def hiding(hides: Hides) -> Callable[[type[T]], type[T]]:
    """As checking(), for a class with arguments that may hold passwords. hides: by name, what makes of each what stands for it from the call on."""
    return lambda cls: _checking(cls, RULES, hides)


def flags(cls: type[T]) -> type[T]:
    """For a class whose methods check the rest themselves: what must be True or False is that."""
    return _checking(cls, RULES[:1])


def _checking(cls: type[T], rules: Iterable[tuple[str, Rule]], hides: Hides = MappingProxyType({})) -> type[T]:
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        found = {} if name.startswith("_") else _rules_of(method, rules)
        if found:
            setattr(cls, name, _checked(method, found, hides))
    return cls


def _rules_of(method: Callable[..., Any], rules: Iterable[tuple[str, Rule]]) -> dict[str, tuple[Rule, bool]]:
    """Parameter -> its rule, and whether it may be None."""
    found = {}
    for name, annotation in method.__annotations__.items():  # as texts; inspect.signature() takes ten times as long
        kind = str(annotation)
        for pattern, rule in rules:
            if name != "return" and re.fullmatch(rf"{pattern}( \| None)?", kind):
                found[name] = rule, kind.endswith("| None")
                break
    return found


def _checked(method: Callable[..., Any], rules: Mapping[str, tuple[Rule, bool]], hides: Hides) -> Callable[..., Any]:
    signature = inspect.signature(method)
    hidden = {place: hides[name] for place, name in enumerate(signature.parameters) if name in hides}

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if hidden:
            args = tuple(hidden[place](value) if place in hidden else value for place, value in enumerate(args))
            kwargs = {name: hides[name](value) if name in hides else value for name, value in kwargs.items()}
            kwargs = {name: value if name in signature.parameters else unseen(value) for name, value in kwargs.items()}
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # which says what is wrong
        for name, value in bound.arguments.items():
            rule, may_be_none = rules.get(name, (None, True))
            if rule is not None and not (value is None and may_be_none):
                bound.arguments[name] = rule(name, value)
        return method(*bound.args, **bound.kwargs)

    return checked
