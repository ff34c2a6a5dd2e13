"""The pages of docs/ travel with the package, `kafka-tools docs` shows them, and texts name that command."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gkafka import pages
from tests.cli.conftest import Tool
from tests.cli.terminal import ROOT, Terminal, environment, piped
from tests.test_floors import PACKAGE, modules, parsed

NAMES = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "README")
NAMED = re.compile(rf"{pages.SEE} ([a-z][\w-]*)")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text of the package: messages, help, docstrings; of an f-string its fixed parts."""
    for path in modules():
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_no_text_of_the_package_names_a_file_that_pip_does_not_install() -> None:
    inside = (PACKAGE / "pages.py", PACKAGE / "cli" / "docs.py")
    assert [(path.name, text) for path, text in texts() if re.search(r"\bdocs/[\w-]+\.md", text) and path not in inside] == []


def test_every_page_that_a_text_names_is_there() -> None:
    said = {name for _, text in texts() for name in NAMED.findall(text)}
    called = {
        node.args[0].value
        for path in modules()
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "page"
        and isinstance(node.args[0], ast.Constant)
    }
    assert called >= {"options", "recipes", "security", "spark", "transactions"}
    assert said | called <= set(NAMES)


def test_without_a_name_all_pages_are_listed_with_their_titles(tool: Tool) -> None:
    told = tool("docs")
    rows = [line.split(maxsplit=1) for line in told.out.splitlines()]
    assert (told.code, rows[0]) == (0, ["PAGE", "ABOUT"])
    assert [name for name, _ in rows[1:]] == NAMES
    assert ["kafka-tools", "kafka-tools"] in rows
    assert tool("docs", "README").out == told.out  # as an index is called where the pages are files
    assert json.loads(tool("docs", "--json").out)[0] == {"page": NAMES[0], "about": pages.summary(NAMES[0])}


@pytest.mark.parametrize("name", ["options", "options.md", "docs/options.md"])
def test_a_page_is_printed_as_it_is(name: str, tool: Tool) -> None:
    assert tool("docs", name).out == (ROOT / "docs" / "options.md").read_text()


def test_a_name_that_is_none_is_told_with_the_nearest(tool: Tool) -> None:
    told = tool("docs", "option")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("kafka-tools docs: ")
    assert told.err.endswith("there is no such page; did you mean 'options'?\n  next: kafka-tools docs --help\n")


def test_a_pipe_gets_it_plain_and_a_terminal_by_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho by the pager $LESS; exec cat\n")
    pager.chmod(0o755)
    title = (ROOT / "docs" / "gevent.md").read_text().splitlines()[0]
    assert piped("docs", "gevent", PAGER=str(pager)).stdout.splitlines()[0] == title
    with Terminal("docs", "gevent", env={"PAGER": str(pager)}) as terminal:
        code, shown = terminal.end()
    assert (code, [line.strip() for line in shown.splitlines()[:2]]) == (0, ["by the pager FRX", title])


def test_shells_complete_the_names() -> None:
    asked = {"_KAFKA_TOOLS_COMPLETE": "bash_complete", "COMP_WORDS": "kafka-tools docs gev", "COMP_CWORD": "2"}
    assert piped(**asked).stdout == "plain,gevent\n"


def test_a_wheel_has_them_and_so_has_an_sdist(tmp_path: Path) -> None:
    """By setup.py itself: no package is fetched. What is compiled is left out, for it is not asked about here."""
    build = f"build --build-base {tmp_path}/build egg_info --egg-base {tmp_path} bdist_wheel --dist-dir {tmp_path}"
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", *build.split()],
        cwd=ROOT,
        env={**environment(GKAFKA_BUILD="pure"), "PYTHONWARNINGS": "ignore"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist() if name.startswith("gkafka/docs/")}
    assert found == {f"gkafka/docs/{path.name}": path.read_text() for path in (ROOT / "docs").glob("*.md")}
    (listed,) = tmp_path.glob("*.egg-info/SOURCES.txt")  # what an sdist is made of
    assert set(found) <= {f"gkafka/{line}" for line in listed.read_text().splitlines()}
