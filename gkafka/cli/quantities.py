"""Numbers of the command line that are seconds or milliseconds: finite, and no longer than a wait can be."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["LONGEST_S", "Quantity"]

LONGEST_S = 1_000_000
"""Eleven days: what is longer no clock of a wait holds as milliseconds in 32 bits, and nobody means."""


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
