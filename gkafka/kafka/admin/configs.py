"""KafkaAdminClient's calls about configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

from gkafka import admin as native
from gkafka.admin.arguments import check_config_value
from gkafka.admin.changes import hide_configs
from gkafka.exceptions import UnsupportedVersion
from gkafka.kafka.admin.calls import Calls, member, outcomes_of
from gkafka.kafka.admin.config_resource import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigSourceType
from gkafka.kafka.admin.results import ResourceKind, ValuesByKind
from gkafka.kafka.errors import IllegalArgumentError
from gkafka.unseen import refusal, told

__all__ = ["ConfigCalls"]

Changes = dict[native.ConfigResource, dict[str, Any]]
Entries = dict[str, native.ConfigEntry]


class ConfigCalls(Calls):
    """The calls about configurations. Values are told as {type: {name: {key: ...}}}, the type as a word: "topic", "broker"."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = "modified",
    ) -> ValuesByKind:
        """The values of resources. A resource's configs: only these; None for all. config_filter: MODIFIED, DYNAMIC, ALL, DEFAULT, STATIC.
        The keys of what is returned have 2.x's `resources`, with all values.

        Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError, ...
        """
        which = member("config_filter", config_filter, ConfigFilterType)
        resources = _checked(config_resources)
        shown, kinds = ValuesByKind(), dict[str, ResourceKind]()
        for resource, entries in zip(resources, self._entries(resources, include_synonyms), strict=True):
            word = resource.resource_type.name.lower()
            kind = kinds.setdefault(word, ResourceKind(word))
            kind.resources.append(_row(resource, entries))
            shown.setdefault(kind, {})[str(resource.name)] = {
                name: _shown(entry)
                for name, entry in entries.items()
                if (resource.configs is None or name in resource.configs) and _kept(which, entry)
            }
        return shown

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change values: a resource's configs are {key: value} or {key: (operation, value)}, with an AlterConfigOp or its name.

        raise_on_unknown: IllegalArgumentError (a ValueError) for a key that the resource has not. incremental: None for what brokers can: before
        Kafka 2.3 all values of a resource are sent, so that two changes at the same time may cross. Returns "OK" or the error's text for each.
        """
        resources = _checked(config_resources)
        changes = {_native(resource): _changes(resource) for resource in resources}
        if raise_on_unknown:
            self._check_known(resources)
        return self._alter_all(changes, validate_only, incremental)

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Put values back to their defaults: those that a resource's configs name, without names all of them. The rest is as of alter_configs()."""
        resources = _checked(config_resources)
        if raise_on_unknown:
            self._check_known(resources)
        changes: Changes = {}
        for resource, entries in zip(resources, self._entries(resources), strict=True):
            names = resource.configs or [name for name, entry in entries.items() if _kept(ConfigFilterType.MODIFIED, entry)]
            changes[_native(resource)] = dict.fromkeys(names)
        return self._alter_all(changes, validate_only, incremental)

    def _alter_all(self, changes: Changes, validate_only: bool, incremental: bool | None) -> dict[str, dict[str, str]]:
        if incremental is False:
            return self._replace(changes, validate_only)
        try:
            told = outcomes_of(self._admin.alter_configs, changes, validate_only=validate_only, timeout=self._within())
        except UnsupportedVersion:
            if incremental:
                raise
            return self._replace(changes, validate_only)
        return _results(changes, told)

    def _replace(self, changes: Changes, validate_only: bool) -> dict[str, dict[str, str]]:
        """Send all that is set already along: what is left out would go back to its default."""
        lists = [key for of in changes.values() for key, value in of.items() if isinstance(value, (native.Append, native.Subtract))]
        if lists:
            raise IllegalArgumentError(
                f"configs: {lists[0]!r} can only be SET: brokers add to lists since Kafka 2.3, with incremental requests"
            )
        described = self._admin.describe_configs(list(changes), timeout=self._within())
        whole = {resource: _whole(described[resource], of) for resource, of in changes.items()}
        return _results(changes, outcomes_of(self._admin.replace_configs, whole, validate_only=validate_only, timeout=self._within()))

    def _entries(self, resources: list[ConfigResource], synonyms: bool = False) -> list[Entries]:
        told = outcomes_of(self._admin.describe_configs, list(map(_native, resources)), synonyms=synonyms, timeout=self._within())
        told.raise_first()
        return [told.results[_native(resource)] for resource in resources]

    def _check_known(self, resources: list[ConfigResource]) -> None:
        for resource, entries in zip(resources, self._entries(resources), strict=True):
            there = {name for name, entry in entries.items() if not entry.is_read_only}
            unknown = sorted(set(resource.configs or ()) - there)
            if unknown:
                what = f"{resource.resource_type.name.lower()} {resource.name!r}"
                raise IllegalArgumentError(f"{what} has no value {', '.join(unknown)} that could be altered")


