"""kafka-python's consumers commit nothing that their application has not got, and remember no commit that was not made."""

from __future__ import annotations

import pytest

from gkafka.kafka.errors import KafkaError
from gkafka.kafka.legacy import KafkaClient, SimpleConsumer
from gkafka.testing import Error, MockCluster
from tests.kafka.legacy import committed, fill

GROUP_AUTHORIZATION_FAILED = 30


def test_a_commit_that_was_refused_is_made_again_by_the_next_one(cluster: MockCluster, handler: str) -> None:
    """A commit that counts as stored before the broker has it is never made again while nothing more is consumed."""
    fill(cluster, {0: [b"1", b"2"]})
    with KafkaClient(cluster.bootstrap, handler=handler) as client:
        consumer = SimpleConsumer(client, "g", "t", auto_commit=False)
        assert len(consumer.get_messages(2, timeout=10)) == 2
        cluster.on("OffsetCommit", Error(GROUP_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(KafkaError):
            consumer.commit()
        consumer.commit()
        assert committed(cluster) == {0: 2}
        consumer.stop()
