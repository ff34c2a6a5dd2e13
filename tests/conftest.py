"""For every suite: which implementation is under test, and how Hypothesis runs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from gkafka.records import IMPLEMENTATION

# Examples are the same in each run: a failure in CI can be repeated, and a green run does not turn red by chance.
settings.register_profile("gkafka", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gkafka")


def pytest_report_header() -> str:
    return f"gkafka.records: {IMPLEMENTATION}"
