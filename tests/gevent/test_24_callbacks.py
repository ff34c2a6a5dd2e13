"""24: delivery callbacks that raise, wait and call back in, in a patched process. `tests/public/test_callbacks.py` has them unpatched and on threads,
`live/test_24_listeners.py` those of groups."""

from __future__ import annotations

from tests.gevent.harness import PATCHED, in_child, run_suite


def test_24_callbacks_may_do_anything_in_a_patched_process() -> None:
    in_child(PATCHED, run_suite, "tests/public/test_callbacks.py", "-k", "gevent")
