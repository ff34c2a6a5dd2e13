"""What an error of the broker says: where it was met, what the broker means, and what to do next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gkafka.escaping import LONGEST_NAME, escaped

__all__ = ["given_up", "missing_topic", "not_in_time", "partitions_named", "text_of", "told_at"]

AGAIN = "it passes: try again in a moment, or let the call try longer"
ACL = "ask who runs the cluster for an ACL that allows it to this client"
NEXT_STEPS = {
    1: "go on from an offset that the log has: list_offsets() and reset_offsets() tell, retention removes what is older",
    3: "check the topic's name and the number of its partitions",
    5: "a new leader is being elected: if that takes long, see which brokers are down",
    6: "the leader has moved: the next try takes fresh metadata",
    7: "see how busy the broker is, and whether the call has taken effect, before it is repeated",
    9: "see which brokers are down",
    12: "commit with a shorter metadata text",
    14: AGAIN,
    15: "try again in a moment; if it lasts, see which brokers are down: a partition of __consumer_offsets has no leader",
    16: "the group's coordinator has moved: the next try looks for it",
    17: "choose a name of 1 to 249 of the characters A-Z a-z 0-9 . _ -",
    19: "fewer replicas are in sync than the topic's min.insync.replicas: see which brokers are down",
    20: "fewer replicas are in sync than the topic's min.insync.replicas: see which brokers are down",
    21: "give acks='all', 1 or 0",
    22: "the group has a new generation: stop and start the consumer",
    24: "give the consumer group's name, which must not be empty",
    25: "the group has removed this member, it was silent for too long: stop and start the consumer",
    26: "give a session timeout within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    27: "the group deals out its partitions anew: commit again when that is done",
    28: "commit fewer partitions at once, or with shorter metadata texts",
    29: ACL,
    30: ACL,
    31: ACL,
    32: "give milliseconds since the epoch, within the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    33: "give a sasl_mechanism that the listener has",
    34: "see whether the listener is one for SASL: security_protocol and the port",
    36: "use the one that is there, or choose another name",
    37: "give 1 partition or more",
    38: "give a replication_factor of at most the number of brokers",
    39: "give each partition as many different brokers as it has replicas",
    40: "see the broker's documentation of topic configs for this one",
    41: "another broker is the controller now: try again in a moment",
    42: "the broker's log says what it does not like about the request",
    44: "a policy of the cluster forbids it: ask who runs it",
    47: "another producer has taken over: make a new one",
    53: ACL,
    56: "the broker's log says what is wrong with its disk; a replica on another broker may take over",
    58: "check the user, the password or token, and sasl_mechanism",
    65: ACL,
    73: "delete.topic.enable=false on the brokers: who runs them can turn it on",
    74: "the metadata is older than the leader: the next try takes fresh metadata",
    75: "the broker has yet to hear of its leadership: try again in a moment",
    76: "the broker does not take this codec: choose another compression",
    78: "the leader is new and does not know yet what is committed: try again in a moment",
    82: "another consumer has taken this member's group_instance_id: give each its own",
    87: "a compacted topic needs a key, and a timestamp must be one that the topic allows",
    88: "a transaction that moves these offsets is still open, or just ending: try again when it is over",
    89: "a quota of the cluster for such changes is used up: try again later",
    100: "the topic was deleted, or made again: the next try takes fresh metadata",
    103: "the topic was made again: the next try takes fresh metadata",
}
"""By error code: those that a user's call meets, and can do something about."""

IDEMPOTENT = (
    "ask who runs the cluster for the right IdempotentWrite on the cluster (since Kafka 2.8 the right to write to any topic is enough), or do without "
    "it: enable_idempotence=False"
)
OF_API = {
    ("InitProducerId", 31): IDEMPOTENT,
    ("Produce", 31): IDEMPOTENT,
    ("InitProducerId", 53): "ask who runs the cluster for the rights Write and Describe on this transactional_id",
}
"""By request and error code, where that tells which right is missing."""


OF_SILENCE = {87}
"""Codes whose next step is a guess: left out where the broker says in its own words what is wrong."""

NOT_IN_TIME = "not done in time, last: "
NAMED = 10
"""Partitions that a line names; of more it says how many there are."""


def text_of(code: int, meaning: str, about: dict[str, Any], *, told: bool = False) -> str:
    """ "Fetch t-0 offset 50: error 1: <meaning>; <what to do next>". about: the attributes that a KafkaException takes.
    told: the meaning is the broker's own text."""
    where = " ".join(filter(None, (about.get("api"), _place(about), _group(about), _broker(about))))
    parts = [where] if where else []
    said = " ".join(meaning.split()).rstrip(".")
    advice = OF_API.get((about.get("api") or "", code)) or (None if told and code in OF_SILENCE else NEXT_STEPS.get(code))
    return ": ".join([*parts, f"error {code}", f"{said}; {advice}" if advice else f"{said}."])


def _place(about: dict[str, Any]) -> str:
    topic, partition, offset = about.get("topic"), about.get("partition"), about.get("offset")
    name = escaped(topic, LONGEST_NAME)
    place = "" if topic is None else name if partition is None else f"{name}-{partition}"
    return place if offset is None else f"{place} offset {offset}"


def _group(about: dict[str, Any]) -> str:
    group = about.get("group")
    return "" if group is None else f"of group {group!r}"


def _broker(about: dict[str, Any]) -> str:
    broker = about.get("broker")
    return "" if broker is None else f"on broker {broker}"


def missing_topic(name: str) -> str:
    """Return what to do about a topic that does not exist."""
    return f"create it, or check the name (kafka-tools topics create {name})"


def not_in_time(what: str, last: object) -> str:
    """Return the text of a call that was tried until its time was over. last: why it failed last; of a call inside that ran out of time too, its own last."""
    return f"{what}: {NOT_IN_TIME}{str(last).rpartition(NOT_IN_TIME)[2]}"


def given_up(tries: int, retries: int, last: object) -> str:
    """Return why a batch is not sent once more. retries: the option, which pykafka's producer counts with the first try."""
    had = f"retries={retries} (topic.get_producer(): max_retries={retries + 1})"
    return f"given up after {tries} {'try' if tries == 1 else 'tries'}: {last}; give it more than {had}"


def told_at(address: str, error: object) -> str:
    """Return the text of an error with the address in front, which it mostly has by itself."""
    why = str(error)
    return why if address in why.replace("[", "").replace("]", "") else f"{address}: {why}"


def partitions_named(partitions: Collection[tuple[str, int]]) -> str:
    """Return "2 partition(s): pages-0, pages-1"."""
    shown = [f"{escaped(topic, LONGEST_NAME)}-{partition}" for topic, partition in sorted(partitions)[:NAMED]]
    more = [f"{len(partitions) - NAMED} more"] if len(partitions) > NAMED else []
    return f"{len(partitions)} partition(s): {', '.join([*shown, *more])}" if partitions else "no partition"
