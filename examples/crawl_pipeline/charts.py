"""The charts of the site and of the crawl, each from the tables, as a figure; and words for numbers. It is no program of its own."""

from __future__ import annotations

import math
from collections import Counter
from html import escape
from pathlib import PurePosixPath
from typing import Any

import plotly.graph_objects as go

INK, MUTED, GRID = "#16202e", "#66758a", "#e6eaf0"
BLUE, TEAL, AMBER, RED = "#2f6fde", "#12a594", "#e59a17", "#d6453d"
SCALE = [[0, "#dfe9fb"], [0.35, "#8fb4f2"], [0.7, "#2f6fde"], [1, "#173a7a"]]
RIGHT = {
    "tickmode": "auto",  # round numbers, not those beside the left axis' grid
    "nticks": 6,
    "overlaying": "y",
    "side": "right",
    "rangemode": "tozero",
    "showgrid": False,
    "zeroline": False,
    "tickfont": {"color": MUTED},
}
"""A second axis of values."""
TOP = 20
LABEL_CHARS = 26
"""What has room beside bars on a narrow screen."""


def styled(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 56, "r": 16, "t": 12, "b": 44},
        font={"family": "Inter, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"bgcolor": INK, "font": {"color": "#fff"}, "bordercolor": INK},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        bargap=0.18,
        **layout,
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, linecolor=GRID, tickfont={"color": MUTED}, title_font={"color": MUTED, "size": 12})
    figure.update_xaxes(automargin=True, title_standoff=8)  # a title below labels that stand upright on a narrow screen
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
    return figure.update_layout(yaxis2={**RIGHT, "tickformat": ".3~s"}, margin={"r": 56}, hovermode="closest", bargap=0.08)


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
            textfont={"size": 10},
            constraintext="none",
            cliponaxis=False,
            hovertemplate="%{y:,} paths with %{customdata} in-links<extra></extra>",
        )
    )
    return styled(figure, 320, xaxis={"title": "links from other pages, at least", "type": "category"}, yaxis={"title": "paths"})


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
    for row, (name, colour) in enumerate((("p50", TEAL), ("p95", AMBER), ("p99", RED))):  # each in a row of its own: they may be close
        value = tables["latency"]["percentiles"].get(name)
        if value:
            figure.add_vline(x=value, line={"color": colour, "width": 2, "dash": "dot"})
            mark = {"text": name, "showarrow": False, "yanchor": "bottom", "yshift": 15 * row, "font": {"color": colour, "size": 12}}
            figure.add_annotation(x=math.log10(value), y=1.02, yref="paper", **mark)
    return figure.update_layout(margin={"t": 58})


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
            texttemplate="%{y:.3~s}",
            textposition="outside",
            textfont={"size": 11},
            constraintext="none",
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
    smallest = {"minsize": 9, "mode": "hide"}  # of names: what nobody can read is not shown
    return styled(figure, 460).update_layout(margin={"l": 0, "r": 0, "t": 26, "b": 0}, uniformtext=smallest)


# -- words ----------------------------------------------------------------------------------------------------------------------------------
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
