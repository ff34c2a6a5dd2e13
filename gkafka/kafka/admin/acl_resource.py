"""What ACLs are made of (kafka.admin.acl_resource). The enumerations are the native ones: `gkafka.admin.enums`."""

from __future__ import annotations

from typing import Any

from gkafka.admin import Acl, AclFilter, ResourceType
from gkafka.admin import AclOperation as ACLOperation
from gkafka.admin import PatternType as ACLResourcePatternType
from gkafka.admin import Permission as ACLPermissionType
from gkafka.escaping import escaped
from gkafka.kafka.errors import IllegalArgumentError

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "acl_of",
    "filter_of",
    "native_acl",
]


class ResourcePatternFilter:
    """Which resources. resource_name: None for any. pattern_type: MATCH for whatever applies to the name, prefixes and "*" included."""

    def __init__(self, resource_type: ResourceType, resource_name: str | None, pattern_type: ACLResourcePatternType) -> None:
        self.resource_type, self.resource_name, self.pattern_type = resource_type, resource_name, pattern_type
        self.validate()

    def validate(self) -> None:
        """Raises IllegalArgumentError for what is no member of its enumeration."""
        _check("resource_type", self.resource_type, ResourceType)
        _check("pattern_type", self.pattern_type, ACLResourcePatternType)

    def _key(self) -> tuple[Any, ...]:
        return self.resource_type, self.resource_name, self.pattern_type

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, ResourcePatternFilter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        name = escaped(self.resource_name)
        return f"<ResourcePattern type={self.resource_type.name}, name={name}, pattern={self.pattern_type.name}>"


class ResourcePattern(ResourcePatternFilter):
    """The resources that an ACL is about."""

    def __init__(
        self, resource_type: ResourceType, resource_name: str, pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL
    ) -> None:
        super().__init__(resource_type, resource_name, pattern_type)

    def validate(self) -> None:
        """Raises IllegalArgumentError for what is no member of its enumeration, or is for filters."""
        super().validate()
        _check_single("resource_type", self.resource_type)
        _check_single("pattern_type", self.pattern_type)


class ACLFilter:
    """Which ACLs: all that is given must fit. principal, host: None for any."""

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal, self.host, self.operation = principal, host, operation
        self.permission_type, self.resource_pattern = permission_type, resource_pattern
        self.validate()

    def validate(self) -> None:
        """Raises IllegalArgumentError for what is of another kind than it must be."""
        _check("operation", self.operation, ACLOperation)
        _check("permission_type", self.permission_type, ACLPermissionType)
        _check("resource_pattern", self.resource_pattern, ResourcePatternFilter)

    def _key(self) -> tuple[Any, ...]:
        return self.principal, self.host, self.operation, self.permission_type, self.resource_pattern

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, ACLFilter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"<ACL principal={escaped(self.principal)}, resource={self.resource_pattern}, operation={self.operation.name}, "
            f"type={self.permission_type.name}, host={escaped(self.host)}>"
        )


class ACL(ACLFilter):
    """Who may, or may not, do what, from where. principal: "User:alice", "User:*" is everybody. host: "*" from anywhere."""

    def validate(self) -> None:
        """Raises IllegalArgumentError for what is of another kind than it must be, or is for filters."""
        super().validate()
        _check_single("operation", self.operation)
        _check_single("permission_type", self.permission_type)
        _check("resource_pattern", self.resource_pattern, ResourcePattern)


def _check(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise IllegalArgumentError(f"{name}={value!r}: must be a {kind.__name__}")


def _check_single(name: str, value: Any) -> None:
    if value.name in ("ANY", "MATCH"):
        raise IllegalArgumentError(f"{name}={value.name}: is for filters; here it must say which one")


def native_acl(acl: Any) -> Acl:
    """As `gkafka.admin` has it."""
    if not isinstance(acl, ACL):
        raise IllegalArgumentError(f"acls: {acl!r} must be an ACL")
    of = acl.resource_pattern
    name = of.resource_name or ""
    return Acl(of.resource_type, name, acl.principal or "", acl.operation, acl.permission_type, acl.host or "", of.pattern_type)


def filter_of(acl_filter: Any) -> AclFilter:
    """As `gkafka.admin` has it."""
    if not isinstance(acl_filter, ACLFilter):
        raise IllegalArgumentError(f"acl_filter={acl_filter!r}: must be an ACLFilter")
    f, of = acl_filter, acl_filter.resource_pattern
    return AclFilter(of.resource_type, of.resource_name, f.principal, f.operation, f.permission_type, f.host, of.pattern_type)


def acl_of(native: Acl) -> ACL:
    """As kafka-python has it."""
    pattern = ResourcePattern(native.resource_type, native.resource, native.pattern)
    return ACL(native.principal, native.host, native.operation, native.permission, pattern)
