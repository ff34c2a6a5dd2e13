"""What has a configuration, and what is said of its values (kafka.admin.config_resource)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from gkafka.admin import ConfigResourceType
from gkafka.admin.changes import hide_names
from gkafka.kafka.admin.calls import member
from gkafka.unseen import hide_options

__all__ = ["AlterConfigOp", "ConfigFilterType", "ConfigResource", "ConfigResourceType", "ConfigSourceType", "ConfigType"]


class ConfigResource:
    """resource_type: a ConfigResourceType or its name. name: a topic's, a broker's id, a group's. configs: names, or values by name to alter."""

    def __init__(
        self, resource_type: ConfigResourceType | str, name: str, configs: Mapping[str, Any] | Iterable[str] | None = None
    ) -> None:
        resource_type, name, configs = hide_options(resource_type), hide_options(name), hide_names(configs)
        self.resource_type: ConfigResourceType = member("resource_type", resource_type, ConfigResourceType)
        self.name = name
        self.configs = configs

    @property
    def configs(self) -> Any:
        """As they were given, with Secrets for what may be one."""
        return self._configs

    @configs.setter
    def configs(self, given: Any) -> None:
        self._configs = hide_names(given)

    def __str__(self) -> str:
        return f"ConfigResource {self.name}={self.resource_type}"

    def __repr__(self) -> str:
        if not hasattr(self, "_configs"):  # where a traceback shows what could not be made
            return "<ConfigResource that was not made>"
        return f"ConfigResource({self.resource_type}, {self.name}, {hide_names(self.configs)})"


class AlterConfigOp(enum.IntEnum):
    """What is done to a value. DELETE: back to its default. APPEND, SUBTRACT: of lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSourceType(enum.IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    def is_modified(self) -> bool:
        """Did somebody set it for this very resource?"""
        return self not in (self.DYNAMIC_DEFAULT_BROKER_CONFIG, self.STATIC_BROKER_CONFIG, self.DEFAULT_CONFIG)


class ConfigFilterType(enum.IntEnum):
    """Which values are told. MODIFIED: set for the resource itself. DYNAMIC: those that can be altered."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4

    def keeps(self, source: ConfigSourceType, read_only: bool) -> bool:
        """Is such a value told?"""
        if self is ConfigFilterType.DYNAMIC:
            return not read_only
        if self is ConfigFilterType.STATIC:
            return source is ConfigSourceType.STATIC_BROKER_CONFIG
        return self is ConfigFilterType.ALL or source.is_modified() == (self is ConfigFilterType.MODIFIED)


class ConfigType(enum.IntEnum):
    """Types of values."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9
