"""The example programs as modules, and a small web site that holds what makes links hard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
PIPELINE = EXAMPLES / "crawl_pipeline"
sys.path[:0] = [str(PIPELINE), str(EXAMPLES)]

PAGES = {
    "index.html": """<!DOCTYPE html><html><head><title> The
        start &amp; more </title><script>var x = '<a href="not-a-link.html">';</script></head><body>
        <!-- <a href="commented-out.html">no</a> -->
        <a href="a/">the folder &lt;a&gt;</a> <A HREF='a/one.html?query=1#part'>with <b>bold</b> text</A>
        <a class=x href=a/two.html>unquoted</a><a name="anchor">no link</a> <a href="#top">myself</a>
        <a href="missing.html">gone</a> <a href="missing.html">gone</a> <a href="http://Example.org/x#y">out</a>
        <a href="//cdn.example.org/z">out, too</a> <a href="mailto:someone@example.org">mail</a>
        <a href="name%20with%20blank.html">blank</a> <a href="folder">no slash</a> <a href="../../up.html">above the root</a>
        <a href="picture.png"><img src="picture.png" alt="a > b"></a> <a href>empty</a>
        <style>a:before { content: "<a href='styled.html'>" }</style><a href="a//./two.html">slashes</a></body></html>""",
    "a/index.html": '<title>Folder</title><a href="..">up</a><a href="/a/one.html">one</a><a title="x > y" href="deep/page.htm">deep</a>',
    "a/one.html": '<title>One</title><a href="two.html">two</a><a href="two.html">two again</a><a href="index.html">index',
    "a/two.html": "<title>Two</title><p>no links, and a caf\u00e9</p>",
    "a/deep/page.htm": '<a href="../../index.html"> to   the start </a><svg><title>not a title of its own</title></svg><a href="%C3%A9.html">\u00e9</a>',
    "name with blank.html": '<title>Blank</title><a href="a/one.html"></a>',
    "folder/index.html": '<title>Behind a redirect</title><a href="only-here.html">x</a>',
    "folder/only-here.html": "<title>Only &#104;ere</title>",
    "up.html": '<title>Up</title><a href="%2e%2e/secret.html">out of the site</a>',
    "picture.png": "not a picture",
    "unlinked.html": '<a href="index.html">nobody comes here</a>',
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for name, text in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "secret.html").write_text("secret")
    (folder / "a" / "leak.html").symlink_to(tmp_path / "secret.html")
    return folder


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where serve.py serves the site."""
    server = subprocess.Popen([sys.executable, str(PIPELINE / "serve.py"), str(site)], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()
