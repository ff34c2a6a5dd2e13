"""Kafka's own scripts, of the distribution that the test's broker comes from: what bin/kafka-topics.sh and its like start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.live.classes import archive_flags
from tests.live.kafka import KafkaCluster, Release
from tests.live.maven import jars, tool

__all__ = ["Scripts", "java"]

LIMIT_S = 90.0
OLD = {"topics": "kafka.admin.TopicCommand", "groups": "kafka.admin.ConsumerGroupCommand", "offsets": "kafka.tools.GetOffsetShell"}
NEW = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "configs": "kafka.admin.ConfigCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
}
CLASSES: Mapping[bool, Mapping[str, str]] = {
    False: {**OLD, "configs": "kafka.admin.ConfigCommand", "acls": "kafka.admin.AclCommand"},
    True: NEW,
}


class Scripts:
    """What the scripts of a cluster's release say of it."""

    def __init__(self, kafka: KafkaCluster, hosts: str | None = None) -> None:
        """hosts: of the listener to ask, if it is not the first."""
        self._kafka = kafka
        self._hosts = hosts or kafka.hosts
        self._classes = CLASSES[kafka.release.number >= (4,)]
        self._java = java(kafka)

    def run(self, script: str, *words: str) -> str:
        """Standard output of kafka-<script>.sh with these words."""
        option = "--broker-list" if script == "offsets" and self._kafka.release.number < (3,) else "--bootstrap-server"
        told = subprocess.run(
            [*self._java, self._classes[script], option, self._hosts, *words], capture_output=True, text=True, timeout=LIMIT_S
        )
        assert told.returncode == 0, (script, words, told.stdout[-2000:], told.stderr[-2000:])
        return told.stdout

    def table(self, script: str, *words: str) -> list[dict[str, str]]:
        """The rows of a table that a script prints, by the titles above them."""
        lines = [line.split() for line in self.run(script, *words).splitlines() if line.strip()]
        first = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
        return [dict(zip(lines[first], line, strict=False)) for line in lines[first + 1 :] if line[0] != "GROUP"]


def java(kafka: KafkaCluster) -> list[str]:
    """How java starts a script of the cluster's release: up to its class."""
    release = kafka.release
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, classpath(release)))]

    def list_topics(flag: str) -> None:
        words = [CLASSES[release.number >= (4,)]["topics"], "--bootstrap-server", kafka.hosts, "--list"]
        subprocess.run([tool("java"), flag, *flags, *words], capture_output=True, timeout=LIMIT_S)

    return [tool("java"), *archive_flags(f"kafka-scripts-{release.version}", list_topics), *flags]


def classpath(release: Release) -> list[Path]:
    """The broker's own; since 4.0 the scripts have a jar that the broker needs not."""
    if release.number < (4,):
        return release.jars()
    number = release.version
    return jars(
        f"kafka-scripts-{number}",
        [f"org.apache.kafka:kafka_{release.scala}:{number}", f"org.apache.kafka:kafka-tools:{number}", release.extra],
    )
