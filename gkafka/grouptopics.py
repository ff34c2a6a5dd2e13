"""The topics that the leader of a classic group divides."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gkafka.core.assignors import Topics
from gkafka.exceptions import ClientClosedError, KafkaException
from gkafka.logs import get_logger

if TYPE_CHECKING:
    from gkafka.cluster import Cluster

__all__ = ["GroupTopics"]

log = get_logger(__name__)

TOPICS_S = 10.0
"""How long the leader looks for the partitions of a topic that others subscribed to; what is not
known by then is nobody's in this generation."""
AGAIN_S = 0.5
"""The same for topics that were not there the last time: the whole group stands still meanwhile."""


class GroupTopics:
    """What a leader knows of the topics that its group reads, which may be other members' alone."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster, self._group = cluster, group
        self._divided: dict[str, int] = {}  # how many partitions each topic had
        self._absent: set[str] = set()  # topics that were not there

    @property
    def is_outdated(self) -> bool:
        """Has a topic another number of partitions than when it was divided?"""
        known = {name: self._cluster.metadata.topic(name) for name in self._divided}
        return any(info is not None and len(info.partitions) != self._divided.get(name) for name, info in known.items())

    def know_absent(self, names: Iterable[str]) -> None:
        """Note that these topics are not there. Nobody has to be told, or to wait for them long."""
        self._absent |= set(names)

    def partitions_of(self, names: Iterable[str]) -> Topics:
        """Return the racks of each partition of each topic, for an assignor. This may take long.

        Topics that are not there are left out, and logged once.
        """
        begun = self._cluster.handler.monotonic()
        found = {}
        known = self._cluster.metadata.topic
        # One that is not there costs no other its time.
        for name in sorted(names, key=lambda name: (known(name) is None, name not in self._absent, name)):
            limit_s = AGAIN_S if name in self._absent else TOPICS_S
            try:
                info = self._cluster.wait_for_topic(name, begun + limit_s, anew=False)
            except KafkaException as exc:
                is_known = name in self._absent or isinstance(exc, ClientClosedError)
                level = logging.DEBUG if is_known else logging.WARNING
                text = "group %r: the partitions of topic %r are not known, they are nobody's now: %s"
                log.log(level, text, self._group, name, exc)
                continue
            found[name] = self._cluster.metadata.racks(info)
        self._divided = {name: len(racks) for name, racks in found.items()}
        self._absent = {name for name in names if name not in found}
        return found
