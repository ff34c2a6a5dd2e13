"""Names that members look up in a file in place of a resolver: whoever keeps the file says what they mean, and that nobody answers.

`Names` keeps it; `install` is for a process that shall obey it.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["COUNTS", "Names", "install"]

SILENT_S = 5.0
"""So long a resolver that hears nothing takes to say so; the C library's default."""
COUNTS: Counter[str] = Counter()
"""Of this process: lookups that were answered, refused ones."""


class Names:
    """The file. path: where it is. Whoever makes it closes it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gkafka-names-")
        self.path = Path(self._folder.name) / "names.json"
        self._known: dict[str, list[str]] = {}
        self._answers = "at once"
        self._write()

    def mean(self, names: Iterable[str], addresses: Sequence[str]) -> None:
        """From now on these have these addresses, in this order."""
        self._known |= {name: list(addresses) for name in names}
        self._write()

    def nobody_answers(self, *, silent: bool) -> None:
        """Until somebody_answers(), every look-up fails: at once, or silent, after what a resolver takes to give up."""
        self._answers = "silent" if silent else "refused"
        self._write()

    def somebody_answers(self) -> None:
        self._answers = "at once"
        self._write()

    def close(self) -> None:
        self._folder.cleanup()

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"answers": self._answers, "known": self._known}))
        os.replace(new, self.path)


def install(path: str, handler: str) -> None:
    """Have look-ups of this process go by the file. A name that is not in it is nobody's. handler: of the clients that will be made."""

    def look_up(host: str, port: int, *_: Any) -> list[Any]:
        table: Mapping[str, Any] = json.loads(Path(path).read_text())
        addresses = table["known"].get(host, [])
        if table["answers"] == "silent":
            time.sleep(SILENT_S)
        if table["answers"] != "at once" or not addresses:
            COUNTS["refused"] += 1
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        COUNTS["lookups"] += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)) for address in addresses]

    if handler != "gevent":
        socket.getaddrinfo = look_up  # type: ignore[assignment]
        return
    import gevent
    from gevent.resolver.thread import Resolver

    class InFile(Resolver):  # type: ignore[misc]  # gevent has no types
        def getaddrinfo(self, *given: Any, **more: Any) -> Any:
            return self.pool.apply(look_up, given, more)

    gevent.get_hub().resolver = InFile()
