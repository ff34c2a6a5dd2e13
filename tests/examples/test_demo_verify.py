"""The checker finds every difference, and needs nothing of what it checks."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verify

from tests.examples.conftest import PIPELINE

Tables = dict[str, Any]


def figures_of(site: Path) -> Tables:
    figures = verify.count(verify.Site(site).crawl())
    return {**figures, "latency": {"count": figures["totals"]["fetched"]}}


def crawl_of(figures: Tables) -> dict[str, dict[str, int]]:
    counted = {"pages": figures["totals"]["fetched"], "links": figures["totals"]["links"]}
    return {"produced": dict(counted), "acknowledged": dict(counted)}


def streamed(figures: Tables) -> tuple[Tables, Tables]:
    """The tables with what the stream has written, and what the consumer of its topic has read."""
    totals = figures["totals"]
    halves = [totals["fetched"] // 2, totals["fetched"] - totals["fetched"] // 2]
    tables = {
        **figures,
        "windows": [[0, halves[0], 100, figures["status"]["200"], 1.0], [1000, halves[1], totals["bytes"] - 100, 0, 1.0]],
        "archive": {"records": totals["fetched"] + totals["links"], "duplicates": 0, "lost": 0, "foreign": 0},
    }
    return tables, {"inlinks": dict(figures["linked"]), "top": [list(row) for row in figures["top"]], "records": 9, "repeats": 0}


def differing(site: Path, tables: Tables, crawl: dict[str, dict[str, int]] | None = None, top: Tables | None = None) -> list[str]:
    expected = verify.count(verify.Site(site).crawl())
    return [row.name for row in verify.compare(expected, tables, crawl or crawl_of(expected), top) if not row.equal]


def test_equal_figures_are_equal(site: Path) -> None:
    assert differing(site, figures_of(site)) == []


def test_one_link_less_is_found_wherever_it_was(site: Path) -> None:
    whole = verify.Site(site).crawl()
    for page, fetched in whole.items():
        for at in range(len(fetched.links or [])):
            less = copy.deepcopy(whole)
            del (less[page].links or [])[at]
            tables = {**verify.count(less), "latency": {"count": len(less)}}
            found = differing(site, tables)
            assert "links" in found
            assert "digest of each page's links and anchors" in found


def swapped(tables: Tables) -> None:
    tables["inlinks"]["/a/one.html"] += 1
    tables["inlinks"]["/a/two.html"] -= 1


CHANGES: dict[str, Callable[[Tables], object]] = {
    "bytes": lambda t: t["totals"].update(bytes=t["totals"]["bytes"] + 1),
    "status codes": lambda t: t["status"].pop("404"),
    "paths by depth": lambda t: t["depth"].update({"9": 1}),
    "links by depth": lambda t: t.pop("links_by_depth"),
    "status, depth, bytes, title of each path": lambda t: t["paths"].update({"/up.html": [200, 1, 66, "Down"]}),
    "in-links of each path": swapped,
    "out-links of each page": lambda t: t["outlinks"].clear(),
    "digest of each page's links and anchors": lambda t: t["digests"].update({"/up.html": "0" * 64}),
    "dead links": lambda t: t["dead"].pop(),
    "links out, by host": lambda t: t["outside"].update({"example.org": 2}),
    "paths by number of in-links": lambda t: t["inlink_degrees"].popitem(),
    "latencies measured": lambda t: t["latency"].update(count=0),
    "pages": lambda t: t["totals"].pop("pages"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_figure_is_compared(site: Path, name: str) -> None:
    tables = figures_of(site)
    CHANGES[name](tables)
    assert differing(site, tables) == [name]


def test_what_the_stream_wrote_is_equal(site: Path) -> None:
    tables, top = streamed(figures_of(site))
    assert differing(site, tables, top=top) == []


def reordered(tables: Tables, top: Tables) -> None:
    top["top"][0], top["top"][1] = top["top"][1], top["top"][0]


def one_window_less(tables: Tables, top: Tables) -> None:
    del tables["windows"][1]


STREAM_CHANGES: dict[str, tuple[Callable[[Tables, Tables], object], list[str]]] = {
    "a count": (lambda _, top: top["inlinks"].update({"/a/one.html": 99}), ["stream: in-links of each path"]),
    "a path": (lambda _, top: top["inlinks"].popitem(), ["stream: in-links of each path"]),
    "the order": (reordered, ["stream: top 20 in order"]),
    "no top": (lambda _, top: top.pop("top"), ["stream: top 20 in order"]),
    "a repeat": (lambda _, top: top.update(repeats=1), ["stream: counts told twice"]),
    "a window": (one_window_less, ["stream: pages in windows", "stream: bytes in windows"]),
    "an answer": (lambda tables, _: tables["windows"][1].__setitem__(3, 1), ["stream: answers 200 in windows"]),
    "a record less": (
        lambda tables, _: tables["archive"].update(records=tables["archive"]["records"] - 1, lost=1),
        ["stream: records archived", "stream: records lost"],
    ),
    "a record twice": (lambda tables, _: tables["archive"].update(duplicates=1), ["stream: records archived twice"]),
    "a foreign one": (lambda tables, _: tables["archive"].update(foreign=1), ["stream: records of nowhere"]),
}


@pytest.mark.parametrize("name", STREAM_CHANGES)
def test_each_figure_of_the_stream_is_compared(site: Path, name: str) -> None:
    change, rows = STREAM_CHANGES[name]
    tables, top = streamed(figures_of(site))
    change(tables, top)
    assert differing(site, tables, top=top) == rows


def test_a_stream_that_wrote_nothing_is_a_difference(site: Path) -> None:
    assert len(differing(site, figures_of(site), top={})) == 10


@pytest.mark.parametrize("what", ["produced", "acknowledged"])
def test_what_the_crawler_counted_is_compared(site: Path, what: str) -> None:
    tables = figures_of(site)
    crawl = crawl_of(tables)
    crawl[what]["links"] -= 1
    assert differing(site, tables, crawl) == [f"records {what}: links"]


def test_the_exit_status_says_whether_all_is_equal(site: Path, tmp_path: Path) -> None:
    tables = figures_of(site)
    path, result = tmp_path / "tables.json", tmp_path / "verify.json"
    command = [sys.executable, str(PIPELINE / "verify.py"), str(site), str(path), "--write", str(result)]
    for wrong in (0, 1):
        tables["totals"]["links"] += wrong
        path.write_text(json.dumps(tables))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == wrong
        assert ("DIFFERS" in done.stdout) == bool(wrong)
        assert json.loads(result.read_text())["equal"] is not bool(wrong)


def test_it_can_count_before_there_is_anything_to_compare(site: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables.json"
    command = [sys.executable, str(PIPELINE / "verify.py"), str(site), str(tables), "--wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as counting:
        tables.write_text(json.dumps(figures_of(site)))
        printed, _ = counting.communicate("\n", timeout=60)
    assert counting.returncode == 0
    assert printed.rstrip().endswith("all equal")


def test_the_checker_is_independent() -> None:
    """It imports the standard library alone: nothing of gkafka, of the crawler, or of what reads Kafka."""
    tree = ast.parse((PIPELINE / "verify.py").read_text())
    imported = {name.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    assert imported.isdisjoint({"http", "urllib", "socket", "importlib", "subprocess"})
