"""Configurations of topics, brokers, groups: described, changed one value at a time, or replaced whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gkafka.admin.arguments import check_config_value, check_configs, check_enum, check_names, items_of
from gkafka.admin.changes import Append, Subtract, hide_changes
from gkafka.admin.enums import ConfigResourceType, ConfigSource, known
from gkafka.admin.requests import RESOURCES, Subject
from gkafka.checks import check_count, check_mapping, check_name, check_text, check_topic_name
from gkafka.exceptions import ConfigurationError, KafkaException, error_for
from gkafka.wire.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

if TYPE_CHECKING:
    from gkafka.broker import Broker

__all__ = ["ConfigEntry", "ConfigResource", "ConfigSynonym", "ConfigsAdmin"]

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
VALUE_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


class ConfigResource(NamedTuple):
    """What has a configuration. name: a topic's, a broker's id as text ("" for the default of all brokers), a group's."""

    type: ConfigResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """Where else a value could come from, the source that counts first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One value. value: None for secrets. is_default: nobody set it anywhere. type: "int", "list", ... ("unknown" before 2.6)."""

    name: str
    value: str | None
    source: ConfigSource
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    type: str
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


class ConfigsAdmin(Subject):
    """The calls about configurations. A resource is a ConfigResource, or a pair like it: ("topic", "orders"), ("broker", "1")."""

    def describe_configs(
        self,
        resources: Iterable[ConfigResource | tuple[str, str]],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The values of each resource by name. names: only these. Item errors: UnknownTopicOrPartition, TopicAuthorizationFailed, ..."""
        asked = [_resource(one) for one in items_of("resources", resources)]
        keys = None if names is None else check_names("names", names)
        deadline = self._requests.begin(timeout)

        def request_of(mine: list[ConfigResource]) -> DescribeConfigsRequest:
            wanted = [DescribeConfigsResource(resource_type=r.type, resource_name=r.name, configuration_keys=keys) for r in mine]
            return DescribeConfigsRequest(resources=wanted, include_synonyms=synonyms, include_documentation=documentation)

        def read(response: Any, mine: list[ConfigResource], broker: str) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaException]:
            found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaException] = {}
            for result in response.results:
                resource = ConfigResource(known(ConfigResourceType, result.resource_type), result.resource_name)
                error = _error(result, resource, broker, "DescribeConfigs")
                found[resource] = {c.name: _entry(c) for c in result.configs} if error is None else error
            return found

        def attempt(left: list[ConfigResource]) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaException]:
            return self._requests.by_broker(left, self._whom_to_ask(left, deadline), request_of, read, deadline, most=RESOURCES)

        return self._requests.settle("describing configurations", asked, attempt, deadline)

    def alter_configs(
        self,
        changes: Mapping[ConfigResource | tuple[str, str], Mapping[str, Any]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change what is named and nothing else (Kafka 2.3 and newer): {("topic", "orders"): {"retention.ms": "60000"}}.

        A value of None goes back to the default; Append("a,b") and Subtract("a,b") change lists. validate_only: only say whether it could be.
        Item errors: InvalidConfig, InvalidRequest, UnknownTopicOrPartition, PolicyViolation, ...
        """
        changes = hide_changes(changes)  # from here on no variable shows a password, nor does a request
        wanted = {
            _resource(resource): [_change(key, value) for key, value in check_mapping("changes", of, '{"retention.ms": "60000"}').items()]
            for resource, of in check_mapping("changes", changes, '{("topic", "orders"): {"retention.ms": "60000"}}').items()
        }

        def request_of(mine: list[ConfigResource]) -> IncrementalAlterConfigsRequest:
            resources = [IncrementalAlterConfigsResource(resource_type=r.type, resource_name=r.name, configs=wanted[r]) for r in mine]
            return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)

        self._alter_all("changing configurations", list(wanted), request_of, timeout)

    def replace_configs(
        self,
        configs: Mapping[ConfigResource | tuple[str, str], Mapping[str, Any]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Give resources these values and no others: all that is not named goes back to its default. The one way before Kafka 2.3.

        Errors as of alter_configs().
        """
        configs = hide_changes(configs)
        wanted = {
            _resource(resource): [AlterableConfig(name=key, value=value) for key, value in check_configs("configs", of).items()]
            for resource, of in check_mapping("configs", configs, '{("topic", "orders"): {"retention.ms": "60000"}}').items()
        }

        def request_of(mine: list[ConfigResource]) -> AlterConfigsRequest:
            resources = [AlterConfigsResource(resource_type=r.type, resource_name=r.name, configs=wanted[r]) for r in mine]
            return AlterConfigsRequest(resources=resources, validate_only=validate_only)

        self._alter_all("replacing configurations", list(wanted), request_of, timeout)

    def _alter_all(self, what: str, resources: list[ConfigResource], request_of: Any, timeout: float | None) -> None:
        deadline = self._requests.begin(timeout)

        def read(response: Any, mine: list[ConfigResource], broker: str) -> dict[ConfigResource, KafkaException | None]:
            answers = ((ConfigResource(known(ConfigResourceType, r.resource_type), r.resource_name), r) for r in response.responses)
            return {resource: _error(r, resource, broker, "AlterConfigs") for resource, r in answers}

        def attempt(left: list[ConfigResource]) -> dict[ConfigResource, KafkaException | None]:
            return self._requests.by_broker(left, self._whom_to_ask(left, deadline), request_of, read, deadline)

        self._requests.settle(what, resources, attempt, deadline)

    def _whom_to_ask(self, resources: list[ConfigResource], deadline: float) -> dict[ConfigResource, Broker | KafkaException]:
        """A broker's own configuration is with that broker, all other with any of them."""
        brokers = self._requests.brokers(deadline)
        anyone = self._requests.some_broker()
        places: dict[ConfigResource, Broker | KafkaException] = {}
        for resource in resources:
            if resource.type not in OF_ONE_BROKER or not resource.name:
                places[resource] = anyone
            else:
                there = ", ".join(map(str, sorted(brokers)))
                missing = ConfigurationError(f"broker {resource.name} is not in the cluster, which has {there}")
                places[resource] = brokers.get(int(resource.name), missing)
        return places


def _resource(given: Any) -> ConfigResource:
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigurationError(f'resource={given!r}: must be a ConfigResource, or (type, name) such as ("topic", "orders")')
    kind = check_enum("resource", given[0], ConfigResourceType)
    if kind is ConfigResourceType.TOPIC:
        return ConfigResource(kind, check_topic_name(given[1]))
    if kind in OF_ONE_BROKER:
        name = check_text("broker", str(given[1]) if isinstance(given[1], int) else given[1])
        if name or kind is ConfigResourceType.BROKER_LOGGER:
            name = str(check_count("broker", int(name) if name.isdecimal() and name.isascii() else name, low=0))
        return ConfigResource(kind, name)
    return ConfigResource(kind, check_name("resource", given[1]))


def _change(key: Any, value: Any) -> IncrementalAlterableConfig:
    name = check_name("changes", key)
    if value is None:
        return IncrementalAlterableConfig(name=name, config_operation=DELETE, value=None)
    operation = APPEND if isinstance(value, Append) else SUBTRACT if isinstance(value, Subtract) else SET
    return IncrementalAlterableConfig(name=name, config_operation=operation, value=check_config_value(f"changes[{name!r}]", value))


def _error(result: Any, resource: ConfigResource, broker: str, api: str) -> KafkaException | None:
    topic = resource.name if resource.type is ConfigResourceType.TOPIC else None
    return error_for(result.error_code, result.error_message, topic=topic, broker=broker, api=api)


def _entry(config: Any) -> ConfigEntry:
    source = known(ConfigSource, max(0, config.config_source))
    return ConfigEntry(
        config.name,
        config.value,
        source,
        config.is_default if source is ConfigSource.UNKNOWN else source is ConfigSource.DEFAULT,
        config.read_only,
        config.is_sensitive,
        VALUE_TYPES[config.config_type] if 0 <= config.config_type < len(VALUE_TYPES) else "unknown",
        tuple(ConfigSynonym(s.name, s.value, known(ConfigSource, max(0, s.source))) for s in config.synonyms),
        config.documentation,
    )
