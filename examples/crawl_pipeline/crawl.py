#!/usr/bin/env python3
"""Crawl a web site with hundreds of greenlets that share one gkafka producer.

Each path that is fetched becomes a record of the topic `pages`, each link of a page one of the topic `links`:

    pages   key: path    value: {url, status, bytes, ms, title, depth, ts}
    links   key: src     value: {src, dst, anchor}
    both    headers: status, depth (of the page, as decimal text)

The crawl is breadth first, level by level; what counts as a page, a link or a level is written at the top of verify.py. Nothing is monkey
patched: the client's handler is named, and the connections to the site are gevent's. The crawl is a success only if every record that was
produced has been acknowledged at an offset of its own; otherwise the exit status is 1.
"""

from __future__ import annotations

import html
import http.client
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import gevent
import gevent.queue
import gevent.socket
from gevent.pool import Pool
from names import Names, create_topics, parser_of, positive
from tqdm import tqdm

from gkafka import KafkaClient
from gkafka.exceptions import DeliveryError, KafkaException

START = "/index.html"
ANCHOR_CHARS = 120
HTTP_TIMEOUT_S = 30
ACKNOWLEDGED_WITHIN_S = 120
# What a wrong address, a lost connection or a refused option looks like.
EXPECTED = (KafkaException, OSError, http.client.HTTPException, ValueError)


