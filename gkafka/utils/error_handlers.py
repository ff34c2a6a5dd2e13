"""What becomes of the partitions of an answer, by their error codes (reference: pykafka.utils.error_handlers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from gkafka.brokererrors import error_for
from gkafka.exceptions import ConfigurationError

__all__ = ["build_parts_by_error", "handle_partition_responses", "raise_error"]


def handle_partition_responses(
    error_handlers: Mapping[int, Callable[[Any], object]],
    parts_by_error: Mapping[int, Iterable[Any]] | None = None,
    success_handler: Callable[[Any], object] | None = None,
    response: Any = None,
    partitions_by_id: Mapping[int, Any] | None = None,
) -> Mapping[int, Iterable[Any]]:
    """Call error_handlers[code](parts) for each code's partitions, and success_handler(parts) for those of code 0; returns parts_by_error.

    parts_by_error: code -> partitions; None: made from a `gkafka.protocol` response by `build_parts_by_error`.
    Raises the broker's error for a code that has no handler, before any handler is called.
    """
    if parts_by_error is None:
        if response is None:
            raise ConfigurationError("handle_partition_responses needs parts_by_error, or response and partitions_by_id")
        parts_by_error = build_parts_by_error(response, partitions_by_id)
    for code in parts_by_error:
        if code not in error_handlers and (error := error_for(code)) is not None:
            raise error
    for code, parts in parts_by_error.items():
        if code != 0:
            error_handlers[code](parts)
        elif success_handler is not None:
            success_handler(parts)
    return parts_by_error


def build_parts_by_error(response: Any, partitions_by_id: Mapping[int, Any] | None) -> dict[int, list[tuple[Any, Any]]]:
    """Error code -> (partition, its part of the response), of those partitions that partitions_by_id has."""
    found: dict[int, list[tuple[Any, Any]]] = {}
    for partitions in response.topics.values():
        for partition_id, part in partitions.items():
            if partitions_by_id is not None and partition_id in partitions_by_id:
                found.setdefault(part.err, []).append((partitions_by_id[partition_id], part))
    return found


def raise_error(error: type[BaseException] | BaseException, info: str = "") -> NoReturn:
    """Raise the error: a class, with info as its text, or an instance as it is."""
    raise error if isinstance(error, BaseException) else error(info)
