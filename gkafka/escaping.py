"""The one function that makes a text fit for an error, a log line or `explain()`, whoever wrote it.

Names, messages and addresses come from brokers, group members, ZooKeeper, proxies and token endpoints. A line feed in them would forge a line of a log,
an escape sequence would steer a terminal, and a mark of direction would reorder what a reader sees.
"""

from __future__ import annotations

__all__ = ["LONGEST", "LONGEST_NAME", "escaped"]

LONGEST = 10_000
"""Characters of a text that are shown: a broker may send a name of 30 MB."""
LONGEST_NAME = 255
"""Characters of a name, where a text goes on behind it: Kafka's own names are no longer, but what a peer sends may be."""
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: object, longest: int = LONGEST) -> str:
    """Return str(text) on one line: what does not print becomes a visible escape such as \\x1b, and "..." stands for what is cut off.

    The result is the same for a text that was escaped before.
    """
    shown = str(text)
    if len(shown) > longest:
        shown = f"{shown[:longest]}..."
    return shown if shown.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in shown)


def _escape(character: str) -> str:
    code = ord(character)
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
