#!/usr/bin/env python3
"""Find a web site to crawl: print the folder that holds its index.html.

In this order: the folder that is named (--site, or SITE in the environment); Debian's python3.11-doc, downloaded with apt-get and unpacked
without installing it; pydoc's pages of this Python's standard library. What was unpacked or written is kept in the cache
folder, $GKAFKA_CACHE or ~/.cache/gkafka.
"""

from __future__ import annotations

import argparse
import os
import pydoc
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

PACKAGE = "python3.11-doc"
CACHE = Path(os.environ.get("GKAFKA_CACHE") or "~/.cache/gkafka").expanduser() / "site"
APT_DEADLINE_S = 180
PYDOC_DEADLINE_S = 300

# Importing these opens a window or a browser, prints, or runs a program: no pages for them.
NOT_IMPORTED = {"antigravity", "idlelib", "this", "tkinter", "turtle", "turtledemo", "__main__"}


class NoSite(Exception):
    """A source has no site to give; the text says why."""


def find_site(named: str | None, package: str = PACKAGE, cache: Path = CACHE, say: Callable[[str], None] = print) -> Path:
    """The site's folder. named: used as it is or refused, never replaced by another site. Raises NoSite."""
    if named:
        return checked(Path(named).expanduser().resolve())
    sources: list[Callable[[], Path]] = [partial(from_debian, package, cache / package), partial(from_pydoc, cache / "pydoc")]
    for source in sources:
        try:
            return source()
        except NoSite as exc:
            say(f"  {exc}")
    raise NoSite("no site to crawl: name a folder with an index.html, --site FOLDER or SITE=FOLDER")


def checked(folder: Path) -> Path:
    if not (folder / "index.html").is_file():
        raise NoSite(f"{folder}: no index.html there; name the folder that holds the site's index.html")
    return folder


# -- Debian's package -----------------------------------------------------------------------------------------------------------------
def from_debian(package: str, target: Path) -> Path:
    """Unpack a Debian documentation package into `target`, once."""
    if target.is_dir():
        return largest_site(target)
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoSite(f"{package}: no apt-get or dpkg here")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive = download(package, Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        run(["dpkg", "-x", str(archive), str(unpacked)], Path(scratch))
        largest_site(unpacked)
        unpacked.rename(target)  # the last step: an interrupted run leaves no half of a site in the cache
    return largest_site(target)


def download(package: str, folder: Path) -> Path:
    fetch = ["apt-get", "download", "-q", package]
    if not run(fetch, folder, may_fail=True):
        # Without the package lists (a fresh container) apt-get knows no package at all.
        if not run(["apt-get", "update", "-q"], folder, may_fail=True):
            raise NoSite(f"{package}: apt-get can neither download it nor update its package lists")
        run(fetch, folder)
    return next(folder.glob("*.deb"))


def run(command: list[str], folder: Path, *, may_fail: bool = False) -> bool:
    """True if the command ended well. Raises NoSite with its last line otherwise, unless it may fail."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=APT_DEADLINE_S,
            check=False,
        )
        failed, output = done.returncode != 0, done.stdout
    except subprocess.TimeoutExpired:
        failed, output = True, f"no end after {APT_DEADLINE_S} s".encode()
    if failed and not may_fail:
        lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
        raise NoSite(f"`{' '.join(command)}` failed: {lines[-1]}")
    return not failed


def largest_site(folder: Path) -> Path:
    """The folder with an index.html that has the most HTML pages below it: packages keep their site in different places."""
    found = [index.parent for index in folder.rglob("index.html")]
    if not found:
        raise NoSite(f"{folder}: no index.html in it")
    return max(found, key=lambda each: sum(1 for _ in each.rglob("*.html")))


# -- pydoc ----------------------------------------------------------------------------------------------------------------------------
def from_pydoc(target: Path) -> Path:
    """pydoc's pages of the standard library. Written by a process of its own: it imports every module there is."""
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            pages = Path(scratch) / "pages"
            pages.mkdir()
            command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--write-pydoc", str(pages)]
            try:
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=PYDOC_DEADLINE_S)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
                raise NoSite(f"pydoc's pages could not be written: {exc}") from exc
            pages.rename(target)
    return checked(target)


def write_pydoc(folder: Path) -> None:
    html = pydoc.HTMLDoc()
    written = []
    for name in sorted(sys.stdlib_module_names - NOT_IMPORTED):
        try:
            module = pydoc.safeimport(name)
            if module is None:
                continue
            page = html.page(pydoc.describe(module), html.document(module, name))
        except Exception as exc:  # a module of another system, or one that pydoc cannot describe
            print(f"  no page for {name}: {exc}", file=sys.stderr)
            continue
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        written.append(name)
    rows = "\n".join(f'<li><a href="{name}.html">{name}</a></li>' for name in written)
    index = f"<!DOCTYPE html><html><head><title>Standard library</title></head><body><ul>\n{rows}\n</ul></body></html>"
    (folder / "index.html").write_text(index, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", default=os.environ.get("SITE"), metavar="FOLDER", help="a folder with an index.html (default: $SITE)")
    parser.add_argument("--package", default=PACKAGE, help="the Debian package to unpack (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where to keep it (default: %(default)s)")
    parser.add_argument("--write-pydoc", type=Path, metavar="FOLDER", help="only write pydoc's pages into this folder")
    args = parser.parse_args()
    if args.write_pydoc:
        write_pydoc(args.write_pydoc)
        return 0
    try:
        print(find_site(args.site, args.package, args.cache.resolve(), say=lambda text: print(text, file=sys.stderr)))
    except NoSite as exc:
        print(f"website.py: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
