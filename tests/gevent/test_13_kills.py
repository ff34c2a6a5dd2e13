"""13, 14: killed and timed out greenlets in a patched process. `tests/public/test_killed.py` plays them unpatched, `live/test_13_kills.py` on real Kafka."""

from __future__ import annotations

from tests.gevent.harness import PATCHED, in_child, run_suite


def test_13_and_14_kills_leave_nothing_behind_in_a_patched_process() -> None:
    in_child(PATCHED, run_suite, "tests/public/test_killed.py")
