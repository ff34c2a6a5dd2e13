"""What configurations are changed to, with brokers' passwords among it: nothing shows these on their way to the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gkafka.config import Secret
from gkafka.sasloptions import seems_secret_config
from gkafka.unseen import unseen

__all__ = ["Append", "Subtract", "hide_changes", "hide_configs", "hide_names"]


class Append(str):
    """Change of a list: these values are added to it ("a,b")."""

    __slots__ = ()

    def __new__(cls, values: Any = "") -> Append:
        return SecretAppend(values) if cls is Append and isinstance(values, Secret) else str.__new__(cls, values)


class Subtract(str):
    """Change of a list: these values are taken out of it ("a,b")."""

    __slots__ = ()

    def __new__(cls, values: Any = "") -> Subtract:
        return SecretSubtract(values) if cls is Subtract and isinstance(values, Secret) else str.__new__(cls, values)


class SecretAppend(Secret, Append):
    """An Append that nothing shows."""

    __slots__ = ()


class SecretSubtract(Secret, Subtract):
    """A Subtract that nothing shows."""

    __slots__ = ()


def hide_changes(given: Any) -> Any:
    """{resource: {name: value}} with hide_configs() of each; what is no mapping as what nothing shows."""
    return {resource: hide_configs(of) for resource, of in given.items()} if isinstance(given, Mapping) else _no_mapping(given)


def hide_configs(values: Any) -> Any:
    """Values by name, as brokers and topics get them, with those of names like a secret's as Secrets. What is no mapping, as pairs or a text with a
    line of server.properties, may hold one too: it becomes what nothing shows."""
    return {name: _hidden(name, value) for name, value in values.items()} if isinstance(values, Mapping) else _no_mapping(values)


def hide_names(values: Any) -> Any:
    """Values by name, or names alone in any iterable but a text."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        return hide_configs(values)
    names = values if isinstance(values, (list, tuple, set, frozenset)) else list(values)
    return names if all(isinstance(name, str) and "=" not in name for name in names) else unseen(names)


def _no_mapping(value: Any) -> Any:
    return value if value is None else unseen(value)


def _hidden(name: Any, value: Any) -> Any:
    if not seems_secret_config(name):
        return value
    if isinstance(value, tuple):  # kafka-python's, with what is to be done with the value first
        return tuple(one if place == 0 and _is_operation(one) else _secret(one) for place, one in enumerate(value))
    return _secret(value)


def _is_operation(given: Any) -> bool:
    return isinstance(given, int) and 0 <= given < 4


def _secret(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")  # halves of characters are refused; a UnicodeDecodeError would hold the bytes
    if isinstance(value, (bool, int, float)):
        value = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str):
        kind = SecretAppend if isinstance(value, Append) else SecretSubtract if isinstance(value, Subtract) else Secret
        return value if isinstance(value, kind) else kind(value)
    return _no_mapping(value)
