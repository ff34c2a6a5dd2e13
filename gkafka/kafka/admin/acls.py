"""KafkaAdminClient's calls about ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gkafka.exceptions import KafkaException
from gkafka.kafka.admin.acl_resource import ACL, ACLFilter, acl_of, filter_of, native_acl
from gkafka.kafka.admin.calls import Calls, class_of, outcomes_of
from gkafka.kafka.errors import NoError

__all__ = ["AclCalls"]


class AclCalls(Calls):
    """The calls about ACLs. Without an authorizer brokers have none: SecurityDisabledError."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[KafkaException]]:
        """The ACLs that fit, and NoError, which newer versions keep there for older programs. Raises SecurityDisabledError, ..."""
        return [acl_of(one) for one in self._admin.list_acls(filter_of(acl_filter), timeout=self._within())], NoError

    def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """Add ACLs. Returns {"succeeded": ACLs, "failed": the classes of errors}."""
        wanted = list(acls)
        natives = [native_acl(one) for one in wanted]
        told = outcomes_of(self._admin.create_acls, natives, timeout=self._within())
        return {
            "succeeded": [acl for acl, native in zip(wanted, natives, strict=True) if native not in told.errors],
            "failed": [class_of(told.errors[native]) for native in natives if native in told.errors],
        }

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[tuple[ACLFilter, list[ACL], type[KafkaException]]]:
        """Delete the ACLs that fit. Returns (filter, what was deleted, NoError or the class of an error) for each filter."""
        deleted = []
        for acl_filter, native in [(one, filter_of(one)) for one in acl_filters]:
            told = outcomes_of(self._delete, native)
            deleted.append(
                (acl_filter, [acl_of(acl) for acl in told.results.get(native, ())], class_of(next(iter(told.errors.values()), None)))
            )
        return deleted

    def _delete(self, native: Any) -> dict[Any, Any]:
        return {native: self._admin.delete_acls([native], dry_run=False, timeout=self._within())}
