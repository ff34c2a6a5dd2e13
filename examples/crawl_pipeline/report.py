#!/usr/bin/env python3
"""Make report.html, one self-contained page, from the figures of the crawl and of its way through Kafka and Spark.

Reads tables.json (batch.py) and, of the other programs, what is there: crawl.json, top.json, verify.json, stream.json, lag.jsonl, progress.jsonl.
The page loads nothing from anywhere: the charting library is inside, and a content security policy forbids all else. Every text that comes
from the site is escaped. The file appears whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from charts import (
    degree_chart,
    depth_chart,
    inlinks_chart,
    latency_chart,
    map_chart,
    megabytes,
    milliseconds,
    outside_chart,
    throughput_chart,
    title_of,
)
from plotly.offline import get_plotlyjs
from streamcharts import batches_chart, delay_chart, lag_chart, windows_chart

from gkafka import __version__


@dataclass
class Told:
    """What the programs beside batch.py have written, each empty if it is not there.

    crawl: crawl.json, verify: verify.json, events: stream.json (when the stream was killed, was back, had caught up), top: top.json;
    lags: the lines of lag.jsonl, batches: those of progress.jsonl.
    """

    crawl: dict[str, Any] = field(default_factory=dict)
    verify: dict[str, Any] = field(default_factory=dict)
    events: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    lags: list[dict[str, Any]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)


# -- tables of the page ---------------------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, limit: int = 0) -> str:
    """An HTML table; numbers to the right. Cells are escaped here, and only here."""
    rows = list(rows)
    shown = rows[:limit] if limit else rows
    body = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in shown)
    more = f'<p class="note">and {len(rows) - limit:,} more</p>' if limit and len(rows) > limit else ""
    heads = "".join(
        f"<th{NUMBER if is_number(value) else ''}>{escape(name)}</th>" for name, value in zip(head, rows[0] if rows else head, strict=True)
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{more}'


NUMBER, SHORT = ' class="number"', ' class="short"'
SHORT_CHARS = 16
"""A text of so many characters stays on its line, as numbers do; a longer one, a path say, may be broken anywhere on a narrow screen."""


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return f'<td class="{"good" if value else "bad"}">{"equal" if value else "differs"}</td>'
    if is_number(value):
        return f"<td{NUMBER}>{value:,}</td>"
    text = str(value)
    return f"<td{SHORT if len(text) <= SHORT_CHARS else ''}>{escape(text)}</td>"


def status_table(tables: dict[str, Any]) -> str:
    meaning = {"200": "OK", "301": "Moved permanently", "404": "Not found"}
    fetched = tables["totals"]["fetched"] or 1
    rows = sorted(tables["status"].items())
    return table(["status", "", "paths", "share"], [[code, meaning.get(code, ""), count, f"{count / fetched:.2%}"] for code, count in rows])


def dead_table(tables: dict[str, Any]) -> str:
    rows = sorted(tables["dead"], key=lambda row: (-row[2], row[0]))
    if not rows:
        return '<p class="note">None: every link within the site leads somewhere.</p>'
    return table(["on the page", "leads to", "times"], rows, limit=40)


def latency_table(tables: dict[str, Any]) -> str:
    values = tables["latency"]["percentiles"]
    names = {"p50": "half of the requests", "p90": "90 %", "p95": "95 %", "p99": "99 %", "p100": "all"}
    return table(["answered", "within"], [[name, milliseconds(values[key])] for key, name in names.items() if key in values])


def partition_table(tables: dict[str, Any]) -> str:
    rows = [
        [topic, number, count, f"{first:,} to {last:,}", megabytes(size)]
        for topic, number, count, first, last, size in tables["partitions"]
    ]
    return table(["topic", "partition", "records", "offsets", "keys and values"], rows)


def figure_table(tables: dict[str, Any], told: Told) -> str:
    return table(["step", "figure"], [*crawl_figures(told.crawl), *stream_figures(tables, told), *batch_figures(tables.get("batch", {}))])


def crawl_figures(crawl: dict[str, Any]) -> list[list[str]]:
    if not crawl:
        return []
    seconds = crawl["crawl_s"] or 1e-9
    produced = sum(crawl["produced"].values())
    acknowledged = sum(crawl["acknowledged"].values())
    return [
        ["crawled", f"{crawl['fetched'] / seconds:,.0f} paths/s, {crawl['bytes'] / 1e6 / seconds:,.1f} MB/s of HTML"],
        ["produced", f"{produced / seconds:,.0f} records/s, by {crawl['greenlets']} greenlets through one producer"],
        ["acknowledged", f"{acknowledged:,} of {produced:,}; the last {crawl['settle_s']:.2f} s after the last page"],
    ]


def stream_figures(tables: dict[str, Any], told: Told) -> list[list[str]]:
    rows = []
    for query in dict.fromkeys(batch["query"] for batch in told.batches):
        mine = [batch for batch in told.batches if batch["query"] == query]
        count, busy = sum(batch["rows"] for batch in mine), sum(batch["ms"] for batch in mine) / 1000
        text = f"{count:,} rows in {len(mine)} batches, {busy:.1f} s of work ({count / (busy or 1e-9):,.0f} rows/s)"
        rows.append([f"stream: {query}", f"{text}; {sum(batch['late'] for batch in mine):,} rows came too late"])
    if told.events:
        killed, back, end = (told.events[name] for name in ("killed_at", "back_at", "caught_up_at"))
        rows.append(
            [
                "kill -9",
                f"with {told.events['left_at_kill']:,} links to count; the stream was back after {back - killed:.1f} s, and had caught up {end - back:.1f} s later",
            ]
        )
    delay = tables.get("archive", {}).get("delay")
    if delay:
        worst = f"95 % within {delay['p95'] / 1000:.2f} s, all within {delay['p100'] / 1000:.2f} s"
        rows.append(["from the producer to Parquet", f"half of the records within {delay['p50'] / 1000:.2f} s, {worst}, the kill included"])
    return rows


def batch_figures(batch: dict[str, Any]) -> list[list[str]]:
    if not batch:
        return []
    rate = batch["records"] / (batch["read_s"] or 1e-9)
    return [
        ["batch: Kafka to rows", f"{batch['read_s']:.1f} s for {batch['records']:,} records ({rate:,.0f}/s)"],
        ["batch: figures", f"{batch['compute_s']:.1f} s in Spark {batch['spark']}"],
    ]


def verify_table(verify: dict[str, Any]) -> str:
    return table(
        ["what", "numbers", "from the files", "through Kafka", ""],
        [[r["name"], r["values"], r["files"], r["kafka"], r["equal"]] for r in verify["rows"]],
    )


# -- the page -------------------------------------------------------------------------------------------------------------------------
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f6fa; color: #16202e; font: 15px/1.5 Inter, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
header { background: linear-gradient(120deg, #14244a, #1f4fae 60%, #12827c); color: #fff; padding: 40px 0 76px; }
main, header > div { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
h1 { margin: 0 0 6px; font-size: 30px; letter-spacing: -0.02em; }
header p { margin: 0; opacity: .85; max-width: 72ch; }
.badge { display: inline-block; margin-top: 16px; padding: 6px 14px; border-radius: 99px; font-weight: 600; font-size: 14px; }
.badge.good { background: #d8f5e6; color: #0a5c37; } .badge.bad { background: #fde2e0; color: #97201a; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 14px; margin-top: -48px; }
.tile, section { background: #fff; border-radius: 12px; box-shadow: 0 1px 2px #16202e14, 0 4px 16px #16202e0d; }
.tile { padding: 16px 18px; } .tile b { display: block; font-size: 25px; line-height: 1.25; letter-spacing: -0.02em; }
.tile span { color: #66758a; font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; margin: 18px 0 40px; }
section { padding: 20px 22px 16px; min-width: 0; } section.wide { grid-column: 1 / -1; }
h2 { margin: 0; font-size: 17px; } .about { margin: 2px 0 12px; color: #66758a; font-size: 13.5px; }
.scroll { overflow: auto; } section:not(.wide) .scroll { max-height: 470px; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; } th.number { text-align: right; } th { color: #66758a; font-weight: 600; position: sticky; top: 0; background: #fff; }
table + p, .scroll + .scroll { margin-top: 16px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid #e6eaf0; vertical-align: top; }
td { overflow-wrap: anywhere; } td.short, td.number, td.good, td.bad { white-space: nowrap; overflow-wrap: normal; }
.number { font-variant-numeric: tabular-nums; text-align: right; padding-right: 32px; } td.good { color: #0a7a49; font-weight: 600; } td.bad { color: #c22a22; font-weight: 600; }
.note { color: #66758a; font-size: 13px; } footer { color: #66758a; font-size: 13px; padding: 0 0 40px; text-align: center; }
@media (max-width: 860px) {
  .grid { grid-template-columns: minmax(0, 1fr); } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  main, header > div { padding: 0 14px; } section { padding: 16px 14px 12px; } .tile { padding: 12px 14px; } .tile b { font-size: 21px; }
  section:not(.wide) .scroll { max-height: none; } table { font-size: 12px; } th, td { padding-right: 8px; } .number { padding-right: 12px; }
}
@media print { body { background: #fff; } section:not(.wide) .scroll { max-height: none; } section { break-inside: avoid; box-shadow: none; border: 1px solid #e6eaf0; } }
"""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
DRAW = """
for (const [id, chart] of Object.entries(CHARTS))
  Plotly.newPlot(id, chart.data, chart.layout, {displayModeBar: false, responsive: true});
"""


