"""What gkafka says of its Python options, in the words of the command line: `sasl_username=` is --sasl-username, `linger_ms=` linger.ms."""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache

__all__ = ["in_tools_words"]

PHRASES = {
    "list_offsets() and reset_offsets() tell": "kafka-tools offsets list tells",
    "give to= or to_time=": "give --to-offset, --to-time, --to-earliest or --to-latest",
    "call reset_offsets() for": "give --from earliest, or another place, for",
    "a callable (partition ids, key) -> partition id": "no other",
    ", or a callable": "",
    ", or an object with what gkafka.core.assignors.Assignor has": "",
    "give sasl_oauth_token_provider, or sasl": "give sasl",
    "check hosts=,": "check --bootstrap-server,",
    "get_producer(): ": "",
    "get_consumer(): ": "",
    "KafkaClient(): ": "",
    "None, ": "",
}
"""Python's calls -> what does the same here."""
VALUES = {"True": "true", "False": "false", "None": "nothing"}
HOSTS = re.compile(r"^hosts(?=[=:])")
ZOOKEEPER = re.compile(r"^zookeeper_hosts(?=[=:])")


def in_tools_words(text: str) -> str:
    """An error's text for somebody who gave flags and properties. Names within quotes are left: they may be topics."""
    for said, meant in PHRASES.items():
        text = text.replace(said, meant)
    text = ZOOKEEPER.sub("--zookeeper", HOSTS.sub("--bootstrap-server", text))
    return _options().sub(_worded, text)


def _worded(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    flag = _flags().get(name)
    if value is None:
        return flag or _dotted(name)
    plain = VALUES.get(value, value.strip("'"))
    return f"{flag} {plain}" if flag else f"{_dotted(name)}={plain}"


def _dotted(name: str) -> str:
    from gkafka.cli.propertynames import PREFERRED

    return PREFERRED.get(name, name.replace("_", "."))


@lru_cache(maxsize=1)
def _flags() -> dict[str, str]:
    """Option -> its flag, which all commands have."""
    from gkafka.cli.connection import CONNECTION

    long = {name: [s for s in spellings if s.startswith("--")] for spellings, name, _ in CONNECTION}
    found = {name: spellings[0] for name, spellings in long.items() if spellings and name not in ("hosts", "config", "set", "timeout")}
    return {**found, "sasl_password": "--sasl-password-file", "ssl_password": "--ssl-password-file", "group": "--group"}


@lru_cache(maxsize=1)
def _options() -> re.Pattern[str]:
    """Names of options, with what they are said to be; not within quotes."""
    from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig

    names = {f.name for config in (ClientConfig, ProducerConfig, NativeConsumerConfig) for f in dataclasses.fields(config)}
    several = sorted((name for name in names if "_" in name), key=len, reverse=True)
    several += [name for name in ("assignors", "zookeeper") if name not in several]
    listed = "|".join(map(re.escape, several))
    return re.compile(rf"(?<!['\w.\-])(?P<name>{listed})(?:=(?P<value>'[^']*'|[\w.+-]+\w|\w))?(?![\w'])")
