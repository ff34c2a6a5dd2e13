"""Writes golden/pykafka.json: what pykafka 2.0.4 and 2.8.0 themselves write for the calls of tests/protocol/cases.py.

    python tests/protocol/golden/record.py DIRECTORY_OF_2.0.4 DIRECTORY_OF_2.8.0

A directory is what holds the package `pykafka` (a checkout of the tag, https://github.com/Parsely/pykafka); six, and for 2.8.0 pkg_resources,
must be importable. Each version runs in an interpreter of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KINDS = {"2.0.4": ("documented", "messages"), "2.8.0": ("newer", "stamped")}


def written(thing: Any) -> str:
    if hasattr(thing, "get_bytes"):
        return bytes(thing.get_bytes()).hex()
    buffer = bytearray(len(thing))
    thing.pack_into(buffer, 0)
    return bytes(buffer).hex()


def record(kinds: list[str]) -> dict[str, dict[str, str]]:
    import pykafka.protocol  # type: ignore[import-not-found]

    from tests.protocol import cases

    return {kind: {name: written(made) for name, made in getattr(cases, kind)(pykafka.protocol).items()} for kind in kinds}


def main() -> None:
    if sys.argv[1] == "--record":
        sys.path[:0] = [str(ROOT), sys.argv[2]]  # in this order: a checkout has a package "tests", too
        print(json.dumps(record(sys.argv[3:])))
        return
    found: dict[str, Any] = {}
    for directory, (version, kinds) in zip(sys.argv[1:], KINDS.items(), strict=True):
        run = subprocess.run([sys.executable, __file__, "--record", directory, *kinds], capture_output=True, check=True, text=True)
        found[version] = json.loads(run.stdout)
    (HERE / "pykafka.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
