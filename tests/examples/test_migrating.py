"""The examples of the pages for those who come from another client run as they stand, and print what the page says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gkafka.testing import MockCluster
from tests.kit.forks import PATCHING, Ended, Program, play

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("migrating-from-pykafka", "migrating-from-confluent-kafka", "kafka-python", "kafka-python-legacy")
TOPICS = {"my.test": 3, "orders": 4, "invoices": 1}
IMPORTED = "import gkafka.kafka.admin, gkafka.kafka.legacy, gkafka.client, gkafka.consumer, gkafka.producermemory, gkafka.protocol, gkafka.handlers.greenlets"
BEFORE = {"threads": IMPORTED, "patched": f"{PATCHING}\ngevent.monkey.patch_all()\n{IMPORTED}"}
"""What the examples are played behind, for the imports of one: each is a program that begins with imports, and those of this file are all of them."""


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


@pytest.fixture(scope="module", params=BEFORE)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Example, Ended]:
    """How each example has ended, with brokers of its own. From a file, as users have it: processes that an example starts are to read it."""
    folder, programs = tmp_path_factory.mktemp("examples"), []
    with contextlib.ExitStack() as clusters:
        for example in EXAMPLES:
            cluster = clusters.enter_context(MockCluster(topics=TOPICS))
            file = folder / f"{example.page}-{example.number}.py"
            file.write_text(example.source.replace("localhost:9092", cluster.bootstrap), encoding="utf-8")
            programs.append(Program(file.read_text(encoding="utf-8"), str(file)))
        return dict(zip(EXAMPLES, play(programs, before=BEFORE[request.param], at_once=4), strict=True))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.page}-{e.number}")
def test_an_example_prints_what_the_page_says(example: Example, played: dict[Example, Ended]) -> None:
    done = played[example]
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
