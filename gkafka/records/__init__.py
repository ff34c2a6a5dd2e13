"""What lies inside a partition: record batches and message sets, read and written.

Two implementations with one interface: `_speed` (compiled from Cython) and `_pure` (Python). The environment's
GKAFKA_IMPL chooses: "cython" or "python"; a named one that does not load is an ImportError. Unset: the compiled one if it
loads. `IMPLEMENTATION` says which one is used.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

_MODULES = {"cython": "gkafka.records._speed", "python": "gkafka.records._pure"}


def _choose(wanted: str | None) -> tuple[str, ModuleType]:
    if wanted:
        if wanted not in _MODULES:
            raise ImportError(f"GKAFKA_IMPL={wanted!r}: must be one of {', '.join(map(repr, _MODULES))}, or unset")
        try:
            return wanted, importlib.import_module(_MODULES[wanted])
        except ImportError as exc:
            raise ImportError(f"GKAFKA_IMPL={wanted!r} does not load: {exc}") from exc
    try:
        return "cython", importlib.import_module(_MODULES["cython"])
    except ImportError:
        return "python", importlib.import_module(_MODULES["python"])


IMPLEMENTATION, _module = _choose(os.environ.get("GKAFKA_IMPL"))
globals().update({name: getattr(_module, name) for name in dir(_module) if not name.startswith("_")})
