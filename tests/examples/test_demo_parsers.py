"""The crawler's parser and the checker's are different programs for the same definitions."""

from __future__ import annotations

from pathlib import Path

import crawl
import pytest
import verify
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.conftest import PAGES

PIECES = [*"ab./#?:;&@[]\\ é\n", "..", "//", "%20", "%2e", "%2F", "%C3%A9", "%zz", "%00", "http:", "mailto:x", "index.html", "c.html"]
BASES = ["/index.html", "/a/b.html", "/a?b;c/d e.html"]
MARKUP = ['<a href="x">', "<a href=y >", "<A HREF='z&amp;w'>", "<a>", "</a>", "<b>", "</b>", "text", " ", "\n", "&amp;", "&eacute;", "é"]
MARKUP += [
    "<!-- <a href=no> -->",
    "<script>'<a href=no>'</script>",
    "<style><a href=no></style>",
    "<title>t</title>",
    '<a title="a>b" href="v">',
]
MARKUP += ["<a data-href=no>", "<abbr href=no>", "<a href>", "<a href=''/>", "<img alt='<a href=no>'>", "<br/>"]


@given(st.sampled_from(BASES), st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_both_resolve_a_link_alike(page: str, href: str) -> None:
    assert crawl.resolve(page, href) == verify.target_of(page, href)


@given(st.lists(st.sampled_from(MARKUP), max_size=14).map("".join))
def test_both_find_the_same_links_anchors_and_title(source: str) -> None:
    parsed = verify.Parsed(source)
    assert crawl.parse(source) == crawl.Page(parsed.title or "", parsed.links)


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith((".html", ".htm"))])
def test_both_read_the_pages_of_a_site_alike(name: str) -> None:
    parsed = verify.Parsed(PAGES[name])
    assert crawl.parse(PAGES[name]) == crawl.Page(parsed.title or "", parsed.links)


def test_a_page_is_read_as_a_browser_reads_it() -> None:
    page = crawl.parse(PAGES["index.html"])
    assert page.title == "The start & more"
    assert page.links[:3] == [("a/", "the folder <a>"), ("a/one.html?query=1#part", "with bold text"), ("a/two.html", "unquoted")]
    assert not any("not-a-link" in href or "commented" in href or "styled" in href for href, _ in page.links)


@pytest.mark.parametrize(
    ("href", "target"),
    [
        ("", "/a/b.html"),
        ("#x", "/a/b.html"),
        ("?q", "/a/b.html"),
        ("c.html", "/a/c.html"),
        ("/c.html?x#y", "/c.html"),
        ("..", "/index.html"),
        ("../..", "/index.html"),
        (".", "/a/index.html"),
        ("../../../c", "/c"),
        ("%C3%A9.html", "/a/é.html"),
        (" \n c.html ", "/a/c.html"),
        ("HTTP://x/#y", "HTTP://x/"),
        ("//x/y", "//x/y"),
        ("javascript:void(0)", "javascript:void(0)"),
    ],
)
def test_where_a_link_leads(href: str, target: str) -> None:
    assert crawl.resolve("/a/b.html", href) == target
    assert verify.target_of("/a/b.html", href) == target


def test_the_checker_counts_a_site_that_was_counted_by_hand(site: Path) -> None:
    figures = verify.count(verify.Site(site).crawl())
    assert figures["totals"]["pages"] == 9  # unlinked.html is not reached, folder/ only through its redirect
    assert figures["status"] == {"200": 10, "301": 1, "404": 3}
    assert figures["dead"] == [
        ["/a/deep/page.htm", "/a/deep/é.html", 1],
        ["/index.html", "/missing.html", 2],
        ["/up.html", "/../secret.html", 1],
    ]
    assert figures["inlinks"]["/a/two.html"] == 4
    assert figures["totals"]["links_to_self"] == 2
    assert figures["outside"] == {"example.org": 1, "cdn.example.org": 1, "mailto:": 1}
    assert figures["paths"]["/folder/only-here.html"][1] == 3


def test_a_bound_takes_the_first_paths_in_breadth_first_order(site: Path) -> None:
    whole = list(verify.Site(site).crawl())
    assert list(verify.Site(site).crawl(4)) == whole[:4]
    depths = [each.depth for each in verify.Site(site).crawl().values()]
    assert list(zip(depths, whole, strict=True)) == sorted(zip(depths, whole, strict=True))
