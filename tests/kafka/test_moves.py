"""kafka-python's consumers commit what their application has got, and remember no other commit."""

from __future__ import annotations

import pytest

from gkafka.kafka.errors import KafkaError
from gkafka.kafka.legacy import KafkaClient, SimpleConsumer
from gkafka.testing import Error, MockCluster
from tests.kafka.legacy import committed, fill

GROUP_AUTHORIZATION_FAILED = 30


def test_a_refused_commit_is_made_again_by_the_next_one(cluster: MockCluster, handler: str) -> None:
    """If it counted as stored already, nothing would be committed by the second call."""
    fill(cluster, {0: [b"1", b"2"]})
    with KafkaClient(cluster.bootstrap, handler=handler) as client:
        consumer = SimpleConsumer(client, "g", "t", auto_commit=False)
        assert len(consumer.get_messages(2, timeout=60)) == 2
        cluster.on("OffsetCommit", Error(GROUP_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(KafkaError):
            consumer.commit()
        consumer.commit()
        assert committed(cluster) == {0: 2}
        consumer.stop()