def _checked(given: Any) -> list[ConfigResource]:
    if isinstance(given, ConfigResource) or not hasattr(given, "__iter__"):
        raise IllegalArgumentError(refusal("config_resources", given, "must be a list, also for one"))
    resources = list(given)
    for one in resources:
        if not isinstance(one, ConfigResource):
            raise IllegalArgumentError(f"config_resources: each must be a ConfigResource, not {type(one).__name__}")
        if not isinstance(one.configs, (NoneType, Mapping, list, tuple, set, frozenset)):
            raise IllegalArgumentError(f"{one}: {told('configs', one.configs)}: must be a list of names, or a dict of values by name")
    return resources


def _native(resource: ConfigResource) -> native.ConfigResource:
    return native.ConfigResource(resource.resource_type, str(resource.name))


def _changes(resource: ConfigResource) -> dict[str, Any]:
    if not isinstance(resource.configs, Mapping):
        raise IllegalArgumentError(f"{resource}: {told('configs', resource.configs)}: must be a dict of values by name")
    return {key: _change(value) for key, value in hide_configs(resource.configs).items()}


def _change(value: Any) -> Any:
    operation, value = value if isinstance(value, tuple) and len(value) == 2 else (AlterConfigOp.SET, value)
    what = member("operation", operation, AlterConfigOp)
    if what is AlterConfigOp.DELETE:
        return None
    made = {AlterConfigOp.APPEND: native.Append, AlterConfigOp.SUBTRACT: native.Subtract}.get(what)
    if made is not None:
        return made(check_config_value("configs", value))
    if value is None:
        raise IllegalArgumentError("configs: a value of None: give (AlterConfigOp.DELETE, None) to put it back to its default")
    return value


def _whole(entries: Entries, changes: dict[str, Any]) -> dict[str, Any]:
    kept = {name: entry.value for name, entry in entries.items() if _kept(ConfigFilterType.MODIFIED, entry) and entry.value is not None}
    return {name: value for name, value in {**kept, **changes}.items() if value is not None}


def _source(entry: native.ConfigEntry) -> ConfigSourceType:
    if entry.source is native.ConfigSource.UNKNOWN and entry.is_default:  # brokers before 1.1 say no more
        return ConfigSourceType.DEFAULT_CONFIG
    return ConfigSourceType(entry.source)


def _kept(which: ConfigFilterType, entry: native.ConfigEntry) -> bool:
    return which.keeps(_source(entry), entry.is_read_only)


def _shown(entry: native.ConfigEntry) -> dict[str, Any]:
    return {
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": _source(entry).name,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [{"name": s.name, "value": s.value, "source": ConfigSourceType(s.source).name} for s in entry.synonyms],
        "config_type": entry.type.upper(),
        "documentation": entry.documentation,
    }


def _row(resource: ConfigResource, entries: Entries) -> tuple[Any, ...]:
    values = [
        (e.name, e.value, e.is_read_only, int(_source(e)), e.is_sensitive, [(s.name, s.value, int(s.source)) for s in e.synonyms])
        for e in entries.values()
        if resource.configs is None or e.name in resource.configs
    ]
    return 0, None, int(resource.resource_type), str(resource.name), values


def _results(changes: Changes, told: Any) -> dict[str, dict[str, str]]:
    shown: dict[str, dict[str, str]] = {}
    for resource in changes:
        error = told.errors.get(resource)
        shown.setdefault(resource.type.name.lower(), {})[resource.name] = "OK" if error is None else str(error)
    return shown
