"""The topics of a cluster by name: what `client.topics` and `cluster.topics` are."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from gkafka.checks import check_topic_name
from gkafka.oneprocess import refuse_to_pickle
from gkafka.topic import Topic

if TYPE_CHECKING:
    from gkafka.cluster import Cluster
    from gkafka.core.metadata import TopicInfo

__all__ = ["TopicDict"]

KNOWN_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class TopicDict(dict[str, Topic]):
    """Topics by name: `topics["t"]` asks the cluster for a topic that is not known yet, iteration lists those that are.

    Names are str; bytes are accepted. The objects are held weakly, as documented: keep the Topic that you work with. It keeps the cluster, as this does.
    made: the objects that there are.
    """

    def __init__(self, cluster: Cluster, exclude_internal_topics: bool, made: MutableMapping[str, Topic] | None = None) -> None:
        super().__init__()
        self._cluster = cluster
        self._exclude_internal = exclude_internal_topics
        self._made = weakref.WeakValueDictionary[str, Topic]() if made is None else made

    def shows(self, info: TopicInfo) -> bool:
        """Is it there, and not one of those that are hidden?"""
        return info.error is None and not (self._exclude_internal and (info.is_internal or info.name in KNOWN_INTERNAL))

    def _names(self) -> list[str]:
        cluster = self._cluster
        cluster.check_open()
        cluster.ensure_listed()
        return sorted(name for name, info in cluster.metadata.topics.items() if self.shows(info) and not self._hides(name))

    def _hides(self, name: str) -> bool:
        """As pykafka does; patterns of other consumers go by what the brokers call internal."""
        return self._exclude_internal and name.startswith("__")

    def __getitem__(self, name: str | bytes) -> Topic:
        owner = self._cluster
        owner.handler.check_fork()  # a child's copy would hand out topics whose sockets are the parent's
        owner.check_open()
        key = check_topic_name(name)
        made = self._made.get(key)
        if made is not None:
            return made
        if self._hides(key) or not self.shows(info := owner.wait_for_topic(key)):
            raise KeyError(
                f"{key!r} is hidden, as internal topics and all whose names begin with two underscores are: KafkaClient(exclude_internal_topics=False) shows it"
            )
        topic = self._made[key] = Topic(owner, info)
        return topic

    def __iter__(self) -> Any:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, bytes)) and (name.decode() if isinstance(name, bytes) else name) in self._names()

    def __bool__(self) -> bool:
        return len(self) > 0

    def keys(self) -> Any:
        return self._names()

    def values(self) -> Any:
        return [self[name] for name in self._names()]

    def items(self) -> Any:
        return [(name, self[name]) for name in self._names()]

    def get(self, name: str | bytes, default: Any = None) -> Any:
        """The topic if the cluster has it. Never creates one."""
        shown = name in self
        return self[name] if shown else default

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raises TypeError. pickle and copy come here."""
        refuse_to_pickle(self)

    def copy(self) -> dict[str, Topic]:
        """Those that are there now, in a dict of its own."""
        return dict(self.items())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {sorted(self._made)}>"

    def refresh(self) -> None:
        """Bring the Topic objects that are in use up to date with the metadata."""
        cluster = self._cluster
        for name, topic in list(self._made.items()):
            info = cluster.metadata.topics.get(name)
            if info is not None and info.error is None:
                topic.update(info)
