"""Frames of which all but the records was written before: for who sends batch after batch to one partition.

Encoding the rest anew takes longer than everything else that is done with a small batch.
"""

from __future__ import annotations

import struct

from gkafka.exceptions import RecordTooLarge
from gkafka.wire.apis import MAX_FRAME, encode_request
from gkafka.wire.primitives import UNCOPIED_FROM, Buffer
from gkafka.wire.produce import ProduceRequest, oldest_holding

__all__ = ["BatchRequest", "ProduceTemplate"]

_head = struct.Struct(">ihhi")  # size, API key, version, correlation id
_int32 = struct.Struct(">i")
SAMPLE = memoryview(bytes(UNCOPIED_FROM))
"""Records that stand in their frame as a buffer of their own; their length is the field just before them."""
LENGTH_BYTES, COMPACT_LENGTH_BYTES = 4, 2
"""Of the sample's length."""


class ProduceTemplate:
    """A ProduceRequest of one partition. request: with whatever records; they are left out of it."""

    __slots__ = ("_frames", "newest", "request", "topic_id")

    def __init__(self, request: ProduceRequest) -> None:
        self.request = request
        self.newest = request.newest_version()
        self.topic_id = request.topic_data[0].topic_id
        self._frames: dict[tuple[int, str | None], tuple[bytes, bytes, bool]] = {}
        request.topic_data[0].partition_data[0].records = SAMPLE

    def frame(self, records: Buffer, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """The whole frame, as encode_request gives it for the request with these records, and with its errors."""
        known = self._frames.get((version, client_id))
        if known is None:
            known = self._frames[version, client_id] = self._around(version, client_id)
        before, behind, compact = known
        out, size = bytearray(before), len(records)
        if compact:
            size += 1
            while size > 0x7F:
                out.append(size & 0x7F | 0x80)
                size >>= 7
            out.append(size)
        else:
            out += _int32.pack(size)
        frame: list[Buffer] = [out]
        if len(records) < UNCOPIED_FROM:
            out += records
            out += behind
        else:
            frame += (records, behind) if behind else (records,)
        size = sum(map(len, frame)) - LENGTH_BYTES
        if size > MAX_FRAME:
            raise RecordTooLarge(f"a Produce of {size} bytes; a frame holds {MAX_FRAME}", api="Produce")
        _head.pack_into(out, 0, size, ProduceRequest.API.key, version, correlation_id)
        return frame

    def _around(self, version: int, client_id: str | None) -> tuple[bytes, bytes, bool]:
        """What stands before the length of the records, what stands behind them, and whether the length is a compact one."""
        before, _, *behind = encode_request(self.request, version, 0, client_id)
        compact = version in ProduceRequest.API.flexible
        return bytes(before[: -(COMPACT_LENGTH_BYTES if compact else LENGTH_BYTES)]), b"".join(behind), compact


class BatchRequest:
    """A ProduceRequest of one partition, by its template: what a connection takes in place of the message."""

    __slots__ = ("_records", "_template")

    API = ProduceRequest.API

    def __init__(self, template: ProduceTemplate, records: Buffer) -> None:
        self._template = template
        self._records = records

    def newest_version(self) -> int:
        """As a message says it."""
        return self._template.newest

    def oldest_version(self) -> tuple[int, str]:
        """As a message says it."""
        return oldest_holding(self._records)

    def asked(self, version: int) -> int:
        """As a message says it: a topic and its partition."""
        return 2

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """Its frame."""
        return self._template.frame(self._records, version, correlation_id, client_id)