class Report:
    """Sections in order, and the charts that they hold."""

    def __init__(self) -> None:
        self.sections: list[str] = []
        self.charts: dict[str, Any] = {}

    def add(self, title: str, about: str, *parts: go.Figure | str, wide: bool = False) -> None:
        """parts: figures, or HTML that is escaped already."""
        body = "".join(part if isinstance(part, str) else self._chart(part) for part in parts)
        kind = ' class="wide"' if wide else ""
        self.sections.append(f'<section{kind}><h2>{escape(title)}</h2><p class="about">{escape(about)}</p>{body}</section>')

    def _chart(self, figure: go.Figure) -> str:
        name = f"chart-{len(self.charts)}"
        self.charts[name] = json.loads(figure.to_json())
        return f'<div id="{name}"></div>'


def page(tables: dict[str, Any], told: Told, name: str, *, kafka: str = "") -> str:
    """kafka: the version of the brokers, "" if nobody knows it."""
    verify = told.verify
    report = Report()
    sections(report, tables, told)
    badge = ""
    if verify:
        values = sum(row["values"] for row in verify["rows"])
        text = (
            f"✓ {values:,} numbers compared with the HTML files: all equal"
            if verify["equal"]
            else "✗ the figures differ from the HTML files: see below"
        )
        badge = f'<div class="badge {"good" if verify["equal"] else "bad"}">{text}</div>'
    # In a script element only "<" can end the script: as an escape of JSON it cannot.
    charts = json.dumps(report.charts).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>gkafka demo: {escape(name)}</title><style>{STYLE}</style></head><body>
