"""28: the contract suite of handlers in a patched process. Unpatched, and on threads, it is `tests/handlers/test_contract.py` itself."""

from __future__ import annotations

from tests.gevent.harness import PATCHED, in_child, run_suite


def test_28_the_contract_holds_in_a_patched_process() -> None:
    in_child(PATCHED, run_suite, "tests/handlers/test_contract.py", "-k", "gevent")
