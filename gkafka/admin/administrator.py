"""The administrator: all subjects in one."""

from __future__ import annotations

from gkafka.admin.acls import AclsAdmin
from gkafka.admin.clusters import ClusterAdmin
from gkafka.admin.configs import ConfigsAdmin
from gkafka.admin.offsets import OffsetsAdmin
from gkafka.admin.placement import PlacementAdmin
from gkafka.admin.quotas import QuotasAdmin
from gkafka.admin.transactions import TransactionsAdmin
from gkafka.admin.users import UsersAdmin

__all__ = ["Admin"]


class Admin(OffsetsAdmin, ConfigsAdmin, QuotasAdmin, ClusterAdmin, PlacementAdmin, AclsAdmin, UsersAdmin, TransactionsAdmin):
    """A client's administrator, on the client's connections: it has nothing of its own to close. Made by `client.admin()`."""
