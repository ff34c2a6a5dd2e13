"""celery_app.py with a broker in its own memory: FEED_COUNT tasks are queued when the worker is ready, and told of when all have ended."""

import json
import os
import sys
from typing import Any

import celery_app
from celery import signals

COUNT = int(os.environ["FEED_COUNT"])
app = celery_app.app
ended: dict[str, int] = {}


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def feed(**_: Any) -> None:
    for number in range(COUNT):
        celery_app.record.delay(number)


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def count(state: str, **_: Any) -> None:
    ended[state] = ended.get(state, 0) + 1
    if sum(ended.values()) == COUNT:
        handler = celery_app.client().handler.name
        print("FED", json.dumps({"ended": ended, "handler": handler}), file=sys.__stdout__, flush=True)
