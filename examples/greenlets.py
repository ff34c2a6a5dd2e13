#!/usr/bin/env python3
"""A plain gevent program: hundreds of greenlets share one producer, one greenlet reads everything back. Nothing is monkey-patched.

    pip install 'gkafka[gevent]'

Each greenlet sends its numbers one after the other and waits for each to be acknowledged, as a web handler or a crawler would; another
greenlet ticks meanwhile, and its longest wait is printed: so long at most did the hub stand still. Then a consumer reads the topic from
where the program began, until it has every number once. Ends with status 1 if one is missing or was there twice.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import gevent
from gevent.pool import Pool
from recipe import complain, kafka_is_there, parser_of, positive, run

from gkafka import KafkaClient
from gkafka.exceptions import KafkaException

ACKNOWLEDGED_WITHIN_S = 30
READ_WITHIN_S = 30


class Ticker:
    """A greenlet that should run every millisecond. worst_s: the longest time that it did not, in seconds."""

    def __enter__(self) -> Ticker:
        self.worst_s = 0.0
        self._greenlet = gevent.spawn(self._run)
        return self

    def _run(self) -> None:
        while True:
            began = time.perf_counter()
            gevent.sleep(0.001)
            self.worst_s = max(self.worst_s, time.perf_counter() - began)

    def __exit__(self, *_: object) -> None:
        self._greenlet.kill()


def send(client: Any, topic: str, greenlets: int, each: int) -> None:
    """Raises what kept a record from being delivered."""
    with client.get_producer(acks="all") as producer:

        def work(worker: int) -> None:
            for number in range(each):
                producer.produce(topic, b"%d.%d" % (worker, number), key=b"%d" % worker).result(ACKNOWLEDGED_WITHIN_S)

        pool = Pool(greenlets)
        try:
            for _ in pool.imap_unordered(work, range(greenlets)):
                pass
        finally:
            pool.kill()  # else, on Ctrl-C or an error, each of them would find the producer closed


def read(client: Any, ends: dict[tuple[str, int], int], count: int) -> Counter[bytes]:
    """What was written behind `ends`, by value. Ends at `count` records, or when READ_WITHIN_S have passed."""
    seen: Counter[bytes] = Counter()
    deadline = time.monotonic() + READ_WITHIN_S
    with client.get_consumer() as consumer:
        consumer.assign(ends)
        while seen.total() < count and time.monotonic() < deadline:
            seen.update(message.value for message in consumer.consume_batch(5000, timeout_ms=1000))
    return seen


def main() -> int:
    args = arguments()
    if not kafka_is_there(args):
        return 1
    count = args.greenlets * args.each
    hub = gevent.get_hub()
    # Ctrl-C in any greenlet goes on to this one: gevent need not print where it came up.
    hub.NOT_ERROR = (*hub.NOT_ERROR, KeyboardInterrupt)
    try:
        with KafkaClient(args.hosts, handler="gevent") as client, Ticker() as ticker:
            ends = client.list_offsets({(args.topic, p): -1 for p in client.partitions(args.topic)})
            began = time.perf_counter()
            send(client, args.topic, args.greenlets, args.each)
            took = time.perf_counter() - began
            seen = read(client, ends, count)
    except KafkaException as exc:
        complain(exc)
        return 1
    twice = sum(times - 1 for times in seen.values())
    print(f"{count} records of {args.greenlets} greenlets acknowledged in {took:.2f} s, {len(seen)} read back, {twice} of them twice")
    print(f"the hub never stood still for longer than {ticker.worst_s * 1000:.0f} ms")
    return 0 if len(seen) == count and not twice else 1


def arguments() -> Any:
    parser = parser_of(__doc__ or "", "greenlets")
    parser.add_argument("--greenlets", type=positive, default=500, help="that send at once (default: %(default)s)")
    parser.add_argument("--each", type=positive, default=20, help="records of each (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
