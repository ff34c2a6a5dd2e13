"""Quotas of users, client ids and addresses: DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, boolean, float64, int8, int16, int32, message, string

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterableQuota",
    "AlteredQuota",
    "ComponentData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribedQuota",
    "EntityData",
    "OpData",
    "ValueData",
]


# -- DescribeClientQuotas ----------------------------------------------------------------------------------------------
class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    """KIP-546; KIP-482 (v1).

    match_type: 0 this name, 1 the default entity, 2 any that is named. strict: nothing that has further components.
    """

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class DescribedQuota(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    """entries: None with an error; an entity_name of None is the default entity. KIP-482 (v1)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuota] | None = array(DescribedQuota, nullable="0+")


# -- AlterClientQuotas -------------------------------------------------------------------------------------------------
class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterableQuota(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    """Set and remove quotas. KIP-546; KIP-482 (v1)."""

    entries: list[AlterableQuota] = array(AlterableQuota)
    validate_only: bool = boolean()


class AlteredQuota(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    """One result for each entity. KIP-482 (v1)."""

    throttle_time_ms: int = int32()
    entries: list[AlteredQuota] = array(AlteredQuota)
