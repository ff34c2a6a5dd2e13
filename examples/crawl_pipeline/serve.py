#!/usr/bin/env python3
"""Serve a folder on 127.0.0.1 with gevent: hundreds of keep-alive connections in one small process.

A path that is a file inside the folder is answered 200, a folder without its last slash 301, anything else 404. Nothing outside the folder
is served, whatever the path or a symbolic link says. The first line of output is the address, for a program that waits for it.
"""

from __future__ import annotations

import argparse
import mimetypes
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gevent.pywsgi import WSGIServer

Headers = list[tuple[str, str]]
StartResponse = Callable[[str, Headers], Any]
READ_ONLY = ("GET", "HEAD")
HTML = (".html", ".htm")


class StaticSite:
    """A WSGI application over one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in READ_ONLY:
            return answer(start_response, "405 Method Not Allowed", b"only GET and HEAD\n")
        # WSGI hands the percent-decoded bytes over as latin-1 text.
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        found = self.locate(path)
        if found is None:
            return answer(start_response, "404 Not Found", b"not found\n")
        if found.is_dir():
            return answer(start_response, "301 Moved Permanently", b"", [("Location", quote("/" + path.strip("/")) + "/")])
        return answer(start_response, "200 OK", found.read_bytes(), [("Content-Type", content_type(found.name))])

    def locate(self, path: str) -> Path | None:
        """The file to send, or the folder to redirect to; None if there is neither inside the site."""
        if path.endswith("/"):
            path += "index.html"
        if "\0" in path or ".." in path.split("/"):
            return None
        try:
            found = (self.folder / path.lstrip("/")).resolve()
            inside = found.is_relative_to(self.folder)
            return found if inside and (found.is_file() or (found.is_dir() and not path.endswith("/index.html"))) else None
        except (OSError, RuntimeError):  # a name too long for the file system, a loop of links
            return None


def content_type(name: str) -> str:
    """By the file's name alone. What is HTML does not depend on the tables of the system: the crawler parses just these."""
    if name.lower().endswith(HTML):
        return "text/html; charset=utf-8"
    kind, encoding = mimetypes.guess_type(name)
    return kind if kind and kind != "text/html" and not encoding else "application/octet-stream"


def answer(start_response: StartResponse, status: str, body: bytes, headers: Headers | None = None) -> list[bytes]:
    start_response(status, [*(headers or [("Content-Type", "text/plain; charset=utf-8")]), ("Content-Length", str(len(body)))])
    return [body]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the site's index.html")
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free one")
    args = parser.parse_args()
    if not (args.folder / "index.html").is_file():
        print(f"serve.py: {args.folder}: no index.html there", file=sys.stderr)
        return 1
    server = WSGIServer(("127.0.0.1", args.port), StaticSite(args.folder), log=None, backlog=1024)
    server.start()
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.stop(timeout=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
