"""ACLs: who may do what. Brokers have them only with an authorizer; without one every call raises SecurityDisabled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.admin.arguments import check_enum, items_of
from gkafka.admin.enums import AclOperation, PatternType, Permission, ResourceType, known
from gkafka.admin.requests import Subject, parts_of
from gkafka.checks import check_name
from gkafka.exceptions import ConfigurationError, KafkaException, error_for
from gkafka.wire.access import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest, DescribeAclsRequest

__all__ = ["Acl", "AclFilter", "AclsAdmin"]

CLUSTER_NAME = "kafka-cluster"
"""The one resource of the kind CLUSTER."""


class Acl(NamedTuple):
    """Who (principal, "User:alice"; "User:*" is everybody) may, or may not, do an operation on a resource from a host ("*" from anywhere).

    The names of members are taken for them: "topic", "read", "allow", "prefixed".
    """

    resource_type: ResourceType
    resource: str
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    host: str = "*"
    pattern: PatternType = PatternType.LITERAL


class AclFilter(NamedTuple):
    """Which ACLs: all that is given must fit. PatternType.MATCH: whatever applies to the resource, prefixes and "*" included."""

    resource_type: ResourceType = ResourceType.ANY
    resource: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
    host: str | None = None
    pattern: PatternType = PatternType.ANY


class AclsAdmin(Subject):
    """The calls about ACLs."""

    def list_acls(self, which: AclFilter | None = None, *, timeout: float | None = None) -> list[Acl]:
        """The ACLs that fit, sorted. None: all. Raises SecurityDisabled, ClusterAuthorizationFailed."""
        asked = _filter(AclFilter() if which is None else which)
        request = DescribeAclsRequest(**_filter_fields(asked))
        deadline = self._requests.begin(timeout)

        def attempt(_: list[str]) -> dict[str, list[Acl]]:
            response, broker = self._requests.anyone(request, deadline)
            error = error_for(response.error_code, response.error_message, broker=broker, api="DescribeAcls")
            if error is not None:
                raise error
            return {"": sorted(_told(r.resource_type, r.resource_name, r.pattern_type, a) for r in response.resources for a in r.acls)}

        return self._requests.settle("listing ACLs", [""], attempt, deadline)[""]

    def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = None) -> None:
        """Add ACLs; one that is there already stays. Item errors: SecurityDisabled, InvalidRequest, ClusterAuthorizationFailed."""
        wanted = [_acl(one) for one in items_of("acls", acls)]
        deadline = self._requests.begin(timeout)

        def attempt(left: list[Acl]) -> dict[Acl, KafkaException | None]:
            response, controller = self._requests.controller(CreateAclsRequest(creations=[_creation(acl) for acl in left]), deadline)
            errors = [error_for(r.error_code, r.error_message, broker=controller, api="CreateAcls") for r in response.results]
            return dict(zip(left, errors, strict=False))

        self._requests.settle("creating ACLs", wanted, attempt, deadline)

    def delete_acls(self, filters: Iterable[AclFilter | Acl], *, dry_run: bool = True, timeout: float | None = None) -> list[Acl]:
        """The ACLs that fit one of the filters; dry_run=False deletes them. An Acl fits itself alone.

        Returns what would be, or was, deleted. Item errors, by filter, or by Acl where a single one was not deleted: SecurityDisabled,
        ClusterAuthorizationFailed, ... `results` of an AdminError: of each filter that was answered the ACLs that were deleted.
        """
        wanted = [_filter(AclFilter(*one) if isinstance(one, Acl) else one) for one in items_of("filters", filters)]
        deadline = self._requests.begin(timeout)
        if dry_run:
            return sorted({acl for one in wanted for acl in self.list_acls(one, timeout=self._requests.left(deadline))})

        def attempt(left: list[AclFilter]) -> dict[AclFilter, dict[Acl, KafkaException | None] | KafkaException]:
            response, controller = self._requests.controller(
                DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(one)) for one in left]), deadline
            )
            return {one: _deleted(result, controller) for one, result in zip(left, response.filter_results, strict=False)}

        answered, errors = parts_of(lambda: self._requests.settle("deleting ACLs", wanted, attempt, deadline))
        failed: dict[Any, KafkaException] = dict(errors)
        gone: dict[Any, list[Acl]] = {}
        for one, acls in answered.items():
            failed |= {acl: error for acl, error in acls.items() if error is not None}
            deleted = [acl for acl, error in acls.items() if error is None]
            if deleted or not acls:
                gone[one] = deleted
        self._requests.all_or_error("deleting ACLs", failed, gone)
        return sorted({acl for acls in gone.values() for acl in acls})


def _enums(given: Any) -> dict[str, Any]:
    return {
        "resource_type": check_enum("resource_type", given.resource_type, ResourceType),
        "operation": check_enum("operation", given.operation, AclOperation),
        "permission": check_enum("permission", given.permission, Permission),
        "pattern": check_enum("pattern", given.pattern, PatternType),
    }


def _acl(given: Any) -> Acl:
    if not isinstance(given, Acl):
        raise ConfigurationError(f"acls: {given!r} must be an Acl")
    enums = _enums(given)
    for name, member in enums.items():
        if member.name in ("ANY", "MATCH", "UNKNOWN"):
            raise ConfigurationError(f"{name}={member.name}: is for filters; an Acl says which one")
    if enums["resource_type"] is ResourceType.CLUSTER and given.resource != CLUSTER_NAME:
        raise ConfigurationError(f"resource={given.resource!r}: the cluster's name is {CLUSTER_NAME!r}")
    names: dict[str, Any] = {"resource": check_name("resource", given.resource), "host": check_name("host", given.host)}
    return given._replace(**enums, **names, principal=_principal(given.principal))


def _filter(given: Any) -> AclFilter:
    if not isinstance(given, AclFilter):
        raise ConfigurationError(f"filters: {given!r} must be an AclFilter or an Acl")
    names: dict[str, Any] = {
        name: None if (value := getattr(given, name)) is None else check_name(name, value) for name in ("resource", "principal", "host")
    }
    return given._replace(**(_enums(given) | names))


def _principal(given: Any) -> str:
    name = check_name("principal", given)
    if ":" not in name:
        raise ConfigurationError(f'principal={name!r}: must have its type, such as "User:{name}"')
    return name


def _creation(acl: Any) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter_fields(asked: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": asked.resource_type,
        "resource_name_filter": asked.resource,
        "pattern_type_filter": asked.pattern,
        "principal_filter": asked.principal,
        "host_filter": asked.host,
        "operation": asked.operation,
        "permission_type": asked.permission,
    }


def _deleted(result: Any, broker: str) -> dict[Acl, KafkaException | None] | KafkaException:
    """The ACLs that fit a filter, and why one of them was not deleted."""
    about = {"broker": broker, "api": "DeleteAcls"}
    return error_for(result.error_code, result.error_message, **about) or {
        _told(a.resource_type, a.resource_name, a.pattern_type, a): error_for(a.error_code, a.error_message, **about)
        for a in result.matching_acls
    }


def _told(kind: int, name: str, pattern: int, acl: Any) -> Acl:
    return Acl(
        known(ResourceType, kind),
        name,
        acl.principal,
        known(AclOperation, acl.operation),
        known(Permission, acl.permission_type),
        acl.host,
        known(PatternType, pattern),
    )
