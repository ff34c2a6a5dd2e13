"""FindCoordinator: which broker looks after a group or a transactional id."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, int8, int16, int32, message, string

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    """Ask for coordinators. KIP-98 transactional ids (v1); KIP-482 (v3); KIP-699 many keys (v4); KIP-890 (v5); KIP-932 share groups (v6).

    key_type: 0 group, 1 transactional id, 2 share group. One key may be given as `key` or in `coordinator_keys`, whatever the version.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string(), "4+")

    def for_version(self, version: int) -> FindCoordinatorRequest:
        """A single key goes where the version has its place (KIP-699)."""
        if version >= 4 and self.key and not self.coordinator_keys:
            return FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=[self.key])
        if version < 4 and not self.key and len(self.coordinator_keys) == 1:
            return FindCoordinatorRequest(key=self.coordinator_keys[0], key_type=self.key_type)
        return self


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    """Where they are. KIP-98 message (v1); KIP-219 (v2); KIP-482 (v3); KIP-699 many coordinators (v4). `answers` reads all versions alike."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

    @property
    def answers(self) -> list[Coordinator]:
        """One for each key that was asked for; before version 4 it is one, and its `key` is "": the one that was asked for."""
        if self.coordinators:
            return self.coordinators
        if not (self.host or self.error_code):
            return []
        return [
            Coordinator(node_id=self.node_id, host=self.host, port=self.port, error_code=self.error_code, error_message=self.error_message)
        ]

    def for_version(self, version: int) -> FindCoordinatorResponse:
        """A single coordinator goes where the version has its place (KIP-699)."""
        if version >= 4 or len(self.coordinators) != 1:
            return self
        (one,) = self.coordinators
        return FindCoordinatorResponse(
            throttle_time_ms=self.throttle_time_ms,
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
