"""What acceptance tests 16 and 17 ask of a web server with two workers."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from tests.gevent.live.recipes import LIMIT_S, Web
from tests.live.peer import Peer

ENDS_WITHIN_S = 50
"""Records that are pending wait for `recipes.LINGER_S` = 110 s unless the end sends them."""
REFUSED_WITHIN_S = 30
"""What is not refused, but waited for in vain, takes a minute (max_block_ms) or more."""
PARTITIONS = 4


def unexpected(said: str) -> list[str]:
    """The tracebacks of a program. gunicorn ends its workers at SIGINT with a SystemExit of a greenlet of its own, which gevent shows if the worker is at its
    end already."""
    blocks = said.split("Traceback (most recent call last):")[1:]
    errors = [next((line for line in block.splitlines() if line.strip() and not line.startswith((" ", "\t"))), "") for block in blocks]
    return [block for block, error in zip(blocks, errors, strict=True) if error.strip() != "SystemExit: 0"]


def check_delivery_and_end(web: Web, peer: Peer, topic: str) -> None:
    """Each record that was answered for is at its offset, from both workers; what was only taken is in the log after SIGTERM, once.

    Beside them is what was written as the application was loaded: by each worker, or by the master whose producer goes on in them.
    """
    placed, workers = {}, set()
    for body, answer in web.post_to_both("/records", "record"):
        assert answer.status == 200, answer
        workers.add(answer.worker)
        placed[body] = answer.body["partition"], answer.body["offset"]
    assert web.ask("GET", "/health").body["handler"] == "gevent"
    taken = []
    for body, answer in web.post_to_both("/events", "event"):
        assert answer.status == 202, answer
        taken.append(body)
    took = web.program.end()
    said = web.program.said()
    assert took <= ENDS_WITHIN_S, f"{took:.1f} s\n{said}"
    assert not unexpected(said), said
    loaded = [b"loaded"] * (len(workers) if "KAFKA_CREATE=import" in said else 1 if "KAFKA_CREATE=recreate" in said else 0)
    log = peer.read(topic, len(placed) + len(taken) + len(loaded), PARTITIONS)
    assert {record.value: (record.partition, record.offset) for record in log if record.value in placed} == placed
    assert sorted(record.value or b"" for record in log if record.value not in placed) == sorted(taken + loaded)


def check_end_among_requests(web: Web, peer: Peer, topic: str, sign: int) -> None:
    """What the server said it has taken is in the log, once, however many requests come as it ends."""
    list(web.post_to_both("/records", "record"))

    def post(worker: int) -> list[bytes]:
        """Bodies that were taken, until the server is gone."""
        taken: list[bytes] = []
        for number in count():
            body = b"event %d.%d" % (worker, number)
            try:
                status = web.ask("POST", "/events", body).status
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return taken
            if status == 202:
                taken.append(body)
        return taken

    with ThreadPoolExecutor(8) as pool:
        posting = [pool.submit(post, worker) for worker in range(8)]
        time.sleep(0.5)  # under way
        took = web.program.end(sign=sign)
        taken = [body for future in posting for body in future.result(LIMIT_S)]
    log = [record.value for record in peer.read_all(topic, PARTITIONS)]
    assert len(set(log)) == len(log)
    assert taken
    lost = set(taken) - set(log)
    assert not lost, f"{len(lost)} of {len(taken)}\n{web.program.said()}"
    assert took <= ENDS_WITHIN_S, f"{took:.1f} s\n{web.program.said()}"
    assert not unexpected(web.program.said()), web.program.said()


def check_refusal(web: Web, peer: Peer, topic: str) -> None:
    """500 with a ForkedClientError, each time and without a wait; the log has only what the master wrote, and the server ends like any."""
    for _, answer in [*web.post_to_both("/records", "refused"), *web.post_to_both("/events", "refused")]:
        assert (answer.status, answer.body["error"]) == (500, "ForkedClientError"), answer
        assert "create the client after the fork" in answer.body["text"]
    one_by_one = [web.ask("POST", "/records", b"refused").seconds for _ in range(5)]
    assert max(one_by_one) < REFUSED_WITHIN_S, one_by_one
    took = web.program.end()
    assert took <= ENDS_WITHIN_S, f"{took:.1f} s\n{web.program.said()}"
    assert [record.value for record in peer.read(topic, 1, PARTITIONS)] == [b"loaded"]
