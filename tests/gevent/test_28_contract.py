"""28: the contract suites of handlers in a patched process. Unpatched, and on threads, they are played where they are."""

from __future__ import annotations

import pytest

from tests.gevent.harness import PATCHED, in_child, run_suite

# Where threading is patched, a Thread is no foreign one: two tests that need one are not played; nor those of stalls, which live/ has.
SUITES = {
    "contract": ("tests/handlers/test_contract.py", "gevent"),
    "kills, order and names": (
        "tests/handlers/test_greenlets.py",
        "not two_hubs and not belong_to_the_owner and not without_a_stall and not checkpoint",
    ),
    "close wakes readers": ("tests/net/test_stream.py", "gevent and (close or shutdown)"),
}


@pytest.mark.parametrize("suite", SUITES)
def test_28_the_contract_holds_in_a_patched_process(suite: str) -> None:
    file, chosen = SUITES[suite]
    in_child(PATCHED, run_suite, file, "-k", chosen)
