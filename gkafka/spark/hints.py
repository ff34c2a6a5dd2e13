"""What an option is likely to have been meant as that has no meaning where it stands. Nothing here imports pyspark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from gkafka.pages import page

__all__ = ["OF_WRITES", "meant_option", "meant_property"]

OF_WRITES = ("topic", "exactlyOnce", "transactionalIdPrefix", "jobId", "checkpointLocation")
"""Options that have a meaning in writes alone."""
WHAT_IS_READ = ("subscribe", "subscribepattern", "assign")
OTHER_WORDS = {
    "groupid": "kafka.group.id",
    "compression": "kafka.compression.type",
    "compressioncodec": "kafka.compression.type",
    "brokers": "kafka.bootstrap.servers",
    "servers": "kafka.bootstrap.servers",
    "polltimeoutms": "kafkaConsumer.pollTimeoutMs",
    "numretries": "fetchOffset.numRetries",
    "retryintervalms": "fetchOffset.retryIntervalMs",
}
"""What is meant by words that look like nothing else, as `_squeezed` has them."""


def meant_option(key: str, names: Mapping[str, str], properties: Mapping[str, str], others: Iterable[str], topic: str) -> str | None:
    """What to say behind the name of an option that is none here, with a semicolon first; None for one that begins with "kafka." and may be a property.

    key: in lower case. names: the options that there are, by that. properties: those of kafka.*, without it, each with the reason why it is not to be
    given, "" if it may be. others: options of the other direction, reads or writes. topic: the option that names one here.
    """
    name = key.removeprefix("kafka.")
    dotted = name.replace("_", ".")
    if dotted in properties:
        return None if name != key else _of_a_property(dotted, properties)
    if key == "path":
        return f"; load() and save() take no path: name the topic by .option({topic!r}, ...)"
    if other := _by_squeezed(others).get(_squeezed(name)):
        return _of_the_other_direction(other, topic)
    if found := _by_squeezed(names.values()).get(_squeezed(name)):
        return _did_you_mean(found)
    if name != key:
        return None
    if word := OTHER_WORDS.get(_squeezed(name)):
        if word.startswith("kafka."):
            return _of_a_property(word.removeprefix("kafka."), properties)
        return _did_you_mean(word) if word in names.values() else _of_the_other_direction(word, topic)
    if found := _by_squeezed(properties).get(_squeezed(name)):
        return _of_a_property(found, properties)
    near = difflib.get_close_matches(key, [*names, *map(str.lower, others)], n=1, cutoff=0.7)
    if not near:
        return f"; {page('spark')} lists them"
    return _did_you_mean(names[near[0]]) if near[0] in names else _of_the_other_direction(_by_squeezed(others)[_squeezed(near[0])], topic)


def meant_property(name: str, known: Iterable[str]) -> str:
    """The same for a property without a meaning. name: without its "kafka."; known: all that there are, so too."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return _did_you_mean(f"kafka.{near[0]}") if near else f"; {page('spark')} lists what is known"


def _of_a_property(name: str, properties: Mapping[str, str]) -> str:
    """name: without its "kafka."; properties: as meant_option() has them."""
    why = properties.get(name, "")
    return f"; {why}" if why else _did_you_mean(f"kafka.{name}")


def _did_you_mean(name: str) -> str:
    return f"; did you mean '{name}'?"


def _of_the_other_direction(option: str, topic: str) -> str:
    writes = option in OF_WRITES
    text = f"; {option!r} is an option of {'writes, and this reads' if writes else 'reads, and this writes'}"
    if option == "topic" or option.lower() in WHAT_IS_READ:
        return f"{text}: name the topic by .option({topic!r}, ...)"
    return f"{text}: leave it out"


def _squeezed(name: str) -> str:
    """How it is told from others: neither case nor dots, underscores and hyphens count."""
    return re.sub(r"[._-]", "", name.lower())


def _by_squeezed(names: Iterable[str]) -> dict[str, str]:
    return {_squeezed(name): name for name in names}
