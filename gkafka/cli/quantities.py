"""Numbers of the command line, each within what Kafka or a clock can hold: seconds and milliseconds that are finite; partitions, replicas, records, bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

__all__ = [
    "LONGEST_S",
    "MAX_INT32",
    "MAX_INT64",
    "PARTITION",
    "PARTITIONS",
    "RECORDS",
    "REPLICAS",
    "VALUE_BYTES",
    "WAIT_MS",
    "ParamType",
    "Quantity",
    "is_number",
]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic at run time before click 8.5

LONGEST_S = 1_000_000
"""Eleven days: what is longer no clock of a wait holds as milliseconds in 32 bits, and nobody means."""

MAX_INT32, MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
PARTITION, PARTITIONS = click.IntRange(0, MAX_INT32), click.IntRange(1, MAX_INT32)
"""The number of one; how many there are."""
REPLICAS = click.IntRange(1, (1 << 15) - 1)
RECORDS = click.IntRange(1, MAX_INT64)
VALUE_BYTES = click.IntRange(1, 100_000_000)
"""Of a value that is made up: what is larger no broker takes."""
WAIT_MS = click.IntRange(1, LONGEST_S * 1000)


def is_number(text: str, most: int = MAX_INT32) -> bool:
    """Is it 0 to most, in plain digits?"""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most


class Quantity(click.FloatRange):
    """A number within bounds. click's own lets "nan" through every one of them."""

    def __init__(self, low: float = 0, high: float = LONGEST_S, *, above: bool = False) -> None:
        """above: low itself is too little."""
        super().__init__(min=low, max=high, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or an error that says which it may be."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r}: must be a number from {self.min:g} to {self.max:g}", param, ctx)
        return number
