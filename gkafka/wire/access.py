"""Who may do what: ACLs. Who they are: SCRAM credentials."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, bytes_, int8, int16, int32, message, string

__all__ = [
    "AclCreation",
    "AclCreationResult",
    "AclDescription",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CredentialInfo",
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResource",
    "DescribeAclsResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
    "UserName",
]


# -- DescribeAcls ------------------------------------------------------------------------------------------------------
@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest(Message):
    """Those that match all of it; None matches any name. KIP-140; KIP-290 patterns (v1); KIP-482 (v2); KIP-373 users as resources (v3)."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription)


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse(Message):
    """ACLs by resource. KIP-290 patterns (v1); KIP-482 (v2); KIP-373 (v3)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


# -- CreateAcls --------------------------------------------------------------------------------------------------------
class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest(Message):
    """To the controller. KIP-140; KIP-290 patterns (v1); KIP-482 (v2); KIP-373 (v3)."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse(Message):
    """One result for each, in the order of the request. KIP-219 (v1); KIP-482 (v2); KIP-373 (v3)."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


# -- DeleteAcls --------------------------------------------------------------------------------------------------------
class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest(Message):
    """Delete what the filters match. KIP-140; KIP-290 patterns (v1); KIP-482 (v2); KIP-373 (v3)."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse(Message):
    """For each filter, in the order of the request, what it matched. KIP-290 patterns (v1); KIP-482 (v2); KIP-373 (v3)."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


# -- DescribeUserScramCredentials --------------------------------------------------------------------------------------
class UserName(Struct):
    name: str = string()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    """users: None for all. KIP-554."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    """Mechanisms and iterations of each user; nothing secret. KIP-554."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


# -- AlterUserScramCredentials -----------------------------------------------------------------------------------------
class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes | memoryview = bytes_()
    salted_password: bytes | memoryview = bytes_()


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    """To the controller. KIP-554.

    salted_password: PBKDF2 of the password (RFC 5802), by which one could log in: as secret as the password.
    """

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    """One result for each user. KIP-554."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
