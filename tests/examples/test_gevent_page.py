"""docs/gevent.md: its two programs run as they stand, in a process that nobody has patched."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from gkafka.testing import MockCluster
from tests.kit.forks import Program, play

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "gevent.md").read_text(encoding="utf-8")
WEB, CONSUMING = (textwrap.dedent(source) for source in re.findall(r"^ *```python\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)[:2])
ASKED = """
answer = app.test_client().post("/orders", data=b"one")
print(answer.status_code, answer.get_json())
"""
"""Behind the application: one request."""
STOPPED = "print(message.partition_id, message.offset, message.value)\n            consumer.stop()"
"""In place of the line that prints: the loop of the page goes on for ever."""


def test_the_web_worker_and_the_consumer_of_the_page_run_as_they_stand() -> None:
    with MockCluster(topics={"orders": 1}) as cluster:
        web = WEB.replace("127.0.0.1:9092", cluster.bootstrap) + ASKED
        (done,) = play([Program(web)])
        assert (done.returncode, done.stdout, done.stderr) == (0, "200 {'offset': 0}\n", "")
        consuming = CONSUMING.replace("127.0.0.1:9092", cluster.bootstrap)
        printing = STOPPED.partition("\n")[0]
        assert printing in consuming
        (done,) = play([Program(consuming.replace(printing, STOPPED))])
        assert (done.returncode, done.stdout, done.stderr) == (0, "0 0 b'one'\n", "")
