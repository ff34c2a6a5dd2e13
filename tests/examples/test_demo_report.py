"""The report: whole or not there, self-contained, and safe with a site's words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import report
import verify

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def tables_of(site: Path) -> dict[str, Any]:
    """What the pipeline would give for the site."""
    figures = verify.count(verify.Site(site).crawl())
    count = figures["totals"]["fetched"]
    return {
        **figures,
        "latency": {
            "count": count,
            "values": [1.5] * count,
            "percentiles": {"p50": 1.5, "p90": 1.5, "p95": 1.5, "p99": 1.5, "p100": 1.5},
            "slowest": [["/index.html", 1.5, 10]],
        },
        "timeline": [[0, 1, 10, 400], [500, 2, 20, 800]],
        "timeline_bin_ms": 250,
        "partitions": [["pages", 0, 3, 0, 2, 300]],
        "batch": {"spark": "4.3.0", "read_s": 1.0, "compute_s": 1.0, "records": 33},
    }


def streamed(tables: dict[str, Any]) -> tuple[dict[str, Any], report.Told]:
    """The tables with the stream's figures, and what its programs tell."""
    shares = {"p50": 400.0, "p90": 800.0, "p95": 900.0, "p99": 950.0, "p100": 1200.0}
    archive = {
        "records": 33,
        "duplicates": 0,
        "lost": 0,
        "foreign": 0,
        "delay": shares,
        "delays": [[0, 20, 350.0, 900], [1000, 13, 500.0, 1200]],
    }
    lags = [
        {"at": 100.0 + second, "done": {"archive": done, "inlinks": done}, "left": {"archive": 33 - done, "inlinks": 33 - done}}
        for second, done in enumerate((0, 10, 10, 33))
    ]
    batch = {"query": "archive", "run": "r", "batch": 0, "at": "1970-01-01T00:01:40.500Z", "rows": 33, "ms": 500, "parts": {}, "late": 0}
    events = {"killed_at": 101.5, "back_at": 102.5, "caught_up_at": 103.0, "left_at_kill": 23}
    told = report.Told(crawl=crawl_of(tables), events=events, top={"repeats": 0}, lags=lags, batches=[batch, {**batch, "batch": 1}])
    return {**tables, "archive": archive, "windows": [[100_000, 2, 70, 2, 1.5], [101_000, 1, 30, 1, 2.5]]}, told


