"""Quotas of users, client ids and addresses: what each may use of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from gkafka.admin.arguments import items_of
from gkafka.admin.requests import Subject
from gkafka.checks import check_mapping, check_name
from gkafka.exceptions import ConfigurationError, KafkaException, error_for
from gkafka.wire.quotas import (
    AlterableQuota,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

__all__ = ["Quota", "QuotasAdmin"]

ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, ANY = 0, 1, 2
EXAMPLE = '{"user": "alice", "client-id": None}'
Entity = tuple[tuple[str, str | None], ...]


class Quota(NamedTuple):
    """entity: {"user": "alice", "client-id": None}, None for the default of the kind. values: {"producer_byte_rate": 1048576.0, ...}."""

    entity: dict[str, str | None]
    values: dict[str, float]


class QuotasAdmin(Subject):
    """The calls about quotas."""

    def describe_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False, timeout: float | None = None
    ) -> list[Quota]:
        """Quotas of what matches all that entity names: a name, None for the default, "*" for whatever is named. None: all quotas.

        strict: only of entities that have these kinds and no further one.
        """
        components = [_component(kind, name) for kind, name in _entity(entity or {}, empty=entity is None)]
        deadline = self._requests.begin(timeout)
        request = DescribeClientQuotasRequest(components=components, strict=strict)

        def attempt(_: list[str]) -> dict[str, list[Quota]]:
            response, broker = self._requests.anyone(request, deadline)
            error = error_for(response.error_code, response.error_message, broker=broker, api="DescribeClientQuotas")
            if error is not None:
                raise error
            return {"": [_quota(entry) for entry in response.entries or ()]}

        return self._requests.settle("describing quotas", [""], attempt, deadline)[""]

    def alter_quotas(
        self,
        changes: Iterable[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set quotas, or remove those whose value is None: [({"user": "alice"}, {"producer_byte_rate": 1048576})]. Item errors: InvalidRequest, ..."""
        wanted: dict[Entity, list[OpData]] = {}
        for change in items_of("changes", changes):
            if not isinstance(change, tuple) or len(change) != 2:
                raise ConfigurationError(
                    f'changes: {change!r} must be (entity, values), such as ({EXAMPLE}, {{"producer_byte_rate": 1048576}})'
                )
            values = check_mapping("values", change[1], '{"producer_byte_rate": 1048576}')
            wanted[_entity(change[0])] = [_operation(key, value) for key, value in values.items()]
        deadline = self._requests.begin(timeout)

        def attempt(left: list[Entity]) -> dict[Entity, KafkaException | None]:
            entries = [
                AlterableQuota(entity=[EntityData(entity_type=k, entity_name=n) for k, n in entity], ops=wanted[entity]) for entity in left
            ]
            response, controller = self._requests.controller(
                AlterClientQuotasRequest(entries=entries, validate_only=validate_only), deadline
            )
            return {
                tuple(sorted(((e.entity_type, e.entity_name) for e in entry.entity), key=_order)): error_for(
                    entry.error_code, entry.error_message, broker=controller, api="AlterClientQuotas"
                )
                for entry in response.entries
            }

        self._requests.settle("changing quotas", wanted, attempt, deadline)


def _order(part: tuple[str, str | None]) -> str:
    return part[0]


def _entity(given: Any, *, empty: bool = False) -> Entity:
    parts: list[tuple[str, str | None]] = []
    for kind, name in check_mapping("entity", given, EXAMPLE).items():
        if kind not in ENTITY_TYPES:
            raise ConfigurationError(f"entity: {kind!r} must be one of {', '.join(ENTITY_TYPES)}")
        parts.append((kind, None if name is None else check_name(kind, name)))
    if not parts and not empty:
        raise ConfigurationError(f"entity={given!r}: must name somebody, such as {EXAMPLE}")
    return tuple(sorted(parts, key=_order))


def _component(kind: str, name: str | None) -> ComponentData:
    match = DEFAULT if name is None else ANY if name == "*" else EXACT
    return ComponentData(entity_type=kind, match_type=match, match=name if match == EXACT else None)


def _operation(key: Any, value: Any) -> OpData:
    name = check_name("values", key)
    if value is None:
        return OpData(key=name, remove=True)
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value) or value <= 0:
        raise ConfigurationError(f"values[{name!r}]={value!r}: must be a number greater than 0, or None to remove it")
    return OpData(key=name, value=float(value))


def _quota(entry: Any) -> Quota:
    return Quota({e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values})
