#!/usr/bin/env python3
"""Count everything again, straight from the HTML files, and compare it with what came through Kafka and Spark.

An independent check: no gkafka, no Kafka, no web server, nothing of the crawler. It parses with html.parser what the crawler cuts with a
regular expression, and resolves links with code of its own. Both follow these definitions:

Site      A folder, served at "/". A path begins with "/", is percent-decoded (UTF-8), and has neither query nor fragment.
          A path that ends in "/" means the index.html there.
Answer    200 if the path names a file inside the folder (symbolic links are followed, not out of it); 301 to path + "/" if it names a
          folder; 404 otherwise, and for any path with a ".." left in it. The bytes of an answer count for 200 only.
Page      A path answered with 200 whose name ends in .html or .htm. Its text is UTF-8; what is not, is U+FFFD.
Title     The text of the page's first <title>, each run of white space one blank.
Link      Every <a> start tag with an href, outside comments, <script> and <style>. Without its fragment, then without its query, the
          target is: the page itself if nothing is left; outside, written as it stands, if it begins with a scheme or "//"; else the path
          relative to the page (RFC 3986, 5.2.4), percent-decoded; before and after that, runs of "/" are one. A <base> is not heeded.
Anchor    The text between that tag and the next <a or </a, tags and comments dropped, each run of white space one blank, 120 characters.
Order     Breadth first. Level 0 is the start, /index.html; level n + 1 is every path that a page of level n links to, or a 301 of level n leads to,
          that is in no earlier level, sorted by its characters. At most N paths are fetched (all without a bound): the first N of the
          levels in a row. `depth` is the level.
In-links  Of a path that was fetched: the links to it from other pages. Out-links of a page: its links to other paths of the site.
Dead      A link within the site to a path that was fetched and answered with 404.
Windows   Of the stream: every page is in one window of its event time, none in two; their sums are those of the site.
Archive   Of the stream: each record of both topics is in it once.
Top       The in-links that a consumer of the stream's topic has last heard of, for every path that has any; and the twenty largest, paths with
          the same number sorted by their characters. A path's number has grown with each record: one that had not would be a duplicate.
Digest    Per page, SHA-256 over its links, each as target, tab, anchor, sorted, with a line feed between: no link can be lost, doubled or
          changed without changing it.

Times cannot be found in files: of latencies only their number is compared.
Ends with status 0 if every number is equal, else 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

START = "/index.html"
ANCHOR_CHARS = 120
BLANK = re.compile(r"\s+")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
SHOWN_DIFFERENCES = 5
TOP = 20


# -- the site, from its files -----------------------------------------------------------------------------------------------------------
class Parsed(HTMLParser):
    """Links as (href, anchor) in order, and the title."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, str]] = []
        self.title: str | None = None
        self._anchor: list[str] | None = None
        self._title: list[str] | None = None
        self._raw = False
        self.feed(text)
        self.close()
        self._end_anchor()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._end_anchor()
            href = next((value or "" for name, value in attrs if name == "href"), None)
            if href is not None:
                self.links.append((href, ""))
                self._anchor = []
        elif tag == "title" and self.title is None:
            self._title = []
        self._raw = tag in ("script", "style")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # To a browser, the slash of <script/> means nothing; html.parser takes it for the end of the element.
        self.handle_starttag(tag, attrs)
        if self._raw:
            self.set_cdata_mode(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._end_anchor()
        elif tag == "title" and self._title is not None:
            self.title, self._title = words("".join(self._title)), None
        self._raw = False

    def handle_data(self, data: str) -> None:
        if self._raw:
            return
        for open_text in (self._anchor, self._title):
            if open_text is not None:
                open_text.append(data)

    def _end_anchor(self) -> None:
        if self._anchor is not None:
            self.links[-1] = (self.links[-1][0], words("".join(self._anchor))[:ANCHOR_CHARS])
            self._anchor = None


def words(text: str) -> str:
    return BLANK.sub(" ", text).strip()


def target_of(page: str, href: str) -> str:
    """Where a link on `page` leads: a path of the site, or an address outside as it was written."""
    href = "".join(c for c in href.strip("".join(map(chr, range(33)))) if c not in "\t\r\n")
    href = href.partition("#")[0].partition("?")[0]
    if not href:
        return page
    if href.startswith("//") or SCHEME.match(href):
        return href
    whole = href if href.startswith("/") else page[: page.rindex("/") + 1] + href
    kept: list[str] = []
    parts = re.split("/+", whole)[1:]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    if parts[-1] in (".", ".."):  # these name a folder, just as a last "/" does
        kept.append("")
    path = decoded("/" + "/".join(kept))
    return path + "index.html" if path.endswith("/") else path


def decoded(path: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path.encode("utf-8", "replace"))
    return re.sub("/+", "/", raw.decode("utf-8", "replace"))


def is_inside(target: str) -> bool:
    return target.startswith("/") and not target.startswith("//")


@dataclass
class Fetched:
    """What one path is: see Answer, Page, Title."""

    status: int
    depth: int
    size: int = 0
    title: str = ""
    links: list[tuple[str, str]] | None = None  # (target, anchor); None if it is no page
    leads_to: str | None = None  # of a 301


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def fetch(self, path: str, depth: int) -> Fetched:
        found = self._file(path)
        if found is None:
            return Fetched(404, depth)
        if found.is_dir():
            return Fetched(301, depth, leads_to=path.rstrip("/") + "/index.html")
        body = found.read_bytes()
        if not path.lower().endswith((".html", ".htm")):
            return Fetched(200, depth, len(body))
        parsed = Parsed(body.decode("utf-8", "replace"))
        links = [(target_of(path, href), anchor) for href, anchor in parsed.links]
        return Fetched(200, depth, len(body), parsed.title or "", links)

    def _file(self, path: str) -> Path | None:
        if ".." in path.split("/") or "\0" in path:
            return None
        try:
            found = Path(f"{self.folder}{path}").resolve()
            return found if found.is_relative_to(self.folder) and (found.is_file() or found.is_dir()) else None
        except (OSError, RuntimeError):
            return None

    def crawl(self, max_pages: int | None = None, start: str = START) -> dict[str, Fetched]:
        """Every path fetched, in order."""
        seen: dict[str, Fetched] = {}
        level, depth = [start], 0
        while level:
            for path in level:
                if max_pages is not None and len(seen) >= max_pages:
                    return seen
                seen[path] = self.fetch(path, depth)
            found: set[str] = set()
            for path in level:
                found.update(target for target, _ in seen[path].links or () if is_inside(target))
                found.update(filter(None, [seen[path].leads_to]))
            level, depth = sorted(found - seen.keys()), depth + 1
        return seen


# -- the numbers --------------------------------------------------------------------------------------------------------------------
def count(site: dict[str, Fetched]) -> dict[str, Any]:
    """Each figure under the name that the pipeline gives it."""
    pages = {path: each.links for path, each in site.items() if each.links is not None}
    links = [(page, target) for page, found in pages.items() for target, _ in found]
    inside = [(page, target) for page, target in links if is_inside(target)]
    inlinks = Counter(target for page, target in inside if page != target)
    dead = Counter((page, target) for page, target in inside if target in site and site[target].status == 404)
    return {
        "totals": {
            "fetched": len(site),
            "pages": len(pages),
            "bytes": sum(each.size for each in site.values()),
            "links": len(links),
            "links_inside": len(inside),
            "links_outside": len(links) - len(inside),
            "links_to_self": sum(1 for page, target in inside if page == target),
            "links_dead": sum(dead.values()),
        },
        "status": strings(Counter(each.status for each in site.values())),
        "depth": strings(Counter(each.depth for each in site.values())),
        "links_by_depth": strings(Counter(site[page].depth for page, _ in links)),
        "paths": {path: [each.status, each.depth, each.size, each.title] for path, each in site.items()},
        "inlinks": {path: inlinks[path] for path in site},
        "linked": dict(inlinks),
        "top": sorted(inlinks.items(), key=lambda item: (-item[1], item[0]))[:TOP],
        "outlinks": {page: sum(1 for target, _ in found if is_inside(target) and target != page) for page, found in pages.items()},
        "digests": {page: digest(found) for page, found in pages.items()},
        "dead": [[page, target, times] for (page, target), times in sorted(dead.items())],
        "outside": dict(Counter(host_of(target) for _, target in links if not is_inside(target))),
        "inlink_degrees": strings(Counter(inlinks[path] for path in site)),
    }


def strings(counted: Counter[int]) -> dict[str, int]:
    return {str(key): value for key, value in counted.items()}  # JSON's keys are strings


def digest(links: list[tuple[str, str]]) -> str:
    return hashlib.sha256("\n".join(sorted(f"{target}\t{anchor}" for target, anchor in links)).encode()).hexdigest()


def host_of(target: str) -> str:
    """ "host:port" in small letters for http, https and //; else the scheme and its colon."""
    found = re.match(r"(?i)(?:https?:)?//([^/]*)", target)
    return found[1].lower() if found else target[: target.index(":") + 1].lower()


# -- the comparison -----------------------------------------------------------------------------------------------------------------
@dataclass
class Row:
    """One line of the comparison. values: how many numbers it stands for; differences: what to print of those that differ."""

    name: str
    values: int
    files: str
    kafka: str
    differences: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.differences


NAMES = {
    "status": "status codes",
    "depth": "paths by depth",
    "links_by_depth": "links by depth",
    "paths": "status, depth, bytes, title of each path",
    "inlinks": "in-links of each path",
    "outlinks": "out-links of each page",
    "digests": "digest of each page's links and anchors",
    "dead": "dead links",
    "outside": "links out, by host",
    "inlink_degrees": "paths by number of in-links",
}


def compare(
    expected: Mapping[str, Any],
    tables: Mapping[str, Any],
    crawl: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Every figure of the files against the pipeline's.

    crawl: what the crawler says that it sent, and was told it was stored; top: what the consumer of the stream's topic has read, and with it all
    else that the stream has written. None: not compared.
    """
    totals = tables.get("totals", {})
    rows = [compare_values(f"{name.replace('_', ' ')}", value, totals.get(name)) for name, value in expected["totals"].items()]
    rows += [compare_tables(title, expected[name], tables.get(name)) for name, title in NAMES.items()]
    rows.append(compare_values("latencies measured", expected["totals"]["fetched"], tables.get("latency", {}).get("count")))
    for what in ("produced", "acknowledged") if crawl is not None else ():
        told = crawl.get(what, {}) if crawl else {}
        rows.append(compare_values(f"records {what}: pages", expected["totals"]["fetched"], told.get("pages")))
        rows.append(compare_values(f"records {what}: links", expected["totals"]["links"], told.get("links")))
    return rows if top is None else rows + compare_stream(expected, tables, top)


def compare_stream(expected: Mapping[str, Any], tables: Mapping[str, Any], top: Mapping[str, Any]) -> list[Row]:
    totals = expected["totals"]
    windows, archive = tables.get("windows", []), tables.get("archive", {})
    sums = [sum(row[at] for row in windows) for at in (1, 2, 3)]
    return [
        compare_tables("stream: in-links of each path", expected["linked"], top.get("inlinks")),
        compare_tables("stream: top 20 in order", ranked(expected["top"]), ranked(top.get("top", []))),
        compare_values("stream: counts told twice", 0, top.get("repeats")),
        compare_values("stream: pages in windows", totals["fetched"], sums[0]),
        compare_values("stream: bytes in windows", totals["bytes"], sums[1]),
        compare_values("stream: answers 200 in windows", expected["status"].get("200", 0), sums[2]),
        compare_values("stream: records archived", totals["fetched"] + totals["links"], archive.get("records")),
        compare_values("stream: records archived twice", 0, archive.get("duplicates")),
        compare_values("stream: records lost", 0, archive.get("lost")),
        compare_values("stream: records of nowhere", 0, archive.get("foreign")),
    ]


def ranked(top: Iterable[Any]) -> dict[str, Any]:
    """Each place of a list, so that another order is a difference, too."""
    return {f"place {place}": list(row) for place, row in enumerate(top, 1)}


def compare_values(name: str, files: int, kafka: int | None) -> Row:
    differences = [] if files == kafka else [f"{files} in the files, {kafka} through Kafka"]
    return Row(name, 1, f"{files:,}", "none" if kafka is None else f"{kafka:,}", differences)


def compare_tables(name: str, files: Any, kafka: Any) -> Row:
    left, right = keyed(files), keyed(kafka)
    differing = [key for key in sorted({*left, *right}) if left.get(key) != right.get(key)]
    text = [f"{key}: {left.get(key)} in the files, {right.get(key)} through Kafka" for key in differing]
    return Row(name, len(left), f"{len(left):,} rows", f"{len(right):,} rows", text)


def keyed(table: Any) -> dict[str, Any]:
    """A table as a dictionary; rows of a list are keyed by all but their last cell."""
    if table is None:
        return {}
    if isinstance(table, Mapping):
        return dict(table)
    return {" -> ".join(map(str, row[:-1])): row[-1] for row in table}


def as_text(rows: list[Row]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  {'from the files':>16}  {'through Kafka':>16}"]
    for row in rows:
        lines.append(f"{row.name:{width}}  {row.files:>16}  {row.kafka:>16}  {'equal' if row.equal else 'DIFFERS'}")
        lines += [f"{'':{width}}    {text}" for text in row.differences[:SHOWN_DIFFERENCES]]
        if len(row.differences) > SHOWN_DIFFERENCES:
            lines.append(f"{'':{width}}    and {len(row.differences) - SHOWN_DIFFERENCES:,} more")
    values, wrong = sum(row.values for row in rows), sum(len(row.differences) for row in rows)
    lines.append(f"{values:,} numbers compared: " + ("all equal" if not wrong else f"{wrong:,} DIFFER"))
    return "\n".join(lines)


def read_figures(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """tables.json, and what the crawler and the stream's consumer told, or None."""
    try:
        tables = json.loads(args.tables.read_text(encoding="utf-8"))
        crawl, top = (json.loads(path.read_text(encoding="utf-8")) if path else None for path in (args.crawl, args.top))
    except (OSError, ValueError) as exc:
        parser.error(f"cannot read the figures to compare: {exc}")
    return tables, crawl, top


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the site's folder")
    parser.add_argument("tables", type=Path, help="tables.json of batch.py")
    parser.add_argument("--crawl", type=Path, help="crawl.json of crawl.py: what it produced is compared, too")
    parser.add_argument("--top", type=Path, help="top.json of top.py: all that the stream has written is compared, too")
    parser.add_argument("--max-pages", type=int, metavar="N", help="the bound that the crawler had")
    parser.add_argument("--start", default=START, metavar="PATH", help="where the crawler began (default: %(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the comparison as JSON, too")
    parser.add_argument("--wait", action="store_true", help="count at once, and compare when a line comes on standard input")
    args = parser.parse_args()
    if not (args.folder / "index.html").is_file():
        parser.error(f"{args.folder}: no index.html there")
    if not args.wait:  # a wrong name is told before the files are counted
        figures = read_figures(parser, args)
    began = time.monotonic()
    expected = count(Site(args.folder).crawl(args.max_pages, args.start))
    taken = time.monotonic() - began
    if args.wait:
        sys.stdin.readline()
        figures = read_figures(parser, args)
    tables, crawl, top = figures
    rows = compare(expected, tables, crawl, top)
    print(as_text(rows))
    equal = all(row.equal for row in rows)
    if args.write:
        told = [{"name": row.name, "values": row.values, "files": row.files, "kafka": row.kafka, "equal": row.equal} for row in rows]
        args.write.write_text(json.dumps({"equal": equal, "seconds": taken, "rows": told}, indent=1), encoding="utf-8")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
