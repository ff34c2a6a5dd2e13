"""Properties of other clients, in a file or a mapping, as options of gkafka: for `KafkaClient.from_properties()` and kafka-tools.

What has a counterpart becomes an option. What has no effect here is collected, with the reason, for one note. What cannot be had, and a name that is
nothing anywhere, is a ConfigurationError. Values that may be secret are Secrets from the moment at which they were read.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from gkafka.config import ClientConfig, NativeConsumerConfig, ProducerConfig, Secret, check, is_pem_text
from gkafka.exceptions import ConfigurationError
from gkafka.hosts import parse_hosts, parse_source_address
from gkafka.jaas import mechanism_of, read_login
from gkafka.javanames import (
    BUFFERS,
    FACTORS,
    OPTIONS,
    SO_HERE,
    UNESCAPED,
    canonical,
    dotted,
    fields_of,
    is_from_text,
    is_known,
    is_so_here,
    may_be_told,
    meant,
    nearest,
    spellings,
    why_no_effect,
    why_refused,
)
from gkafka.pages import page
from gkafka.properties import CONSUMER, PRODUCER, Line, is_utf16, kind_of, read_lines, split_section, wanted_sections
from gkafka.sasloptions import hide_secrets
from gkafka.unseen import unseen

__all__ = [
    "HOSTS",
    "Properties",
    "Source",
    "buffers",
    "check_hosts",
    "check_stores",
    "hide_properties",
    "no_effect",
    "note_of",
    "read_file",
    "read_properties",
    "settle_login",
    "typed",
    "typed_in_unit",
    "unknown",
    "whole",
    "without",
]

HOSTS = ("bootstrap_servers", "metadata_broker_list")
LOGIN = "sasl.jaas.config"
CLASSES = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
NO_STORE = "gkafka reads PEM files, not Java key stores: export it (openssl pkcs12 -in STORE -nodes -out FILE.pem)"
BESIDE_OPTIONS = {"group", "max_poll_records", *(name.replace(".", "_") for name in (*BUFFERS, *SO_HERE) if not name.startswith("sasl"))}
"""What a property may mean that is no option of a client, a producer or a consumer, and no secret."""


# -- what was given ---------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Source:
    """parts: {"": what everybody is told, "producer": ..., "consumer": ...}, each {name: value}, names as dotted() gives them. path: "" for a mapping.
    notes: for the user. spelled: name -> as the user wrote it."""

    path: str
    parts: Mapping[str, Mapping[str, Any]] = dataclasses.field(repr=False)
    notes: tuple[str, ...] = ()
    spelled: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def as_written(self, name: str) -> str:
        return self.spelled.get(name, name)

    def where(self, name: str) -> str:
        """How an error names a property."""
        return f"{self.path}: {self.as_written(name)}" if self.path else self.as_written(name)

    def of(self, *parts: str) -> dict[str, Any]:
        """What these parts say together, later ones before earlier ones."""
        return {name: value for part in parts for name, value in self.parts.get(part, {}).items()}


def read_file(given: str) -> Source:
    """A file of properties, without white space around their values. given: its path; a section of it may be named behind that, as in
    "client.ini:consumer". Raises OSError, and ConfigurationError for what is no such file.
    """
    path, section = split_section(given)
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        text = Secret(file.read())
    if is_utf16(text.reveal()):
        raise ConfigurationError(f"{path}: is UTF-16: save it as UTF-8")
    if "\0" in text:
        raise ConfigurationError(f"{path}: is no file of properties: must have lines NAME=VALUE ({NO_STORE})")
    kind, lines = _hidden_lines(text)
    if kind:
        raise ConfigurationError(f"{path}: {kind}")
    for line, below in zip_longest(lines, lines[1:]):
        _check_line(path, line, below)
    there = list(dict.fromkeys(line.section for line in lines))
    for one in there:
        _check_once(f"{path}: ", {line.name: line.value for line in lines if line.section == one})
    wanted = wanted_sections(path, there, section)
    parts = {
        part: {dotted(line.name): _hidden(line.name, line.value) for one in sections for line in lines if line.section == one}
        for part, sections in wanted.items()
    }
    notes = tuple(f"{path}: line {line.number}: {line.name}: {lost}" for line in lines if (lost := _lost(line)))
    return Source(path, parts, notes, {dotted(line.name): line.name for line in lines})


def _hidden_lines(text: Secret) -> tuple[str, list[Line]]:
    """What the text is, if it is no file of properties, and its lines, with what may be secret as Secrets."""
    lines = list(read_lines(text.reveal()))
    hidden = [
        line._replace(
            name=line.name if may_be_told(line.name, is_pair=line.is_pair) else Secret(line.name),
            value=Secret(line.value.strip()),
            more=tuple(map(Secret, line.more)),
        )
        for line in lines
    ]
    return _kind(lines), hidden


def _kind(lines: list[Line]) -> str:
    """What the text of these lines is, if it is no file of properties: those before the first property tell it."""
    for line in lines:
        if line.section or (line.value and _is_property(line.name)):
            break
        if kind := kind_of(line):
            return kind
    return ""


def _check_once(where: str, given: Mapping[Any, Any]) -> None:
    """Raise ConfigurationError for an option that is given by two names, with values that differ: nobody can tell which is meant."""
    by_name = {dotted(name): value for name, value in given.items() if isinstance(name, str)}
    said: dict[str, tuple[str, Any]] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not _has_effect(dotted(name), value, by_name):
            continue
        option = _one_option(name)
        before, other = said.setdefault(option, (name, value))
        if before != name and _as_text(other) != _as_text(value):
            raise ConfigurationError(f"{where}{before} and {name} are one option, given twice with values that differ: leave one out")


def _has_effect(name: str, value: Any, beside: Mapping[str, Any]) -> bool:
    return not is_so_here(name, _as_text(value)) and why_no_effect(name, given=beside) is None


def _one_option(name: str) -> str:
    """What two names share that mean the same. Of librdkafka's two times for requests one is of producers alone."""
    option = canonical(name)
    if dotted(name) == "request.timeout.ms":
        return dotted(name)
    return HOSTS[0] if option in HOSTS else BUFFERS.get(dotted(name), option)


