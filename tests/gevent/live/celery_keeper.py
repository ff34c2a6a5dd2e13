"""celery_app.py with tasks that do not wait for their records, which nothing but an end sends soon. FEED_COUNT are queued when the worker is ready."""

import os
import sys
from functools import cache
from typing import Any

import celery_app
from celery import signals

from tests.gevent.live.recipes import LINGER_S

app = celery_app.app


@cache
def producer() -> Any:
    return celery_app.client().get_producer(linger_ms=LINGER_S * 1000)


@app.task  # type: ignore[untyped-decorator]
def keep(number: int) -> None:
    producer().produce(celery_app.TOPIC, b"%d" % number)
    os.write(sys.__stdout__.fileno(), b"KEPT\n")  # type: ignore[union-attr]


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def feed(**_: Any) -> None:
    for number in range(int(os.environ["FEED_COUNT"])):
        keep.delay(number)