# -- HTML: one regular expression, tag by tag: what looks like a tag inside a quoted attribute is none -------------------------------------------------------------------------
ATTRIBUTES = r"""(?:[^>"']|"[^"]*"|'[^']*')*"""
MARKUP = re.compile(
    rf"""<!--.*?--> | <(?P<raw>script|style)\b{ATTRIBUTES}>.*?</(?P=raw)\s*> | <(?P<close>/?)(?P<tag>[a-z][^\s/>]*)(?P<attributes>{ATTRIBUTES})>""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
ATTRIBUTE = re.compile(r"""([^\s=/"'>]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
DROPPED = re.compile(rf"<!--.*?-->|<(script|style)\b{ATTRIBUTES}>.*?</\1\s*>|</?[a-z]{ATTRIBUTES}>|<[!?][^>]*>", re.DOTALL | re.IGNORECASE)
SLASHES = re.compile("/+")


@dataclass
class Page:
    """What a page says. links: (href as it is written, anchor text), in the page's order."""

    title: str
    links: list[tuple[str, str]]


def parse(source: str) -> Page:
    title: str | None = None
    links: list[tuple[str, str]] = []
    href: str | None = None
    anchor_at = title_at = -1
    for found in MARKUP.finditer(source):
        tag = (found["tag"] or "").lower()
        if tag == "a":
            if href is not None:
                links.append((href, text_of(source[anchor_at : found.start()])[:ANCHOR_CHARS]))
            href, anchor_at = None if found["close"] else href_of(found["attributes"]), found.end()
        elif tag == "title" and title is None:
            if not found["close"]:
                title_at = found.end()
            elif title_at >= 0:
                title = text_of(source[title_at : found.start()])
    if href is not None:
        links.append((href, text_of(source[anchor_at:])[:ANCHOR_CHARS]))
    return Page(title or "", links)


def href_of(attributes: str) -> str | None:
    for found in ATTRIBUTE.finditer(attributes):
        if found[1].lower() == "href":
            return html.unescape(found[2] or found[3] or found[4] or "")
    return None


def text_of(markup: str) -> str:
    if "<" in markup:
        markup = DROPPED.sub("", markup)
    return " ".join(html.unescape(markup).split())


def resolve(page: str, href: str) -> str:
    """The path of the site that a link on `page` leads to, or, unchanged but for fragment and query, an address outside."""
    href = href.strip("".join(map(chr, range(33)))).translate({9: None, 10: None, 13: None})
    href = href.split("#", 1)[0].split("?", 1)[0]
    if not href:
        return page
    if href.startswith("//") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", href):
        return href
    # Quoted: a "?" in the name of a file, or a ";" in a link, is part of the path, not of urljoin's grammar.
    path = unquote(urlsplit(urljoin("http://site" + quote(page), quote(SLASHES.sub("/", href), safe="/%"))).path, errors="replace")
    path = SLASHES.sub("/", path)
    return path + "index.html" if path.endswith("/") else path


def is_inside(target: str) -> bool:
    return target.startswith("/") and not target.startswith("//")


# -- HTTP: keep-alive connections, each used by one greenlet at a time -----------------------------------------------------------------
class Connection(http.client.HTTPConnection):
    """The standard library's client on gevent's sockets: it waits without stopping the other greenlets."""

    def connect(self) -> None:
        self.sock = gevent.socket.create_connection((self.host, self.port), self.timeout)


@dataclass
class Response:
    status: int
    body: bytes
    kind: str
    location: str | None
    ms: float


class Browser:
    """Fetches paths of one site over as many connections as there are greenlets fetching."""

    def __init__(self, address: str) -> None:
        site = urlsplit(address)
        if site.scheme != "http" or not site.hostname:
            raise ValueError(f"{address!r}: must be an address like http://127.0.0.1:8000/")
        self.host, self.port = site.hostname, site.port or 80
        self._idle: gevent.queue.LifoQueue[Connection] = gevent.queue.LifoQueue()

    def url(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{quote(path)}"

    def fetch(self, path: str) -> Response:
        """Raises OSError or http.client.HTTPException if the site cannot be reached."""
        fresh = self._idle.empty()
        connection = Connection(self.host, self.port, timeout=HTTP_TIMEOUT_S) if fresh else self._idle.get()
        try:
            response = self._get(connection, path)
        except (ConnectionError, http.client.HTTPException):
            connection.close()
            if fresh:
                raise
            # A server may close an idle connection at any time; a GET can simply be sent again.
            connection = Connection(self.host, self.port, timeout=HTTP_TIMEOUT_S)
            response = self._get(connection, path)
        self._idle.put(connection)
        return response

    def _get(self, connection: Connection, path: str) -> Response:
        began = time.perf_counter()
        connection.request("GET", quote(path), headers={"User-Agent": "gkafka-crawler"})
        answer = connection.getresponse()
        body = answer.read()
        taken = (time.perf_counter() - began) * 1000
        return Response(answer.status, body, answer.getheader("Content-Type", ""), answer.getheader("Location"), round(taken, 3))


# -- Kafka: every delivery is accounted for --------------------------------------------------------------------------------------------
class Ledger:
    """Produces records and remembers the delivery of each."""

    def __init__(self, producer: Any, topics: dict[str, str]) -> None:
        self._producer = producer
        self._topics = topics  # role ("pages", "links") -> name of the topic
        self._deliveries: list[tuple[str, Any]] = []
        self.errors: Counter[str] = Counter()

    def record(self, role: str, key: str, value: dict[str, Any], headers: list[tuple[str, bytes]]) -> None:
        payload = json.dumps(value, ensure_ascii=False).encode()
        self._deliveries.append((role, self._producer.produce(self._topics[role], payload, key=key.encode(), headers=headers)))

    @property
    def produced(self) -> dict[str, int]:
        return dict(Counter(role for role, _ in self._deliveries))

    def settle(self, timeout: float) -> dict[str, int]:
        """Waits for every acknowledgement; counts, per role, the different offsets that records were stored at."""
        deadline = time.monotonic() + timeout
        stored: dict[str, set[tuple[int, int]]] = {role: set() for role in self._topics}
        for role, delivery in self._deliveries:
            try:
                kept = delivery.result(max(0.0, deadline - time.monotonic()))
                stored[role].add((kept.partition, kept.offset))
            except KafkaException as exc:
                self.errors[f"{type(exc).__name__}: {exc}"] += 1
        return {role: len(offsets) for role, offsets in stored.items()}


# -- the crawl -------------------------------------------------------------------------------------------------------------------------
class Bar:
    """The progress bar; on anything but a terminal, nothing."""

    def __init__(self) -> None:
        self._bar = tqdm(total=1, unit=" pages", disable=None, dynamic_ncols=True, desc="  crawling")
        self._links = 0

    def expect(self, paths: int) -> None:
        self._bar.total = paths
        self._bar.refresh()

    def step(self, links: int) -> None:
        self._links += links
        self._bar.set_postfix_str(f"{self._links:,} links", refresh=False)
        self._bar.update()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.close()


class Crawl:
    def __init__(self, browser: Browser, ledger: Ledger, greenlets: int, max_pages: int | None, bar: Bar, start: str = START) -> None:
        self.browser = browser
        self.ledger = ledger
        self.pool = Pool(greenlets)
        self.max_pages = max_pages
        self.start = start
        self.bar = bar
        self.fetched = self.bytes = self.busy = self.peak = 0

    def run(self) -> None:
        """Level by level, so that the bound cuts at the same path in each run. Raises what stopped a greenlet."""
        seen: set[str] = set()
        level, depth = [self.start], 0
        while level:
            if self.max_pages is not None:
                level = level[: self.max_pages - len(seen)]
            seen.update(level)
            self.bar.expect(len(seen))
            found = set().union(*self.pool.imap_unordered(lambda path, depth=depth: self.visit(path, depth), level))
            if self.max_pages is not None and len(seen) >= self.max_pages:
                return
            level, depth = sorted(found - seen), depth + 1

    def visit(self, path: str, depth: int) -> set[str]:
        """One greenlet's work: fetch a path, produce its records, return the paths that it leads to."""
        self.busy += 1
        self.peak = max(self.peak, self.busy)
        try:
            return self._visit(path, depth)
        finally:
            self.busy -= 1

    def _visit(self, path: str, depth: int) -> set[str]:
        began = time.time()
        response = self.browser.fetch(path)
        is_page = response.status == 200 and response.kind.startswith("text/html")
        page = parse(response.body.decode("utf-8", "replace")) if is_page else Page("", [])
        size = len(response.body) if response.status == 200 else 0
        headers = [("status", b"%d" % response.status), ("depth", b"%d" % depth)]
        value = {"url": self.browser.url(path), "status": response.status, "bytes": size, "ms": response.ms}
        self.ledger.record("pages", path, {**value, "title": page.title, "depth": depth, "ts": int(began * 1000)}, headers)
        leads_to = set(self._links(path, page, headers))
        if response.location:
            leads_to.add(resolve(path, response.location))
        self.fetched, self.bytes = self.fetched + 1, self.bytes + size
        self.bar.step(len(page.links))
        return {target for target in leads_to if is_inside(target)}

    def _links(self, path: str, page: Page, headers: list[tuple[str, bytes]]) -> Iterator[str]:
        for href, anchor in page.links:
            target = resolve(path, href)
            self.ledger.record("links", path, {"src": path, "dst": target, "anchor": anchor}, headers)
            yield target


def main() -> int:
    args = arguments()
    # A greenlet's error ends the crawl and is told there; gevent would print it as well.
    gevent.get_hub().NOT_ERROR += EXPECTED
    try:
        with KafkaClient(args.hosts, handler="gevent") as client:
            summary = crawl_into(client, args)
    except EXPECTED as exc:
        print(f"crawl.py: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    if args.write:
        args.write.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return tell(summary)


def crawl_into(client: Any, args: Any) -> dict[str, Any]:
    """The crawl's figures, whether or not every record was acknowledged. Raises one of EXPECTED if there was no crawl."""
    browser = Browser(args.site)
    names = Names(args.prefix)
    topics = {"pages": names.pages, "links": names.links}
    create_topics(client, names, args.partitions)
    # The ledger has counted what failed; close() would name it once more.
    with suppress(DeliveryError), client.get_producer(compression=args.compression) as producer, Bar() as bar:
        ledger = Ledger(producer, topics)
        crawl = Crawl(browser, ledger, args.greenlets, args.max_pages, bar, args.start)
        began = time.perf_counter()
        crawl.run()
        crawled = time.perf_counter()
        acknowledged = ledger.settle(ACKNOWLEDGED_WITHIN_S)
        settled = time.perf_counter()
    return {
        "site": args.site,
        "handler": client.handler.name,
        "greenlets": args.greenlets,
        "busy_at_once": crawl.peak,
        "fetched": crawl.fetched,
        "bytes": crawl.bytes,
        "crawl_s": round(crawled - began, 3),
        "settle_s": round(settled - crawled, 3),
        "produced": ledger.produced,
        "acknowledged": acknowledged,
        "errors": dict(ledger.errors),
    }


def tell(summary: dict[str, Any]) -> int:
    produced, acknowledged = sum(summary["produced"].values()), sum(summary["acknowledged"].values())
    seconds = summary["crawl_s"]
    print(
        f"{summary['fetched']:,} paths, {summary['bytes'] / 1e6:.1f} MB in {seconds:.1f} s ({summary['fetched'] / seconds:,.0f} paths/s), "
        f"{summary['greenlets']} greenlets, up to {summary['busy_at_once']} fetching at once"
    )
    print(f"{produced:,} records produced, {acknowledged:,} acknowledged, the last {summary['settle_s']:.2f} s after the last page")
    for error, times in Counter(summary["errors"]).most_common(5):
        print(f"{times:,} not acknowledged: {error}", file=sys.stderr)
    return 0 if produced == acknowledged else 1


def arguments() -> Any:
    parser = parser_of(__doc__ or "")
    parser.add_argument("site", help="the site's address, as serve.py prints it: http://127.0.0.1:8000/")
    parser.add_argument("--greenlets", type=positive, default=500, help="fetching at once at most (default: %(default)s)")
    parser.add_argument("--max-pages", type=positive, metavar="N", help="stop after the first N paths, breadth first")
    parser.add_argument("--start", default=START, metavar="PATH", help="where to begin (default: %(default)s)")
    parser.add_argument("--partitions", type=positive, default=4, help="of topics that are not there yet (default: %(default)s)")
    parser.add_argument("--compression", default="lz4", help="gzip, snappy, lz4, zstd or auto (default: %(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the crawl's figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
