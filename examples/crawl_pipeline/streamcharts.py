"""The charts of the stream: its windows, its lag, its batches and its delay, each as a figure. It is no program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import plotly.graph_objects as go
from charts import AMBER, BLUE, MUTED, RED, RIGHT, TEAL, styled

COLOURS = {"archive": BLUE, "inlinks": AMBER, "windows": TEAL}


def windows_chart(tables: dict[str, Any]) -> go.Figure:
    """Pages and 95 % of the latencies in each window."""
    rows = tables["windows"]
    seconds = [(row[0] - rows[0][0]) / 1000 for row in rows]
    figure = go.Figure()
    figure.add_bar(
        x=seconds,
        y=[row[1] for row in rows],
        customdata=[row[2] / 1e6 for row in rows],
        name="pages in a window",
        marker={"color": BLUE},
        hovertemplate="%{y:,} pages, %{customdata:,.1f} MB from %{x} s on<extra></extra>",
    )
    figure.add_scatter(
        x=seconds,
        y=[row[4] for row in rows],
        name="p95 of latency, ms (right)",
        yaxis="y2",
        mode="lines+markers",
        line={"color": AMBER, "width": 3},
        hovertemplate="95 % within %{y:,.1f} ms<extra></extra>",
    )
    styled(figure, 320, xaxis={"title": "seconds since the first window"}, yaxis={"title": "pages", "rangemode": "tozero"})
    return figure.update_layout(yaxis2=RIGHT, margin={"r": 56})


def lag_chart(lags: Sequence[dict[str, Any]], events: dict[str, Any]) -> go.Figure:
    """lags: as lag.py tells them."""
    figure = go.Figure()
    busy = [number for number, lag in enumerate(lags) if any(lag["left"].values())]
    shown = lags[max(0, busy[0] - 1) : busy[-1] + 2] if busy else []
    began = shown[0]["at"] if shown else 0.0
    for query in shown[0]["left"] if shown else ():
        figure.add_scatter(
            x=[lag["at"] - began for lag in shown],
            y=[lag["left"][query] for lag in shown],
            name=query,
            mode="lines",
            line={"color": COLOURS.get(query, MUTED), "width": 3},
            hovertemplate="%{y:,} records behind after %{x:.1f} s<extra>" + query + "</extra>",
        )
    styled(figure, 320, xaxis={"title": "seconds"}, yaxis={"title": "records behind", "tickformat": "~s", "rangemode": "tozero"})
    if shown:
        mark_death(figure, events, began)
    return figure.update_layout(margin={"t": 40})


def batches_chart(batches: Sequence[dict[str, Any]], events: dict[str, Any]) -> go.Figure:
    """batches: as stream.py's progress.jsonl tells them. Each as a point: when it ended, how many rows a second it took in."""
    figure = go.Figure()
    began = min((seconds_of(batch["at"]) for batch in batches), default=0.0)
    for query in dict.fromkeys(batch["query"] for batch in batches):
        mine = [batch for batch in batches if batch["query"] == query and batch["ms"]]
        figure.add_scatter(
            x=[seconds_of(batch["at"]) + batch["ms"] / 1000 - began for batch in mine],
            y=[batch["rows"] * 1000 / batch["ms"] for batch in mine],
            customdata=[[batch["rows"], batch["ms"]] for batch in mine],
            name=query,
            mode="markers",
            cliponaxis=False,
            marker={"color": COLOURS.get(query, MUTED), "size": 9, "opacity": 0.75},
            hovertemplate="%{y:,.0f} rows/s: %{customdata[0]:,} rows in %{customdata[1]:,} ms<extra>" + query + "</extra>",
        )
    styled(figure, 320, xaxis={"title": "seconds"}, yaxis={"title": "rows a second, of a batch", "tickformat": "~s", "rangemode": "tozero"})
    mark_death(figure, events, began)
    return figure.update_layout(margin={"t": 40})


def delay_chart(tables: dict[str, Any]) -> go.Figure:
    """From the producer's time to a whole Parquet file, by the second of the former."""
    rows = tables["archive"]["delays"]
    figure = go.Figure()
    for name, at, colour in (("worst", 3, AMBER), ("median", 2, BLUE)):
        figure.add_scatter(
            x=[row[0] / 1000 for row in rows],
            y=[row[at] / 1000 for row in rows],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 3},
            hovertemplate="%{y:,.2f} s<extra>" + name + "</extra>",
        )
    return styled(
        figure, 320, xaxis={"title": "produced, seconds since the first"}, yaxis={"title": "seconds later", "rangemode": "tozero"}
    )


def mark_death(figure: go.Figure, events: dict[str, Any], began: float) -> None:
    """The time between kill -9 and the return, in red, as the text above the chart says: a word in it would lie on its lines."""
    if "killed_at" in events:
        dead = {"x0": events["killed_at"] - began, "x1": events["back_at"] - began}
        figure.add_vrect(**dead, fillcolor=RED, opacity=0.12, line_width=0)


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
