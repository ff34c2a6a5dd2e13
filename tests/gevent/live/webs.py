"""What acceptance tests 16 and 17 ask of a web server with two workers."""

from __future__ import annotations

from tests.gevent.live.recipes import Web
from tests.live.peer import Peer

ENDS_WITHIN_S = 3
REFUSED_WITHIN_S = 0.1
PARTITIONS = 4


def check_delivery_and_end(web: Web, peer: Peer, topic: str) -> None:
    """Each record that was answered for is at its offset, from both workers; what was only taken is in the log after SIGTERM, once."""
    placed = {}
    for body, answer in web.post_to_both("/records", "record"):
        assert answer.status == 200, answer
        placed[body] = answer.body["partition"], answer.body["offset"]
    assert web.ask("GET", "/health").body["handler"] == "gevent"
    taken = []
    for body, answer in web.post_to_both("/events", "event"):
        assert answer.status == 202, answer
        taken.append(body)
    took = web.program.end()
    said = web.program.said()
    assert took <= ENDS_WITHIN_S, f"{took:.1f} s\n{said}"
    assert "Traceback" not in said, said
    loaded = [b"loaded"] if "KAFKA_CREATE=recreate" in said else []
    log = peer.read(topic, len(placed) + len(taken) + len(loaded), PARTITIONS)
    assert {record.value: (record.partition, record.offset) for record in log if record.value in placed} == placed
    assert sorted(record.value or b"" for record in log if record.value not in placed) == sorted(taken + loaded)


def check_refusal(web: Web, peer: Peer, topic: str) -> None:
    """500 with a ForkedClientError, each time and soon; the log has only what the master wrote, and the server ends like any."""
    for _, answer in [*web.post_to_both("/records", "refused"), *web.post_to_both("/events", "refused")]:
        assert (answer.status, answer.body["error"]) == (500, "ForkedClientError"), answer
        assert "create the client after the fork" in answer.body["text"]
    one_by_one = [web.ask("POST", "/records", b"refused").seconds for _ in range(5)]
    assert max(one_by_one) < REFUSED_WITHIN_S, one_by_one
    took = web.program.end()
    assert took <= ENDS_WITHIN_S, f"{took:.1f} s\n{web.program.said()}"
    assert [record.value for record in peer.read(topic, 1, PARTITIONS)] == [b"loaded"]
