"""Kafka's numbers that administrators name: kinds of resources, patterns, operations, mechanisms."""

from __future__ import annotations

import enum
from typing import TypeVar

__all__ = [
    "AclOperation",
    "ConfigResourceType",
    "ConfigSource",
    "PatternType",
    "Permission",
    "ResourceType",
    "ScramMechanism",
    "known",
    "operations_of",
]

E = TypeVar("E", bound=enum.IntEnum)
NOT_TOLD = -(2**31)


class ResourceType(enum.IntEnum):
    """What an ACL is about. Source: org.apache.kafka.common.resource.ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How an ACL's name is meant. ANY and MATCH (whatever applies to the name) are for filters. Source: KIP-290."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """What is allowed or denied. Source: org.apache.kafka.common.acl.AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ConfigResourceType(enum.IntEnum):
    """What has a configuration. Source: org.apache.kafka.common.config.ConfigResource."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Where a value comes from. UNKNOWN: the broker does not tell (before 1.1). Source: DescribeConfigsResponse.ConfigSource."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ScramMechanism(enum.IntEnum):
    """Source: KIP-554."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations in a bit field (KIP-430), None where the broker did not tell."""
    return None if bits == NOT_TOLD else frozenset(op for op in AclOperation if op > AclOperation.ANY and bits >> op & 1)


def known(kind: type[E], number: int) -> E:
    """The member, UNKNOWN for a number that is newer than this client."""
    return kind(number) if number in kind._value2member_map_ else kind(0)
