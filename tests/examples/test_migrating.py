"""The examples of the pages for those who come from another client run as they stand, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gkafka.testing import MockCluster

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("migrating-from-pykafka", "migrating-from-confluent-kafka", "kafka-python", "kafka-python-legacy")
TOPICS = {"my.test": 3, "orders": 4, "invoices": 1}
PATCHED = "from gevent import monkey; monkey.patch_all()\n"


class Example(NamedTuple):
    page: str
    number: int
    source: str
    printed: str


def _examples(page: str) -> list[Example]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL)
    assert len(found) == text.count("```python"), page
    return [Example(page, number, source, printed) for number, (source, printed) in enumerate(found, 1)]


EXAMPLES = [example for page in PAGES for example in _examples(page)]


@pytest.mark.parametrize("patched", [False, True], ids=["threads", "patched"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.page}-{e.number}")
def test_an_example_prints_what_the_page_says(example: Example, patched: bool, tmp_path: Path) -> None:
    """From a file, as users have it: processes that an example starts are to read it."""
    with MockCluster(topics=TOPICS) as cluster:
        program = tmp_path / "example.py"
        program.write_text((PATCHED if patched else "") + example.source.replace("localhost:9092", cluster.bootstrap), encoding="utf-8")
        command = [sys.executable, "-W", "error", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, example.printed), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_form_that_all_have(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Names", "What changes", "What gets better", "Examples"]
    assert text.count("```python") >= 4
    assert sum(example.printed != "" for example in EXAMPLES if example.page == page) >= 4


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        assert (ROOT / "docs" / target).exists(), target
