"""The pages of docs/, which travel with the package: where they are, how a text names one, and how it says what to install.

An installed gkafka has them in gkafka/docs (setup.py puts them there); one that is used from its clone has them beside the package, where they are written.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["install", "names", "page", "summary", "text"]

HERE = Path(__file__).resolve().parent
INDEX = "README"
"""Of docs/ where it is read as files: `kafka-tools docs` lists the pages itself."""
SEE = "kafka-tools docs"


def page(name: str) -> str:
    """How a text names a page: the command that shows it."""
    return f"{SEE} {name}"


def install(extra: str) -> str:
    """The command that adds an extra's packages to the gkafka that is installed: pip takes that one, wherever it came from."""
    return f"pip install 'gkafka[{extra}]'"


def names() -> list[str]:
    """The pages that there are, sorted; [] where an installation has left them out."""
    return sorted(path.stem for path in _folder().glob("*.md") if path.stem != INDEX)


def text(name: str) -> str:
    """A page, as Markdown. Raises OSError for one that there is not."""
    return (_folder() / f"{name}.md").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """What a page is about, in a line: its title."""
    return text(name).partition("\n")[0].removeprefix("# ")


def _folder() -> Path:
    installed = HERE / "docs"
    return installed if installed.is_dir() else HERE.parent / "docs"