def crawl_of(tables: dict[str, Any]) -> dict[str, Any]:
    counted = {"pages": 3, "links": 30}
    return {"fetched": 3, "bytes": 100, "crawl_s": 0.5, "settle_s": 0.1, "greenlets": 8, "produced": counted, "acknowledged": counted}


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_loads_nothing_from_elsewhere(site: Path) -> None:
    tables = tables_of(site)
    elements = Elements(report.page(*streamed(tables), "a site")).found
    assert not [attrs for _, attrs in elements if {"src", "href", "srcset", "data"} & attrs.keys()]
    policies = [attrs["content"] for tag, attrs in elements if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert "default-src 'none'" in (policies[0] or "")
    assert "http" not in (policies[0] or "")


def test_words_of_the_site_stay_words(site: Path) -> None:
    tables = tables_of(site)
    tables["paths"][f"/{EVIL}"] = [200, 1, 5, EVIL]
    tables["inlinks"][f"/{EVIL}"] = 10**6
    tables["outside"][EVIL] = 10**6
    tables["dead"].append([f"/{EVIL}", EVIL, 10**6])
    tables["partitions"].append([EVIL, 0, 1, 0, 0, 1])
    clean = Elements(report.page(tables_of(site), report.Told(crawl=crawl_of(tables)), "a site")).found
    text = report.page(tables, report.Told(crawl=crawl_of(tables)), EVIL)
    assert [tag for tag, _ in Elements(text).found if tag in ("script", "img")] == [tag for tag, _ in clean if tag in ("script", "img")]
    # The charting library knows a few tags itself: what reaches it must not hold any.
    charts = text[text.index("const CHARTS") :]
    assert "\\u003cimg" not in charts
    assert "\\u003cscript" not in charts


def test_every_chart_has_its_place(site: Path) -> None:
    tables = tables_of(site)
    text = report.page(tables, report.Told(), "a site")
    places = re.findall(r'<div id="(chart-\d+)">', text)
    assert len(places) >= 7
    assert all(f'"{name}":' in text for name in places)


def test_the_stream_has_its_charts_and_says_that_nothing_was_lost(site: Path) -> None:
    tables = tables_of(site)
    without = report.page(tables, report.Told(crawl=crawl_of(tables)), "a site")
    text = report.page(*streamed(tables), "a site")
    titles = [set(re.findall(r"<h2>([^<]+)</h2>", page)) for page in (without, text)]
    assert titles[1] - titles[0] == {"Lag", "Through Spark", "Delay", "The crawl"}
    assert "<b>0</b><span>doubled, after kill -9</span>" in text
    assert "<b>0</b><span>lost, after kill -9</span>" in text
    assert "with 23 links to count" in text
    assert "66 rows in 2 batches, 1.0 s of work (66 rows/s)" in text


def test_a_line_that_was_cut_short_by_the_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_text('{"query": "archive"}\n{"query": "inl')
    assert report.load_told(tmp_path).batches == [{"query": "archive"}]


def test_the_comparison_is_told_as_it_ended(site: Path) -> None:
    tables = tables_of(site)
    row = {"name": "links", "values": 1, "files": "33", "kafka": "33", "equal": True}
    equal = report.page(tables, report.Told(verify={"equal": True, "seconds": 1.0, "rows": [row]}), "a site")
    other = report.page(tables, report.Told(verify={"equal": False, "seconds": 1.0, "rows": [{**row, "equal": False}]}), "a site")
    assert "all equal" in equal
    assert "differ from the HTML files" not in equal
    assert "differ from the HTML files" in other
    assert "all equal" not in other


def test_a_site_of_one_page_without_links_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>Alone</title>")
    text = report.page(tables_of(tmp_path), report.Told(), "alone")
    assert "None: every link within the site leads somewhere." in text


def test_an_interrupted_write_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    report.write_whole(target, "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_heading_names_gkafka_and_what_is_lost_and_doubled_comes_first(site: Path) -> None:
    tables = tables_of(site)
    text = report.page(*streamed(tables), "a site", kafka="9.8.7")
    assert "<h1>gkafka: " in text
    assert f"gkafka {report.__version__}, Python" in text
    assert "Apache Kafka 9.8.7" in text
    found, told = streamed(tables)
    assert [what for _, what in report.tiles(found, told)][:2] == ["lost, after kill -9", "doubled, after kill -9"]


def test_on_a_narrow_screen_numbers_and_words_stay_whole_and_paths_are_broken() -> None:
    """In a table of 400 pixels "equal" stood in three lines, and "2,411" in two."""
    assert report.cell("0 to 1,041,043") == '<td class="short">0 to 1,041,043</td>'
    assert report.cell("/library/multiprocessing.html") == "<td>/library/multiprocessing.html</td>"
    rules = re.findall(r"^(td[^{]*) \{ ([^}]*) \} (td[^{]*) \{ ([^}]*) \}", report.STYLE, re.MULTILINE)
    assert rules == [
        ("td", "overflow-wrap: anywhere;", "td.short, td.number, td.good, td.bad", "white-space: nowrap; overflow-wrap: normal;")
    ]


def test_the_page_says_what_its_latencies_contain(site: Path) -> None:
    text = report.page(*streamed(tables_of(site)), "a site")
    assert "It contains the site&#x27;s server" in text
    assert "8 greenlets share one core. Kafka and Spark are not in it." in text
    assert "It contains the way into Kafka" in text
