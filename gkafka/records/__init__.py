"""What lies inside a partition: record batches and message sets, read and written.

Two implementations with one interface: `_speed` (compiled from Cython) and `_pure` (Python). The environment's
GKAFKA_IMPL chooses: "cython" or "python"; a named one that does not load is an ImportError. Unset: the compiled one if it
loads. `IMPLEMENTATION` says which one is used.
"""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

from gkafka.records._check import HEADER_BYTES
from gkafka.records._sources import OtherSources, check_sources

if TYPE_CHECKING:
    from gkafka.records._pure import (
        Appender,
        Batch,
        BatchHeader,
        Budget,
        Delivery,
        FutureDelivery,
        Lane,
        Message,
        Record,
        RecordMetadata,
        Records,
        Report,
        ReportQueue,
        Row,
        Run,
        Span,
        call_back,
        check_record,
        choose_partitions,
        control_type,
        crc32c,
        encode_columns,
        live_buffers,
        make_message,
        measure_columns,
        microseconds,
        murmur2,
        record_size,
        run_callback,
        scan,
        span_at,
    )
    from gkafka.records._pure import decode_columns as decode_raw

__all__ = [
    "Appender",
    "Batch",
    "BatchHeader",
    "Budget",
    "COLUMNS",
    "Columns",
    "Delivery",
    "FutureDelivery",
    "HEADER_BYTES",
    "IMPLEMENTATION",
    "Lane",
    "Message",
    "Record",
    "RecordMetadata",
    "RecordColumns",
    "Records",
    "Report",
    "ReportQueue",
    "Row",
    "Run",
    "STEPS_ARE_WHOLE",
    "Span",
    "arrow_schema",
    "call_back",
    "check_record",
    "choose_partitions",
    "control_type",
    "crc32c",
    "decode_columns",
    "decode_raw",
    "encode_columns",
    "live_buffers",
    "make_message",
    "measure_columns",
    "microseconds",
    "murmur2",
    "record_size",
    "run_callback",
    "scan",
    "span_at",
]

_MODULES = {"cython": "gkafka.records._speed", "python": "gkafka.records._pure"}
_CHOSEN = (
    "Appender",
    "Batch",
    "BatchHeader",
    "Budget",
    "Delivery",
    "FutureDelivery",
    "Lane",
    "Message",
    "Record",
    "RecordMetadata",
    "Records",
    "Report",
    "ReportQueue",
    "Row",
    "Run",
    "Span",
    "call_back",
    "check_record",
    "choose_partitions",
    "control_type",
    "crc32c",
    "encode_columns",
    "live_buffers",
    "make_message",
    "measure_columns",
    "microseconds",
    "murmur2",
    "record_size",
    "run_callback",
    "scan",
    "span_at",
)


def _choose(wanted: str | None) -> tuple[str, ModuleType]:
    if wanted:
        if wanted not in _MODULES:
            raise ImportError(f"GKAFKA_IMPL={wanted!r}: must be one of {', '.join(map(repr, _MODULES))}, or unset")
        try:
            return wanted, _load(wanted)
        except ImportError as exc:
            raise ImportError(f"GKAFKA_IMPL={wanted!r} does not load: {exc}") from exc
    try:
        return "cython", _load("cython")
    except OtherSources as exc:
        warnings.warn(f"gkafka works without its compiled part, slower: {exc}", RuntimeWarning, stacklevel=3)
    except ImportError:
        pass
    return "python", _load("python")


def _load(name: str) -> ModuleType:
    module = importlib.import_module(_MODULES[name])
    if name == "cython":
        check_sources(module)
    return module


IMPLEMENTATION, _module = _choose(os.environ.get("GKAFKA_IMPL"))
STEPS_ARE_WHOLE = IMPLEMENTATION == "cython"  # Records.step(): does no other thread run within one? Else its caller needs a lock
try:
    globals().update({name: getattr(_module, name) for name in _CHOSEN})
    globals()["decode_raw"] = _module.decode_columns
except AttributeError as exc:
    raise ImportError(f"{_module.__file__} was built from older sources ({exc}): python setup.py build_ext --inplace") from exc

from gkafka.records.columns import COLUMNS, Columns, arrow_schema, decode_columns  # noqa: E402  # they use what was chosen
from gkafka.records.recordcolumns import RecordColumns  # noqa: E402
