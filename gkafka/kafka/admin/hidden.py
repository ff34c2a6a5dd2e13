"""Arguments of KafkaAdminClient's calls that may hold passwords of brokers and users, and what stands for them from the call on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gkafka.admin.changes import hide_configs
from gkafka.kafka.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from gkafka.unseen import unseen

__all__ = ["HIDES"]

TEXTS = (str, bytes, bytearray, memoryview)
OF_TOPICS = ("num_partitions", "replication_factor", "assignments")


def _resources(given: Any) -> Any:
    """A list of ConfigResources, which show no secret; what stands in their place, as a dict or a text, as what nothing shows."""
    if isinstance(given, (*TEXTS, Mapping)):
        return unseen(given)
    return [_thing(one) for one in given] if isinstance(given, Iterable) else given


def _topics(given: Any) -> Any:
    """Topics to be made, by name with their options or in a list."""
    if isinstance(given, Mapping):
        return {name: _options(options) for name, options in given.items()}
    if isinstance(given, TEXTS) or not isinstance(given, Iterable):
        return given
    return [one if isinstance(one, TEXTS) else _thing(one) for one in given]


def _options(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return unseen(given)
    return {name: value if name in OF_TOPICS else hide_configs(value) for name, value in given.items()}


def _alterations(given: Any) -> Any:
    """A list of what gives and takes passwords; a tuple or a dict in its place, or another library's, may show one."""
    if isinstance(given, (*TEXTS, Mapping)) or not isinstance(given, Iterable):
        return unseen(given)
    return [one if isinstance(one, (UserScramCredentialDeletion, UserScramCredentialUpsertion)) else unseen(one) for one in given]


def _thing(given: Any) -> Any:
    return unseen(given) if isinstance(given, (*TEXTS, Iterable)) else given


HIDES: dict[str, Callable[[Any], Any]] = {"config_resources": _resources, "new_topics": _topics, "alterations": _alterations}