<header><div><h1>gkafka: a crawl through Kafka and Spark, killed midway</h1>
<p>{escape(versions(tables, kafka))}</p>
<p>The site: {escape(name)}. Crawled by greenlets, sent through one gkafka producer to Apache Kafka, followed by streaming queries in PySpark through format("gkafka") that were killed midway.</p>{badge}</div></header>
<main><div class="tiles">{"".join(f"<div class='tile'><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in tiles(tables, told))}</div>
<noscript><p class="note">The charts need JavaScript; the tables do not.</p></noscript>
<div class="grid">{"".join(report.sections)}</div>
<footer>Made by examples/crawl_pipeline/report.py. Nothing on this page is loaded from elsewhere.</footer></main>
<script>{get_plotlyjs()}</script><script>const CHARTS = {charts};{DRAW}</script></body></html>
"""


def versions(tables: dict[str, Any], kafka: str) -> str:
    """What ran, and when the report was made."""
    spark = tables.get("batch", {}).get("spark")
    parts = [f"gkafka {__version__}", f"Python {platform.python_version()}"]
    parts += [f"{what} {version}" for what, version in (("Apache Kafka", kafka), ("Spark", spark)) if version]
    return f"{', '.join(parts)}; {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"


def tiles(tables: dict[str, Any], told: Told) -> list[tuple[str, str]]:
    totals = tables["totals"]
    shown = [
        *promises(tables, told),
        (f"{totals['pages']:,}", f"pages of {totals['fetched']:,} paths"),
        (f"{totals['links']:,}", "links"),
        (megabytes(totals["bytes"]), "of answers"),
        (f"{totals['links_dead']:,}", "dead links"),
        (f"{totals['links_outside']:,}", f"links out, to {len(tables['outside']):,} hosts"),
    ]
    if told.crawl:
        shown.append((f"{sum(told.crawl['produced'].values()) / (told.crawl['crawl_s'] or 1e-9):,.0f}", "records a second into Kafka"))
    return shown


def promises(tables: dict[str, Any], told: Told) -> list[tuple[str, str]]:
    """What the run is for, so it comes first."""
    archive = tables.get("archive")
    if not archive:
        return []
    doubled = archive["duplicates"] + told.top.get("repeats", 0)
    return [(f"{archive['lost']:,}", "lost, after kill -9"), (f"{doubled:,}", "doubled, after kill -9")]


def sections(report: Report, tables: dict[str, Any], told: Told) -> None:
    verify = told.verify
    report.add("Into Kafka", "Records of both topics, by the time they were produced.", throughput_chart(tables), wide=True)
    if told.lags:
        about = (
            "What the groups of the streaming queries had left in Kafka, as an administrator sees it. Red: between kill -9 and the return."
        )
        report.add("Lag", about, lag_chart(told.lags, told.events), wide=True)
    if told.batches:
        about = "Each point is a micro-batch: when it ended, and how many rows a second it took in. Red: between kill -9 and the return."
        report.add("Through Spark", about, batches_chart(told.batches, told.events))
    if "archive" in tables:
        about = (
            "From the producer's time of a record until the Parquet file that holds it was whole. It contains the way into Kafka, "
            "the wait for the micro-batch before, Spark's start, and the time between kill -9 and the return."
        )
        report.add("Delay", about, delay_chart(tables))
    if tables.get("windows"):
        about = "Computed by the stream: windows of the records' own time, closed by the watermark. Latency is that of the requests."
        report.add("The crawl", about, windows_chart(tables), wide=True)
    report.add("Most linked pages", "Links from other pages of the site.", inlinks_chart(tables))
    report.add("Links out", "The hosts that the site links to most.", outside_chart(tables))
    report.add(
        "The site by folder", "Area: bytes. Colour: in-links, darker is more. Click a folder to enter it.", map_chart(tables), wide=True
    )
    report.add(
        "How linked is a page?", "Paths by their number of in-links; each bin is twice as wide as the one before.", degree_chart(tables)
    )
    report.add("Depth", "Clicks from the start page, breadth first.", depth_chart(tables))
    slowest = [[path, milliseconds(taken), megabytes(size)] for path, taken, size in tables["latency"]["slowest"][:10]]
    about = (
        "From the request to the last byte, as the crawler sees it. It contains the site's server, which runs on the same machine, and the wait "
        f"of a greenlet for its turn: {told.crawl.get('greenlets', 'all')} greenlets share one core. Kafka and Spark are not in it."
    )
    report.add("Latency", about, latency_chart(tables))
    report.add("Answers", "What the crawler got, and how long that took.", status_table(tables), latency_table(tables))
    report.add("Dead links", "Links within the site that are answered with 404.", dead_table(tables))
    report.add("Slowest answers", "Large pages, and those that waited behind them.", table(["path", "time", "size"], slowest))
    report.add("In Kafka", "What the topics hold.", partition_table(tables))
    report.add("How fast", "Of this run, on this machine, with everything on it.", figure_table(tables, told))
    if verify:
        about = f"Counted again straight from the HTML files in {verify['seconds']:.1f} s, by a program that knows neither Kafka nor the crawler."
        report.add("Compared", about, verify_table(verify), wide=True)


def write_whole(path: Path, text: str) -> None:
    """The file is there whole, or as it was before: never in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def load_lines(path: Path) -> list[dict[str, Any]]:
    """The last line may be cut short: its writer was killed."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def load_told(folder: Path) -> Told:
    return Told(
        crawl=load(folder / "crawl.json"),
        verify=load(folder / "verify.json"),
        events=load(folder / "stream.json"),
        top=load(folder / "top.json"),
        lags=load_lines(folder / "lag.jsonl"),
        batches=load_lines(folder / "progress.jsonl"),
    )


def start_of(tables: dict[str, Any]) -> str:
    """The path of level 0."""
    return next((path for path, (_, depth, _, _) in tables["paths"].items() if depth == 0), "/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tables.json is")
    parser.add_argument("--name", help="the heading (default: the title of the start page)")
    parser.add_argument("--kafka", default="", metavar="VERSION", help="of the brokers, for the heading")
    parser.add_argument("--write", type=Path, metavar="FILE", help="(default: report.html in the folder)")
    args = parser.parse_args()
    tables = load(args.folder / "tables.json")
    if not tables:
        parser.error(f"{args.folder}: no tables.json there; batch.py writes it")
    text = page(tables, load_told(args.folder), args.name or title_of(tables, start_of(tables)), kafka=args.kafka)
    path = args.write or args.folder / "report.html"
    write_whole(path, text)
    print(f"{path} ({len(text) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
