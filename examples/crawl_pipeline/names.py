"""What the programs of the pipeline share: the names of topics and groups, and the options that say them. It is no program of its own."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gkafka.exceptions import TopicAlreadyExists

ARCHIVE, INLINKS, WINDOWS = "archive", "inlinks", "windows"  # the queries of stream.py


@dataclass(frozen=True)
class Names:
    """prefix: of every topic and group, so that runs on one cluster do not meet."""

    prefix: str = ""

    @property
    def pages(self) -> str:
        return f"{self.prefix}pages"

    @property
    def links(self) -> str:
        return f"{self.prefix}links"

    @property
    def inlinks(self) -> str:
        """The compacted topic: path -> in-links so far."""
        return f"{self.prefix}inlinks"

    @property
    def clock(self) -> str:
        """A topic of one partition: a record with nothing but its time says that nothing older will come."""
        return f"{self.prefix}clock"

    def read_by(self, query: str) -> tuple[str, ...]:
        return {ARCHIVE: (self.pages, self.links), INLINKS: (self.links,), WINDOWS: (self.pages, self.clock)}[query]

    def group(self, query: str) -> str:
        """The group to which a query commits its progress. No two queries share one: each has a position of its own."""
        return f"{self.prefix}crawl-spark-{query}"

    @property
    def top(self) -> str:
        """The group of top.py."""
        return f"{self.prefix}crawl-top"


def create_topics(client: Any, names: Names, partitions: int) -> None:
    """Those that are not there yet."""
    compacted = {"cleanup.policy": "compact"}
    wanted: list[tuple[str, int, dict[str, str]]] = [
        (names.pages, partitions, {}),
        (names.links, partitions, {}),
        (names.inlinks, partitions, compacted),
        (names.clock, 1, {}),
    ]
    for topic, count, configs in wanted:
        with suppress(TopicAlreadyExists):
            client.create_topic(topic, count, configs=configs)


def parser_of(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="127.0.0.1:9092", help="Kafka: host:port, or several with commas (default: %(default)s)")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="in front of every topic and group (default: none)")
    return parser


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or more")
    return int(text)
