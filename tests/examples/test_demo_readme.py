"""README: its examples run as they stand, it is short, and every link of every page leads somewhere."""

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
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """A page without its programs, in which brackets and # mean something else."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken(page: Path) -> list[str]:
    """Links to files that are not there, or to headings that their page has not."""
    found = []
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{page.relative_to(ROOT)}: {link}")
    return found


@pytest.mark.parametrize(("source", "printed"), list(zip(BLOCKS, PRINTS, strict=True)), ids=["threads", "greenlets"])
def test_an_example_of_the_readme_runs(source: str, printed: str) -> None:
    with MockCluster() as cluster:
        source = source.replace("127.0.0.1:9092", cluster.bootstrap)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
        )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_readme_is_read_in_two_minutes_and_begins_with_a_program() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100] == []
    assert lines.index("```python") < 15, "install and ten lines are on the first screen"
    assert len(BLOCKS[0].splitlines()) <= 10


def test_every_page_of_docs_is_in_its_index() -> None:
    index = ROOT / "docs" / "README.md"
    named = {link.partition("#")[0] for link in LINK.findall(text_of(index))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {index.name} - named == set()


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    assert [link for page in PAGES for link in broken(page)] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text("# A `b`, [c](a.md)\n[x](a.md) [x](#a-b-c) [x](none.md) [x](a.md#none)\n```\n[x](y)\n```\n")
    assert broken(page) == ["a.md: none.md", "a.md: a.md#none"]