def _check_line(path: str, line: Line, below: Line | None) -> None:
    """Raise ConfigurationError for a line without a name, for a value that swallows another property, and for a login line that ends too early."""
    if below is not None and dotted(line.name) == LOGIN and not line.value.endswith(";") and not _is_property(below.name):
        further = (
            "let the lines below it stand further to the right" if line.section else "end each of its lines but the last in a backslash"
        )
        raise ConfigurationError(f"{path}: line {line.number}: {line.name}: ends without a semicolon: {further}")
    if isinstance(line.name, Secret):
        further = "its further lines further to the right" if line.section else "a backslash at the end of each but the last"
        raise ConfigurationError(
            f"{path}: line {line.number}: {len(line.name)} characters that are no option's name: must be NAME=VALUE; a value of several lines, "
            f"as a key is, has {further}"
        )
    for part in line.more:
        begun = re.match(r"([A-Za-z][\w.-]*)[ \t]*[=: \t]", part.reveal()) if isinstance(part, Secret) else None
        if begun is not None and dotted(line.name) != LOGIN and _is_property(begun[1]):
            why = (
                "it stands further to the right: let it"
                if line.section
                else "a line ends in a backslash: write \\\\ for one at the end of a value, or let it"
            )
            raise ConfigurationError(
                f"{path}: line {line.number}: {line.name}: its value takes in the property {begun[1]} below it, for {why} "
                f"{'begin where the others do' if line.section else 'end without one'}"
            )


def _is_property(name: str) -> bool:
    return is_known(name) or why_no_effect(dotted(name)) is not None


def _lost(line: Line) -> str:
    """What to say of a value that other clients take as it stands, backslashes included; "" for nothing."""
    if canonical(line.name) not in UNESCAPED or is_pem_text(line.value) or not (line.lost or line.more):
        return ""
    if line.more and line.section:
        return "its value goes on in the next line, which stands further to the right"
    if line.more:
        return "a backslash at the end of a line continues the value here, as in Java's files: write \\\\ for one (librdkafka takes it as it is)"
    return "a backslash begins an escape here, as in Java's files: write \\\\ for one (librdkafka takes it as it is)"


def hide_properties(given: Any) -> Any:
    """What read_properties() takes, with what may be secret as Secrets: a mapping's values, and a text that is no path but a file's content."""
    if isinstance(given, Mapping):
        names = {name: dotted(name) if isinstance(name, str) else name for name, value in given.items() if value is not None}
        _check_once("", {name: given[name] for name in names})
        parts = {"": {names[name]: _hidden(name, value) for name, value in given.items() if name in names}}
        return Source("", parts, spelled={made: name for name, made in names.items()})
    if isinstance(given, str):
        return Secret(given) if "\n" in given or ("=" in given and not os.path.exists(split_section(given)[0])) else given
    return given if isinstance(given, os.PathLike) else unseen(given)


