"""`kafka-tools version`: what is installed, and what of it is used."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from gkafka import __version__
from gkafka.cli.commands import command
from gkafka.cli.output import Column, document, json_option, table, wants_json
from gkafka.pages import install

__all__ = ["facts", "version_of_all"]

LIBRARIES = (
    ("click", "kafka-tools"),
    ("gevent", "greenlets"),
    ("kazoo", "ZooKeeper"),
    ("python-snappy", "snappy"),
    ("cramjam", "snappy"),
    ("lz4", "lz4"),
    ("zstandard", "zstd"),
    ("crc32c", "checksums without the accelerator"),
    ("numpy", "columns"),
    ("pyarrow", "columns, Spark"),
    ("pyspark", "Spark"),
)
"""Package, and what gkafka uses it for."""
CODECS = ("gzip", "snappy", "lz4", "zstd")


def facts() -> dict[str, Any]:
    """Everything about this installation that a report of a defect should have."""
    from gkafka.records import IMPLEMENTATION
    from gkafka.records.compression import available

    return {
        "gkafka": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": _platform(),
        "accelerator": IMPLEMENTATION,
        "codecs": {name: available(name) for name in CODECS},
        "libraries": {name: _installed(name) for name, _ in LIBRARIES},
    }


def _platform() -> str:
    if not sys.platform.startswith("linux"):
        return platform.platform()
    system = platform.uname()  # platform.platform() says the same, and starts a process to ask for the processor, which it does not say
    return f"{system.system}-{system.release}-{system.machine}-with-{''.join(platform.libc_ver())}"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@command("version")
@json_option
@click.pass_context
def version_of_all(ctx: click.Context) -> None:
    """Versions of gkafka and Python, the accelerator, codecs, libraries."""
    found = facts()
    if wants_json(ctx):
        document(found)
        return
    codecs = [name if there else f"{name} (missing: {install(name)})" for name, there in found["codecs"].items()]
    rows = [{"what": what, "is": found[what]} for what in ("gkafka", "python", "platform", "accelerator")]
    rows.append({"what": "codecs", "is": ", ".join(codecs)})
    rows += [{"what": name, "is": found["libraries"][name] or "not installed", "for": use} for name, use in LIBRARIES]
    table(rows, [Column("what"), Column("is", "VERSION"), Column("for")])
