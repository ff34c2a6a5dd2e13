#!/usr/bin/env python3
"""Make report.html, one self-contained page, from the figures of the crawl.

Reads tables.json (pipeline.py) and, if they are there, crawl.json (crawler.py) and verify.json (verify.py). The page loads nothing from
anywhere: the charting library is inside, and a content security policy forbids all else. Every text that comes from the site is escaped. The
file appears whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

INK, MUTED, GRID = "#16202e", "#66758a", "#e6eaf0"
BLUE, TEAL, AMBER, RED = "#2f6fde", "#12a594", "#e59a17", "#d6453d"
SCALE = [[0, "#dfe9fb"], [0.35, "#8fb4f2"], [0.7, "#2f6fde"], [1, "#173a7a"]]
TOP = 20
START = "/index.html"
LABEL_CHARS = 44


# -- charts: each from the tables, as a figure -----------------------------------------------------------------------------------------
def styled(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 56, "r": 16, "t": 12, "b": 44},
        font={"family": "Inter, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": INK, "font": {"color": "#fff"}, "bordercolor": INK},
        legend={"orientation": "h", "y": 1.12, "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        bargap=0.18,
        **layout,
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, linecolor=GRID, tickfont={"color": MUTED}, title_font={"color": MUTED, "size": 12})
    figure.update_yaxes(gridcolor=GRID, zeroline=False, linecolor=GRID, tickfont={"color": MUTED}, title_font={"color": MUTED, "size": 12})
    return figure


def throughput_chart(tables: dict[str, Any]) -> go.Figure:
    """Records a second over the crawl, and all of them so far."""
    rows = tables["timeline"]
    width = tables["timeline_bin_ms"]
    filled = {row[0]: row[1] + row[2] for row in rows}
    at = list(range(0, (rows[-1][0] if rows else 0) + width, width))
    rates = [filled.get(each, 0) * 1000 / width for each in at]
    so_far, sums = 0, []
    for each in at:
        so_far += filled.get(each, 0)
        sums.append(so_far)
    seconds = [(each + width / 2) / 1000 for each in at]
    figure = go.Figure()
    figure.add_bar(
        x=seconds,
        y=rates,
        name="records a second",
        marker={"color": BLUE},
        hovertemplate="%{y:,.0f} records/s at %{x:.2f} s<extra></extra>",
    )
    figure.add_scatter(
        x=[(each + width) / 1000 for each in at],
        y=sums,
        name="records so far (right)",
        yaxis="y2",
        mode="lines",
        line={"color": AMBER, "width": 3, "shape": "spline", "smoothing": 0.4},
        hovertemplate="%{y:,} records after %{x:.2f} s<extra></extra>",
    )
    styled(
        figure,
        320,
        xaxis={"title": "seconds since the first record", "rangemode": "tozero"},
        yaxis={"title": "records a second", "tickformat": "~s"},
    )
    right = {
        "tickmode": "auto",
        "nticks": 6,
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "showgrid": False,
        "zeroline": False,
        "tickformat": ".3~s",
    }
    figure.update_layout(yaxis2={**right, "tickfont": {"color": MUTED}}, margin={"r": 56}, hovermode="closest", bargap=0.08)
    return figure


def inlinks_chart(tables: dict[str, Any]) -> go.Figure:
    top = top_inlinks(tables)[::-1]
    figure = go.Figure(
        go.Bar(
            x=[count for _, count in top],
            y=[label(path) for path, _ in top],
            orientation="h",
            marker={"color": BLUE},
            text=[f"{count:,}" for _, count in top],
            textposition="outside",
            cliponaxis=False,
            customdata=[escape(title_of(tables, path)) for path, _ in top],
            hovertemplate="<b>%{customdata}</b><br>%{x:,} links from other pages<extra></extra>",
        )
    )
    styled(figure, 60 + 25 * max(4, len(top)), xaxis={"visible": False}, yaxis={"automargin": True, "tickfont": {"size": 12}})
    figure.update_yaxes(tickfont={"color": INK}, ticksuffix="  ", showgrid=False)
    return figure.update_layout(margin={"r": 60, "t": 4, "b": 8})


def degree_chart(tables: dict[str, Any]) -> go.Figure:
    """How many paths have how many in-links, in bins that double."""
    bins: Counter[int] = Counter()
    for degree, paths in tables["inlink_degrees"].items():
        bins[int(degree).bit_length()] += paths
    order = range(min(bins, default=0), max(bins, default=0) + 1)
    spans = ["0" if not each else "1" if each == 1 else f"{2 ** (each - 1):,} to {2**each - 1:,}" for each in order]
    figure = go.Figure(
        go.Bar(
            x=["0" if not each else short(2 ** (each - 1)) + "+" * (each > 1) for each in order],
            y=[bins[each] for each in order],
            marker={"color": TEAL},
            customdata=spans,
            text=[f"{bins[each]:,}" if bins[each] else "" for each in order],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y:,} paths with %{customdata} in-links<extra></extra>",
        )
    )
    return styled(
        figure, 320, xaxis={"title": "links from other pages, at least", "type": "category", "tickangle": 0}, yaxis={"title": "paths"}
    )


def latency_chart(tables: dict[str, Any]) -> go.Figure:
    """Logarithmic bins: a request on the loopback takes from half a millisecond to seconds when hundreds wait for two cores."""
    per_decade = 8
    bins = Counter(math.floor(math.log10(max(value, 1e-3)) * per_decade) for value in tables["latency"]["values"])
    order = range(min(bins, default=0), max(bins, default=0) + 1)
    centres = [10 ** ((each + 0.5) / per_decade) for each in order]
    spans = [f"{milliseconds(10 ** (each / per_decade))} to {milliseconds(10 ** ((each + 1) / per_decade))}" for each in order]
    figure = go.Figure(
        go.Bar(
            x=centres,
            y=[bins[each] for each in order],
            width=[centre * (10 ** (0.46 / per_decade) - 10 ** (-0.46 / per_decade)) for centre in centres],
            marker={"color": BLUE},
            customdata=spans,
            hovertemplate="%{y:,} requests took %{customdata}<extra></extra>",
        )
    )
    ticks = [10**power for power in range(-3, 7)]
    names = [milliseconds(tick) for tick in ticks]
    styled(
        figure,
        320,
        xaxis={"type": "log", "title": "from the request to the last byte", "tickvals": ticks, "ticktext": names},
        yaxis={"title": "requests"},
    )
    for name, colour, anchor in (("p50", TEAL, "center"), ("p95", AMBER, "right"), ("p99", RED, "left")):
        value = tables["latency"]["percentiles"].get(name)
        if value:
            figure.add_vline(x=value, line={"color": colour, "width": 2, "dash": "dot"})
            mark = {"text": name, "showarrow": False, "yanchor": "bottom", "xanchor": anchor, "font": {"color": colour, "size": 12}}
            figure.add_annotation(x=math.log10(value), y=1.02, yref="paper", **mark)
    return figure.update_layout(margin={"t": 28})


def depth_chart(tables: dict[str, Any]) -> go.Figure:
    levels = sorted({*map(int, tables["depth"]), *map(int, tables["links_by_depth"])})
    figure = go.Figure()
    for name, key, colour in (("paths", "depth", BLUE), ("links on them", "links_by_depth", TEAL)):
        values = [tables[key].get(str(level), 0) for level in levels]
        figure.add_bar(
            name=name,
            x=[f"level {level}" for level in levels],
            y=values,
            marker={"color": colour},
            text=[f"{value:,}" for value in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y:,} " + name + " at %{x}<extra></extra>",
        )
    return styled(
        figure,
        320,
        barmode="group",
        yaxis={"type": "log", "title": "logarithmic", "dtick": 1, "tickformat": "~s"},
        xaxis={"type": "category"},
    )


def outside_chart(tables: dict[str, Any]) -> go.Figure:
    top = sorted(tables["outside"].items(), key=lambda item: (-item[1], item[0]))[:15][::-1]
    figure = go.Figure(
        go.Bar(
            x=[count for _, count in top],
            y=[label(host) for host, _ in top],
            orientation="h",
            marker={"color": AMBER},
            text=[f"{count:,}" for _, count in top],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x:,} links to %{y}<extra></extra>",
        )
    )
    styled(figure, 60 + 25 * max(4, len(top)), xaxis={"visible": False}, yaxis={"automargin": True})
    figure.update_yaxes(tickfont={"color": INK}, ticksuffix="  ", showgrid=False)
    return figure.update_layout(margin={"r": 60, "t": 4, "b": 8})


def map_chart(tables: dict[str, Any]) -> go.Figure:
    """The site by folder: the area is the size, the colour the number of in-links."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    parents: dict[str, str] = {}
    for path, (_, _, size, _) in tables["paths"].items():
        if size:
            for folder in (path, *map(str, PurePosixPath(path).parents)):
                sizes[folder] += size
                counts[folder] += tables["inlinks"].get(path, 0)
                parents[folder] = "" if folder == "/" else str(PurePosixPath(folder).parent)
    ids = list(parents)
    numbers = {each: str(number) for number, each in enumerate(ids, 1)}
    names = {each: label(PurePosixPath(each).name or "the site") for each in ids}
    figure = go.Figure(
        go.Treemap(
            ids=[numbers[each] for each in ids],
            labels=[names[each] for each in ids],
            parents=[numbers.get(parents[each], "") for each in ids],
            values=[sizes[each] for each in ids],
            branchvalues="total",
            maxdepth=3,
            marker={
                "colors": [math.log10(1 + counts[each]) for each in ids],
                "colorscale": SCALE,
                "line": {"width": 1, "color": "#fff"},
                "pad": {"t": 22, "l": 3, "r": 3, "b": 3},
            },
            customdata=[[f"{counts[each]:,}", megabytes(sizes[each]), escape(title_of(tables, each))] for each in ids],
            hovertemplate="<b>%{label}</b> %{customdata[2]}<br>%{customdata[1]}, %{customdata[0]} in-links<extra></extra>",
            tiling={"pad": 1},
            pathbar={"visible": True, "thickness": 22},
        )
    )
    return styled(figure, 460).update_layout(margin={"l": 0, "r": 0, "t": 26, "b": 0})