def _hidden(name: Any, value: Any) -> Any:
    if not isinstance(name, str):
        return unseen(value)
    plain = value.reveal() if isinstance(value, Secret) else _joined(value) if canonical(name) in HOSTS else value
    return hide_secrets({canonical(name): plain}, BESIDE_OPTIONS)[canonical(name)]


# -- one property -----------------------------------------------------------------------------------------------------------------
def no_effect(where: str, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
    """Why a property has no effect: "" for one that says what is so anyway. None for one that has an effect, or is unknown. beside: all properties.

    Raises ConfigurationError for one that cannot be had.
    """
    if not isinstance(value, (str, bool, int)) and canonical(name) in OPTIONS:
        return None
    if is_so_here(name, _as_text(value)):
        return ""
    why = why_no_effect(name, given=beside)
    if why is None and (why := why_refused(name, value)) is not None:
        raise ConfigurationError(f"{where}: {why}")
    return why


def _as_text(value: Any) -> str:
    """Numbers and truths as a file has them."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def typed(config: type[Any], option: str, where: str, value: Any) -> Any:
    """The value of an option, checked; a text, as files have it, is turned into what the option takes. Raises ConfigurationError."""
    field = fields_of(config)[option]
    meta = field.metadata
    is_whole = str(field.type).startswith("int")
    if not isinstance(value, str):
        return check(where, value, meta, whole=is_whole)
    found: Any = value if isinstance(value, Secret) else meant(option, value)
    if option == "source_address":
        parse_source_address(value)
        return value
    if option == "security_protocol":
        found = value.upper()
    elif option == "sasl_oauth_extensions":
        return _extensions(where, value)
    elif option == "assignors":
        return tuple(meant(option, part.strip()) for part in value.split(",") if part.strip())
    elif meta["low"] is not None or meta["high"] is not None:
        found = _number(where, value)
    elif bool in meta["types"]:
        if value.lower() not in ("true", "false"):
            raise ConfigurationError(f"{where}={value!r}: must be 'true' or 'false'")
        found = value.lower() == "true"
    return check(where, found, meta, whole=is_whole) if not meta["secret"] else Secret(value)


def typed_in_unit(config: type[Any], option: str, where: str, name: str, value: Any) -> Any:
    """The same of a property that may be given in a larger unit than its option's."""
    factor = FACTORS.get(name, 1)
    if factor == 1:
        return typed(config, option, where, value)
    return typed(config, option, f"{where}={value}, which is {option}", str(whole(where, value) * factor))


def whole(where: str, value: Any, *, low: int = 1) -> int:
    """A whole number from low to 2**31 - 1. Raises ConfigurationError."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = low - 1
    if isinstance(value, bool) or not low <= number < 1 << 31:
        raise ConfigurationError(f"{where}={value!r}: must be a whole number from {low} to {(1 << 31) - 1}")
    return number


def _number(where: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise ConfigurationError(f"{where}={text!r}: must be a number") from None


def _extensions(where: str, text: str) -> dict[str, str]:
    """The values are Secrets, and what cannot be read is not told: it may be a token."""
    text = Secret(text)
    parts = [Secret(part) for part in text.split(",") if part]
    for number, part in enumerate(parts, 1):
        if not part.partition("=")[0].strip() or "=" not in part:
            raise ConfigurationError(f"{where}: its part {number}, a text of {len(part)} characters, must be NAME=VALUE")
    return {name.strip(): Secret(value.strip()) for name, _, value in (part.partition("=") for part in parts)}


def buffers(found: dict[str, int], which: str, where: str, value: Any) -> dict[str, Any]:
    """The options for the sizes of a socket's buffers. found: those before this one, to which it is added."""
    from gkafka.skins import buffer_options  # rarely needed, and it loads a lot

    size = whole(where, value, low=-1)
    if size > 0:  # Java's -1 and librdkafka's 0 leave it to the system
        found[which] = size
    options = buffer_options(found.get("receive"), found.get("send"))
    return {"socket_options": tuple(options)} if options else {}


# -- all of them ------------------------------------------------------------------------------------------------------------------
def settle_login(given: Mapping[str, Any], client: dict[str, Any], passed: dict[str, str]) -> None:
    """Put what a login line of Java says into the options of the client, and names without effect into `passed`. given: all properties."""
    classes = [given[name] for name in CLASSES if isinstance(given.get(name), str)]
    if (mechanism := mechanism_of(client.get("sasl_mechanism"), *classes)) is not None:
        client["sasl_mechanism"] = mechanism
    if LOGIN in given:
        login = read_login(given[LOGIN], mechanism)
        twice = next((option for option, value in login.options.items() if client.get(option, value) != value), None)
        if twice is not None:
            raise ConfigurationError(f"{LOGIN} and {twice} differ in what {twice} is: leave one out")
        client.update(login.options)
        passed.update(dict.fromkeys((f"{name} in {LOGIN}" for name in login.passed), "the login modules of Java are not used"))


def check_stores(source: Source, given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for a key store of Java's, with the way to a PEM file."""
    for store in ("truststore", "keystore"):
        location, kind = f"ssl.{store}.location", str(given.get(f"ssl.{store}.type", "JKS")).strip().upper()
        if location in given and kind != "PEM":
            raise ConfigurationError(
                f"{source.where(location)}={given[location]!r}: {NO_STORE}, name that file, and set ssl.{store}.type=PEM"
            )
        if f"ssl.{store}.password" in given:
            raise ConfigurationError(
                f"{source.where(f'ssl.{store}.password')}: a PEM file has none; a key's pass phrase is ssl.key.password"
            )


def note_of(path: str, passed: Mapping[str, str]) -> str:
    """One line for what was passed over, by its reasons."""
    by_reason: dict[str, list[str]] = {}
    for name, why in passed.items():
        by_reason.setdefault(why, []).append(name)
    told = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
    return f"{path + ': ' if path else ''}no effect here: {told}"


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say of a name that is no property's."""
    if (inner := _within(name)) is not None:
        return f"unknown option; write it as {inner!r}"
    near = nearest(name, known)
    return f"unknown option; did you mean {near!r}?" if near else f"unknown option: leave it out; {page('options')} lists all"


def _within(name: str) -> str | None:
    """The property that a name has at its end, as those of variables and of frameworks have: KAFKA_BOOTSTRAP_SERVERS, spring.kafka.client-id."""
    parts = dotted(name).lower().split(".")
    ends = [".".join(parts[at:]) for at in range(4) if "kafka" in parts[:at] or (at == 0 and name.isupper())]
    return next((end for end in ends if is_known(end)), None)


@dataclasses.dataclass(frozen=True)
class Properties:
    """What the properties come to. hosts: "" if they name no brokers. client, producer, consumer: options of KafkaClient, get_producer() and
    get_consumer(). group: of get_consumer(), or None. notes: for the user, a line each. hosts_where: how an error names the property of the hosts."""

    hosts: str
    client: Mapping[str, Any] = dataclasses.field(repr=False)
    producer: Mapping[str, Any] = dataclasses.field(repr=False)
    consumer: Mapping[str, Any] = dataclasses.field(repr=False)
    group: str | None
    notes: tuple[str, ...]
    hosts_where: str = "hosts"

    def of_producer(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of get_producer(), with these properties for what they leave out."""
        return {**without(self.producer, options), **options}

    def of_consumer(self, options: Mapping[str, Any], topics: Any, group: Any) -> tuple[dict[str, Any], Any]:
        """The same of get_consumer(), without what has nothing to do for this consumer; and its group."""
        from gkafka.sharing import OF_GROUPS  # loaded by whoever consumes

        group = self.group if group is None else group
        both = {**self.consumer, **{canonical(name): value for name, value in options.items()}}
        idle: set[str] = set()
        if group is None or both.get("auto_commit") is False:
            idle |= {"auto_commit_interval_ms", *(["auto_commit"] if group is None else [])}
        if group is None or topics is None:
            idle |= set(OF_GROUPS)
        idle |= {"heartbeat_interval_ms", "assignors"} if both.get("group_protocol") == "consumer" else {"group_remote_assignor"}
        defaults = {option: value for option, value in self.consumer.items() if option not in idle}
        return {**without(defaults, options), **options}, group


def read_properties(given: Any) -> Properties:
    """Options of a client, its producers and its consumers. given: a file's path, as read_file() takes it, or {name: value}, where values may be
    texts, as in files, or what the options take; as hide_properties() leaves it.

    Raises ConfigurationError, and OSError for a file that cannot be read.
    """
    if isinstance(given, Secret):
        raise ConfigurationError(
            f"from_properties(): a text of {len(given)} characters is not the path of a file: give the path, or a mapping"
        )
    if isinstance(given, (str, os.PathLike)):
        given = read_file(os.fspath(given))
    if not isinstance(given, Source):
        raise ConfigurationError("from_properties(): must be the path of a file, or a mapping of names to values")
    return _Reading(given).result()


class _Reading:
    """The properties of one source on their way to options."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._all = source.of("", PRODUCER, CONSUMER)
        self._hosts = self._hosts_where = ""
        self._group: str | None = None
        self._buffers: dict[str, int] = {}
        self._passed: dict[str, str] = {}
        self._client: dict[str, Any] = {}
        self._said: dict[str, tuple[str, Any]] = {}
        self._records: dict[str, dict[str, Any]] = {PRODUCER: {}, CONSUMER: {}}

    def result(self) -> Properties:
        check_stores(self._source, self._all)
        for part, given in self._source.parts.items():
            for name, value in given.items():
                if not isinstance(name, str):
                    raise ConfigurationError(f"from_properties(): a name must be a text, not {type(name).__name__}")
                if name != LOGIN:
                    self._take(part, name, value)
        settle_login(self._all, self._client, self._passed)
        notes = self._source.notes + ((note_of(self._source.path, self._passed),) if self._passed else ())
        return Properties(
            self._hosts, self._client, self._records[PRODUCER], self._records[CONSUMER], self._group, notes, self._hosts_where
        )

    def _take(self, part: str, name: str, value: Any) -> None:
        where, option = self._source.where(name), canonical(name)
        if option in HOSTS:
            self._hosts, self._hosts_where = _name(where, value), where
        elif name in BUFFERS:
            self._client.update(buffers(self._buffers, BUFFERS[name], where, value))
        elif option == "exclude_internal_topics":
            self._keep_client(part, name, option, _truth(where, value))
        elif option == "group":
            self._group = _name(where, value)
        elif (why := no_effect(where, name, value, self._all)) is not None:
            self._passed.update({self._source.as_written(name): why} if why else {})
        else:
            self._take_option(part, where, name, option, value)

    def _take_option(self, part: str, where: str, name: str, option: str, value: Any) -> None:
        taken = False
        if _takes(ClientConfig, option, value):
            self._keep_client(part, name, option, typed(ClientConfig, option, where, value))
            taken = True
        own = "request_timeout_ms" if name == "request.timeout.ms" else option
        for role, config in ((PRODUCER, ProducerConfig), (CONSUMER, NativeConsumerConfig)):
            if _takes(config, own, value) and part in ("", role, *(() if _is_of_both(own) else (PRODUCER, CONSUMER))):
                self._records[role][own] = typed_in_unit(config, own, where, name, value)
                taken = True
        if not taken and option in OPTIONS:
            self._passed[self._source.as_written(name)] = "it is set in a program's code"
        elif not taken:
            raise ConfigurationError(f"{where}: {unknown(self._source.as_written(name), spellings())}")

    def _keep_client(self, part: str, name: str, option: str, value: Any) -> None:
        """An option of the one client: the sections of producers and consumers must agree on it."""
        before = self._said.get(option)
        if before is not None and before[0] and part and before[1] != value:
            raise ConfigurationError(
                f"{self._source.where(name)}: [{before[0]}] and [{part}] differ: make a client of each, of {self._source.path}:{before[0]} and of "
                f"{self._source.path}:{part}"
            )
        self._said[option] = part, value
        self._client[option] = value


def _is_of_both(option: str) -> bool:
    return option in fields_of(ProducerConfig) and option in fields_of(NativeConsumerConfig)


def _takes(config: type[Any], option: str, value: Any) -> bool:
    """Is it an option of this dataclass that can be given so?"""
    return is_from_text(config, option) if isinstance(value, str) else option in fields_of(config)


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = f"={value!r}" if isinstance(value, str) else ""
        raise ConfigurationError(f"{where}{shown}: must be a name, or leave it out")
    return value


def _joined(hosts: Any) -> Any:
    """A list of addresses, texts or bytes, as one text; all else as it is."""
    if not isinstance(hosts, (list, tuple)) or not all(isinstance(one, (str, bytes)) for one in hosts):
        return hosts
    return ",".join(one.decode(errors="replace") if isinstance(one, bytes) else str.__str__(one) for one in hosts)


def check_hosts(where: str, text: str, protocol: str | None) -> str:
    """The addresses as they are. Raises ConfigurationError, with the place where they stand, for what are none."""
    try:
        parse_hosts(text, protocol)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}{str(exc).removeprefix('hosts')}") from exc
    return text


def _truth(where: str, value: Any) -> bool:
    if _as_text(value).lower() not in ("true", "false"):
        raise ConfigurationError(f"{where}={value!r}: must be 'true' or 'false'")
    return _as_text(value).lower() == "true"


def without(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for options that are not given, by whatever spelling."""
    named = {canonical(name) for name in given}
    return {option: value for option, value in defaults.items() if option not in named}
