"""Texts of options as values, checked, for what reads and what writes. Nothing here imports pyspark.

Spark gives every option as text, its name in lower case. Each function takes the options so, the name as users write it, and a default.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from gkafka.config import Secret, is_pem_text, may_be_key
from gkafka.exceptions import ConfigurationError
from gkafka.javanames import dotted
from gkafka.sasloptions import has_user, hide_hosts, hide_mistaken, seems_secret
from gkafka.spark.hints import meant_option

__all__ = [
    "boolean",
    "check_names",
    "duration_ms",
    "kafka_properties",
    "lowered",
    "number",
    "one_of",
    "positive",
    "text",
    "whole",
    "whole_number",
]

UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""What Spark's own times are written with; microseconds ("us") are cut to milliseconds there, and refused here."""
MAX_LONG = (1 << 63) - 1


LOGIN = re.compile(r"loginmodule\s|password\s*=", re.IGNORECASE)
"""What a login line holds, wherever it was put."""
PLAIN_NAME = re.compile(r"[\w.-]+")
SECRET_ENDINGS = ("password", "secret", "jaas.config", "proxy.url", "token.endpoint.url", "callback.handler.class")
"""Of the names of properties whose values nothing shows; a dot may be an underscore."""


def lowered(options: Mapping[str, Any], known: Iterable[str], properties: Container[str]) -> dict[str, str]:
    """The options with their names in lower case, as Spark hands them over and as the functions here look them up; as Secrets what is one or may be: values
    behind a name that is neither among `known` nor among those of kafka.*, `properties`, without it, and names that can be none."""
    names = {name.lower() for name in known}

    def is_known(name: str) -> bool:
        return name in names or (name.startswith("kafka.") and name.removeprefix("kafka.").replace("_", ".") in properties)

    given = {key.lower() if PLAIN_NAME.fullmatch(key) else Secret(key): value for key, value in options.items()}
    return {name: _hidden(name, value, is_known=is_known(name)) for name, value in given.items()}


def _hidden(name: str, value: Any, *, is_known: bool) -> str:
    if isinstance(value, Secret):
        return value
    text, dotted = str(value), name.replace("_", ".").removeprefix("kafka.")  # which may have been forgotten
    if dotted == "sasl.mechanism":
        return hide_mistaken("sasl_mechanism", text)  # type: ignore[no-any-return]  # a text stays one
    if dotted == "bootstrap.servers":
        return hide_hosts(text)  # type: ignore[no-any-return]  # a text stays one
    is_key = dotted.startswith("ssl.") and may_be_key(text)
    is_secret = (
        is_key
        or has_user(text)
        or LOGIN.search(text)
        or is_pem_text(text)
        or dotted.endswith(SECRET_ENDINGS)
        or seems_secret(dotted.replace(".", "_"))
    )
    return Secret(text) if is_secret or not is_known else text


def kafka_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Those that are named kafka.*, without it, by their names with dots. Raises ConfigurationError for two spellings of one."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if key.startswith("kafka."):
            name = dotted(key.removeprefix("kafka."))
            if name in found:
                raise ConfigurationError(f"{key} is given twice (it is another spelling of 'kafka.{name}')")
            found[name] = value
    return found


def check_names(
    given: Mapping[str, str], known: Iterable[str], properties: Mapping[str, str], others: Iterable[str], *, topic: str
) -> None:
    """known: names as users write them; properties: those of kafka.*, as `meant_option` has them. others: options of the other direction. topic: the
    option that names one.

    Raises ConfigurationError for another one, with what is likely to have been meant; those of kafka.* that look like a property are checked as such.
    """
    names = {name.lower(): name for name in known}
    for key in given:
        if PLAIN_NAME.fullmatch(key) is None:
            raise ConfigurationError(
                f"an option's name of {len(key)} characters holds other ones than letters, digits, dots, underscores and hyphens; it is not shown, as it may "
                "hold a secret: give name and value each by itself, .option(name, value)"
            )
        if key not in names and (hint := meant_option(key, names, properties, others, topic)) is not None:
            raise ConfigurationError(f"unknown option {key!r} for format('gkafka'){hint}")


# -- one value ---------------------------------------------------------------------------------------------------------
def text(given: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """A text that says something. Raises ConfigurationError if there is nothing but white space."""
    if name.lower() not in given:
        return default
    found = given[name.lower()].strip()
    if not found:
        raise ConfigurationError(f"{name}={given[name.lower()]!r}: must not be empty; leave it out instead")
    return found


def boolean(given: Mapping[str, str], name: str, default: str) -> bool:
    """ "true" or "false", in any case. Raises ConfigurationError."""
    found = given.get(name.lower(), default)
    if found.lower() not in ("true", "false"):
        raise ConfigurationError(f"{name}={found!r}: must be 'true' or 'false'")
    return found.lower() == "true"


def one_of(given: Mapping[str, str], name: str, allowed: Iterable[str], default: str) -> str:
    """One of these words, in any case, as it stands in `allowed`. Raises ConfigurationError."""
    found = given.get(name.lower(), default)
    words = {word.lower(): word for word in allowed}
    if found.lower() not in words:
        raise ConfigurationError(f"{name}={found!r}: must be {' or '.join(map(repr, words.values()))}")
    return words[found.lower()]


def positive(given: Mapping[str, str], name: str) -> int | None:
    """A whole number of 1 or more, None where it is not given. Raises ConfigurationError in the JVM connector's words."""
    if name.lower() not in given:
        return None
    value = number(name, given[name.lower()])
    if value <= 0:
        raise ConfigurationError(f"{name} must be positive: {value} was given")
    return value


def whole(given: Mapping[str, str], name: str, default: str, low: int, high: int = MAX_LONG) -> int:
    """A whole number from `low` to `high`. Raises ConfigurationError."""
    return number(name, given.get(name.lower(), default), low, high)


def number(name: str, given: str, low: int | None = None, high: int = MAX_LONG) -> int:
    """The same, of the text itself."""
    try:
        value = whole_number(given)
    except ValueError:
        raise ConfigurationError(f"{name}={given!r}: must be a whole number") from None
    if low is not None and value < low:
        raise ConfigurationError(f"{name}={given!r}: must be {low} or more")
    if value > high:
        raise ConfigurationError(f"{name}={given!r}: must be {'less than 2**63' if high == MAX_LONG else f'{high} or less'}")
    return value


def whole_number(given: str) -> int:
    """An int as Java's parsers take it: ASCII digits with an optional sign, white space around. int() takes 1_000 and other digits too.

    Raises ValueError.
    """
    if re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", given) is None:
        raise ValueError(f"{given!r} is not a whole number")
    return int(given)


def duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """Milliseconds of "15m", "90s" or "500" (a number alone is milliseconds), as Spark writes times. Raises ConfigurationError."""
    found = given.get(name.lower(), default)
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", found.strip().lower())
    if match is None or match[2] not in UNITS_MS:
        raise ConfigurationError(
            f"{name}={found!r}: must be a time such as 15m: a whole number and one of {', '.join(filter(None, UNITS_MS))}"
        )
    value = int(match[1]) * UNITS_MS[match[2]]
    if value > MAX_LONG:
        raise ConfigurationError(f"{name}={found!r}: must be less than 2**63 ms")
    return value