# -- words ----------------------------------------------------------------------------------------------------------------------------
def label(text: str) -> str:
    """For an axis: short, and without the markup that the charting library would follow."""
    return escape(text if len(text) <= LABEL_CHARS else "…" + text[1 - LABEL_CHARS :])


def short(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 else str(number)


def milliseconds(value: float) -> str:
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def title_of(tables: dict[str, Any], path: str) -> str:
    return str(tables["paths"].get(path, ["", "", "", ""])[3]) or path


def top_inlinks(tables: dict[str, Any]) -> list[tuple[str, int]]:
    return sorted(tables["inlinks"].items(), key=lambda item: (-item[1], item[0]))[:TOP]


# -- tables of the page ---------------------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, limit: int = 0) -> str:
    """An HTML table; numbers to the right. Cells are escaped here, and only here."""
    rows = list(rows)
    shown = rows[:limit] if limit else rows
    body = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in shown)
    more = f'<p class="note">and {len(rows) - limit:,} more</p>' if limit and len(rows) > limit else ""
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return f'<td class="{"good" if value else "bad"}">{"equal" if value else "differs"}</td>'
    if isinstance(value, (int, float)):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"


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


def figure_table(tables: dict[str, Any], crawl: dict[str, Any]) -> str:
    rows: list[list[Any]] = []
    if crawl:
        seconds = crawl["crawl_s"] or 1e-9
        produced = sum(crawl["produced"].values())
        rows += [
            ["crawled", f"{crawl['fetched'] / seconds:,.0f} paths/s, {crawl['bytes'] / 1e6 / seconds:,.1f} MB/s of HTML"],
            ["produced", f"{produced / seconds:,.0f} records/s, by {crawl['greenlets']} greenlets through one producer"],
            [
                "acknowledged",
                f"{sum(crawl['acknowledged'].values()):,} of {produced:,}; the last {crawl['settle_s']:.2f} s after the last page",
            ],
        ]
    pipeline = tables.get("pipeline")
    if pipeline:
        rate = pipeline["records"] / (pipeline["read_s"] or 1e-9)
        rows.append(
            [
                "Kafka to Parquet",
                f"{pipeline['read_s']:.1f} s for {pipeline['records']:,} records ({rate:,.0f}/s, Spark's first job included)",
            ]
        )
        rows.append(
            ["figures", f"{pipeline['compute_s']:.1f} s in Spark {pipeline['spark']}, after {pipeline['start_s']:.1f} s to start it"]
        )
    return table(["step", "figure"], rows)


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
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; margin-top: -48px; }
.tile, section { background: #fff; border-radius: 12px; box-shadow: 0 1px 2px #16202e14, 0 4px 16px #16202e0d; }
.tile { padding: 16px 18px; } .tile b { display: block; font-size: 25px; line-height: 1.25; letter-spacing: -0.02em; }
.tile span { color: #66758a; font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px; margin: 18px 0 40px; }
section { padding: 20px 22px 16px; min-width: 0; } section.wide { grid-column: 1 / -1; }
h2 { margin: 0; font-size: 17px; } .about { margin: 2px 0 12px; color: #66758a; font-size: 13.5px; }
.scroll { overflow: auto; max-height: 470px; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: #66758a; font-weight: 600; position: sticky; top: 0; background: #fff; }
table + p, .scroll + .scroll { margin-top: 16px; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid #e6eaf0; vertical-align: top; overflow-wrap: anywhere; }
td.number { font-variant-numeric: tabular-nums; } td.good { color: #0a7a49; font-weight: 600; } td.bad { color: #c22a22; font-weight: 600; }
.note { color: #66758a; font-size: 13px; } footer { color: #66758a; font-size: 13px; padding: 0 0 40px; text-align: center; }
@media (max-width: 860px) { .grid { grid-template-columns: minmax(0, 1fr); } }
@media print { body { background: #fff; } .scroll { max-height: none; } section { break-inside: avoid; box-shadow: none; border: 1px solid #e6eaf0; } }
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


def page(tables: dict[str, Any], crawl: dict[str, Any], verify: dict[str, Any], name: str) -> str:
    report = Report()
    sections(report, tables, crawl, verify)
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
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(name)}: crawl report</title><style>{STYLE}</style></head><body>
<header><div><h1>{escape(name)}</h1>
<p>Crawled by greenlets, sent through one gkafka producer to Apache Kafka, read back in PySpark through format("gkafka").</p>{badge}</div></header>
<main><div class="tiles">{"".join(f"<div class='tile'><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in tiles(tables, crawl))}</div>
<noscript><p class="note">The charts need JavaScript; the tables do not.</p></noscript>
<div class="grid">{"".join(report.sections)}</div>
<footer>Made by examples/report.py. Nothing on this page is loaded from elsewhere.</footer></main>
<script>{get_plotlyjs()}</script><script>const CHARTS = {charts};{DRAW}</script></body></html>
"""


def tiles(tables: dict[str, Any], crawl: dict[str, Any]) -> list[tuple[str, str]]:
    totals = tables["totals"]
    shown = [
        (f"{totals['pages']:,}", f"pages of {totals['fetched']:,} paths"),
        (f"{totals['links']:,}", "links"),
        (megabytes(totals["bytes"]), "of answers"),
        (f"{totals['links_dead']:,}", "dead links"),
        (f"{totals['links_outside']:,}", f"links out, to {len(tables['outside']):,} hosts"),
    ]
    if crawl:
        shown.append((f"{sum(crawl['produced'].values()) / (crawl['crawl_s'] or 1e-9):,.0f}", "records a second into Kafka"))
    return shown


def sections(report: Report, tables: dict[str, Any], crawl: dict[str, Any], verify: dict[str, Any]) -> None:
    report.add("Into Kafka", "Records of both topics, by the time they were produced.", throughput_chart(tables), wide=True)
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
    about = "In the crawler, waiting for its turn included: hundreds of greenlets share one core."
    report.add("Latency", about, latency_chart(tables))
    report.add("Answers", "What the crawler got, and how long that took.", status_table(tables), latency_table(tables))
    report.add("Dead links", "Links within the site that are answered with 404.", dead_table(tables))
    report.add("Slowest answers", "Large pages, and those that waited behind them.", table(["path", "time", "size"], slowest))
    report.add("In Kafka", "What the topics hold.", partition_table(tables))
    report.add("How fast", "Of this run, on this machine, with everything on it.", figure_table(tables, crawl))
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tables.json is")
    parser.add_argument("--name", help="the heading (default: the title of the start page)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="(default: report.html in the folder)")
    args = parser.parse_args()
    tables = load(args.folder / "tables.json")
    if not tables:
        parser.error(f"{args.folder}: no tables.json there; pipeline.py writes it")
    text = page(tables, load(args.folder / "crawl.json"), load(args.folder / "verify.json"), args.name or title_of(tables, START))
    path = args.write or args.folder / "report.html"
    write_whole(path, text)
    print(f"{path} ({len(text) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
