"""Which frames of a traceback are gkafka's own: those whose local variables must not show a secret."""

from __future__ import annotations

from pathlib import Path
from traceback import FrameSummary

import gkafka

__all__ = ["is_ours"]

ROOM = Path(gkafka.__file__).resolve().parent


def is_ours(frame: FrameSummary) -> bool:
    """Is it of a file of gkafka's? The tests' own frames know the secrets that they made; wherever the clone lies, they are outside."""
    return Path(frame.filename).resolve().is_relative_to(ROOM)
