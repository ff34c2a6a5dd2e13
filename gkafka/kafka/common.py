"""Where kafka-python had its errors and small types until 1.0, and 1.4 still has them (kafka.common): those of `errors` and `structs`."""

from __future__ import annotations

from typing import Any

from gkafka.kafka import errors, structs

_OF_MESSAGES = ("KafkaMessage", "Message", "OffsetAndMessage")
_ERRORS = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, BaseException)}
__all__ = sorted({*structs.__all__, *errors.__all__, *_ERRORS, *_OF_MESSAGES})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OF_MESSAGES:
        from gkafka.kafka.legacy import common  # loads the consumers that hand them out

        return getattr(common, name)
    return getattr(structs if name in structs.__all__ else errors, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
