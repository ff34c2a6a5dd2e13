"""A frame made from a template is byte for byte the one that the tables make."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gkafka.wire.apis import decode_request, encode_request
from gkafka.wire.primitives import UNCOPIED_FROM
from gkafka.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gkafka.wire.templates import BatchRequest, ProduceTemplate

SIZES = [0, 1, 100, 126, 127, 128, UNCOPIED_FROM - 1, UNCOPIED_FROM, 16_383, 16_384, 3_000_000]


def request(records: object, version: int, *, partition: int = 3, acks: int = -1, topic: str = "höhe", **about: object) -> ProduceRequest:
    ids = {"topic_id": uuid.UUID(int=8)} if version >= 13 else {}
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data, **ids)], **about)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("client_id", [None, "", "gkafka"])
def test_it_is_the_frame_of_the_whole_request(version: int, client_id: str | None) -> None:
    about = {"transactional_id": "tx"} if version >= 3 else {}
    template = ProduceTemplate(request(b"", version, **about))
    for number, size in enumerate(SIZES * 2):
        records = memoryview(bytes([number]) * size)
        frame = BatchRequest(template, records).encode(version, 1000 + number, client_id)
        whole = encode_request(request(records, version, **about), version, 1000 + number, client_id)
        assert b"".join(frame) == b"".join(whole), size
        assert [len(part) for part in frame] == [len(part) for part in whole], "what is large is copied nowhere"


@given(
    st.binary(max_size=9000),
    st.integers(0, 13),
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
    st.text("abc-._", min_size=1, max_size=40),
    st.sampled_from([-1, 0, 1]),
)
def test_a_broker_reads_from_it_what_was_meant(
    records: bytes, version: int, partition: int, correlation_id: int, topic: str, acks: int
) -> None:
    template = ProduceTemplate(request(b"", version, partition=partition, topic=topic, acks=acks))
    frame = b"".join(BatchRequest(template, memoryview(records)).encode(version, correlation_id, "me"))
    read = decode_request(frame[4:])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (read.correlation_id, read.version, read.client_id) == (correlation_id, version, "me")
    (found,) = read.message.topic_data
    assert (read.message.acks, found.partition_data[0].index) == (acks, partition)
    assert bytes(found.partition_data[0].records) == records


def test_it_knows_the_newest_version_as_its_request_does() -> None:
    assert BatchRequest(ProduceTemplate(request(b"", 12)), memoryview(b"")).newest_version() == 12
    assert BatchRequest(ProduceTemplate(request(b"", 13)), memoryview(b"")).newest_version() == 13
