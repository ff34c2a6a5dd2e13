"""The examples of the README run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gkafka.testing import MockCluster

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PRINTS = [f"{sum(number**2 for number in range(1000))}\n", "1000 acknowledged\n"]


@pytest.mark.parametrize(("source", "printed"), list(zip(BLOCKS, PRINTS, strict=True)), ids=["threads", "greenlets"])
def test_an_example_of_the_readme_runs(source: str, printed: str) -> None:
    with MockCluster() as cluster:
        source = source.replace("127.0.0.1:9092", cluster.bootstrap)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
        )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_readme_names_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
