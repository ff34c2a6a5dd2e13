"""The bars of security and of a broken network, each by the tests that hold it: `make bars`, or `python -m tests.bars G17 G28`.

Prints one line for each: what is wanted, whether its tests hold, how many there were and how long they took. The status is 1 if one fails.
Figures beside other clients: `python benchmarks/hostile.py` (G17, G19), `python benchmarks/tls.py`, `make faults` (F07 to F10, F23), `make fuzz` (G18).
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

from tests.kit.clock import now


class Bar(NamedTuple):
    """goal: in words. tests: files, or file::test."""

    goal: str
    tests: tuple[str, ...]


BARS: dict[str, Bar] = {
    "G15": Bar(
        "bits that flip: no wrong payload, no silent skip",
        ("tests/public/test_damage.py::test_whatever_bits_flip_on_the_way_no_record_is_wrong_missing_or_doubled",),
    ),
    "G16": Bar(
        "half-open connections are found within the request timeout + 1 s",
        ("tests/hostile/test_lifecycle.py::test_f10_a_half_open_connection_is_found_at_the_request_timeout",),
    ),
    "G17": Bar(
        "a hostile frame: a named error within 1 s, 16 MiB at most for a claim of 2 GiB",
        (
            "tests/net/test_channel_faults.py::test_b61_a_hostile_frame_gives_a_protocol_error_at_once_and_closes",
            "tests/hostile/test_brokers.py::test_one_hostile_answer_to_each_request_is_named_and_survived",
            "tests/hostile/test_bombs.py::test_g17_a_claim_of_2_gib_costs_a_client_nothing_and_it_stays_usable",
        ),
    ),
    "G18": Bar(
        "fuzz: no foreign exception, no hang, nothing over 50 ms",
        ("tests/fuzz/test_targets.py::test_g18_mutants_give_values_or_errors_of_gkafka_soon", "tests/fuzz/test_client.py"),
    ),
    "G19": Bar(
        "bombs: an error with its place, peak at most the limit + 16 MiB",
        ("tests/hostile/test_bombs.py::test_g19_a_bomb_is_an_error_that_names_its_place_and_takes_no_more_than_its_limit",),
    ),
    "G20": Bar("close() within its timeout + 0.5 s, nothing is left", ("tests/public/test_leaks.py",)),
    "G23": Bar(
        "a forked child is told within 100 ms, the parent is unharmed",
        ("tests/public/test_forks.py::test_a_child_is_told_at_once_and_the_parent_goes_on",),
    ),
    "G24": Bar(
        "memory: what was configured and 64 MiB at most, and work leaves none behind",
        ("tests/hostile/test_memory.py::test_f29_g24_memory_is_what_was_configured_and_64_mib_and_does_not_grow",),
    ),
    "G25": Bar(
        "a broker that is down: connects as the backoff says",
        ("tests/public/test_consuming.py::test_while_a_broker_is_down_it_is_not_hammered",),
    ),
    "G26": Bar(
        "storms of leaders: 2 metadata requests a second at most",
        (
            "tests/public/test_retries.py::test_leader_storms_do_not_become_metadata_storms",
            "tests/core/test_metadata.py::test_a_storm_of_invalidations_costs_two_requests_a_second",
        ),
    ),
    "G27": Bar(
        "secrets in logs, errors, objects: none",
        (
            "tests/public/test_sasl.py::test_b65_no_secret_is_in_logs_errors_or_objects",
            "tests/public/test_secrets.py",
            "tests/live/test_sasl.py::test_b65_no_secret_in_the_log_of_everything_nor_in_errors",
            "tests/net/test_proxy.py::test_credentials_of_a_proxy_are_shown_nowhere",
            "tests/public/test_bad_input.py::test_of_tls_texts_that_are_not_shown",
        ),
    ),
    "G28": Bar("bad certificates and TLS 1.1: all refused by name, no byte of Kafka in clear text", ("tests/live/test_tls.py",)),
    "G29": Bar(
        "a wrong password: an AuthenticationError of the call within 2 s, no storm",
        (
            "tests/public/test_sasl.py::test_f28_b68_a_refusal_is_told_by_the_call_itself_at_once",
            "tests/live/test_sasl.py::test_f28_b68_a_wrong_password_is_told_at_once_by_one_connection",
            "tests/live/test_sasl.py::test_f28_a_refused_client_comes_once_in_a_pause",
        ),
    ),
    "G30": Bar(
        "sessions renewed each 5 s under load: no error, no new connection",
        ("tests/live/test_sasl.py::test_g30_sessions_of_five_seconds_are_renewed_under_load",),
    ),
}
"""G24's hours are those of `make soak`; `benchmarks/memory.py` shows a producer's figure on a real broker."""


def outcome(bar: Bar) -> tuple[bool, str]:
    """Whether its tests hold, and what pytest counted."""
    began = now()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak", *bar.tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    count = re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)
    told = ", ".join(f"{number} {word}" for number, word in count) or f"no result, status {done.returncode}"
    held = done.returncode == 0 and "skipped" not in told
    if not held:
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return held, f"{told} in {now() - began:.0f} s"


def main(wanted: list[str]) -> int:
    failed = []
    for name, bar in BARS.items():
        if wanted and name not in wanted:
            continue
        held, told = outcome(bar)
        if not held:  # waits have deadlines, and a busy machine may miss one: both runs are shown
            held, again = outcome(bar)
            told += f"; again: {again}"
        print(f"{name}  {'held  ' if held else 'FAILED'}  {bar.goal}: {told}", flush=True)
        failed += [] if held else [name]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
