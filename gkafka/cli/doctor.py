"""`kafka-tools doctor`: why can this client not use this cluster?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from gkafka.cli.arguments import GROUP, TOPIC
from gkafka.cli.connection import POSITION, connect, connection_options, settings_of
from gkafka.cli.output import clean, document, json_option, note, styled, wants_json, write
from gkafka.cli.progress import progress
from gkafka.cli.wording import in_tools_words

if TYPE_CHECKING:
    from gkafka.cli.checkups import Finding, Limit, Told
    from gkafka.client import KafkaClient
    from gkafka.probing import Probe

__all__ = ["doctor"]

USES = (POSITION,)
STEP_S = 5.0
"""Longest time for one step, if --timeout says nothing."""
FAR_MS = 5_000
"""A difference between clocks that is worth a warning: tokens, tickets and retention by time begin to suffer."""
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": None}
OWN_GROUP = "kafka-tools-doctor"


@click.command(name="doctor", short_help="Say at which step reaching the cluster fails, and what to try.")
@click.option("--topic", metavar="NAME", type=TOPIC, help="Also: may this client produce to it, and consume it?")
@click.option("--write", "writes", is_flag=True, help="Find that out by writing one record to --topic, where it stays, and reading it.")
@click.option("--group", metavar="NAME", type=GROUP, help="The consumer group whose coordinator is looked for. [group.id of the file]")
@json_option
@connection_options
@click.pass_context
def doctor(ctx: click.Context, *, topic: str | None, writes: bool, group: str | None) -> None:
    """Go the way of a connection step by step, and say of each what was seen; where one fails, what to try next.

    Name, TCP, TLS with the certificate, versions, SASL; then what the broker tells of its cluster, each address that it sends clients to, the
    clocks, the group coordinator, and with --topic what may be done there. Each step takes --timeout seconds at most (5). Nothing is
    written without --write. The exit code is 0 if no step failed.
    """
    if writes and topic is None:
        raise click.UsageError("--write needs --topic: the topic that gets the record")
    settings = settings_of(ctx, uses=USES)
    group = group or settings.records.get("group", OWN_GROUP)
    limit_s = min(STEP_S, settings.timeout_s)
    limits = {name: min(limit_s * 1000, settings.client.get(name, math.inf)) for name in ("connect_timeout_ms", "socket_timeout_ms")}
    findings: list[Finding] = []
    if writes:
        progress().rest = f"the one record may have been written to {topic}"
    with connect(ctx, uses=USES, api_timeout_ms=limit_s * 1000, **limits) as client:
        for finding in Doctor(client, settings.hosts, settings.zookeeper, limit_s).examine(topic, group, writes=writes):
            finding = finding._replace(seen=in_tools_words(finding.seen))
            findings.append(finding)
            if not wants_json(ctx):
                _tell(finding)
    failed = [finding for finding in findings if finding.status == "fail"]
    if wants_json(ctx):
        document({"ok": not failed, "steps": [finding._asdict() for finding in findings]})
    if failed:
        ctx.exit(1)


def _tell(finding: Finding) -> None:
    status = styled(f"{finding.status:<5}", COLOURS[finding.status])
    write(f"{status} {finding.step:<11}{clean(finding.about)}: {clean(finding.seen)}")
    if finding.next:
        write(f"{'':<17}next: {clean(finding.next)}")


class Doctor:
    """Examines one cluster. limit_s: of each step."""

    def __init__(self, client: KafkaClient, hosts: str, zookeeper: str | None, limit_s: float) -> None:
        self._client = client
        self._hosts = hosts
        self._zookeeper = zookeeper
        self._limit_s = limit_s

    def _begin(self) -> Limit:
        """The time of a step that begins now."""
        from gkafka.cli.checkups import Limit

        return Limit(self._client.handler.monotonic, self._limit_s)

    def examine(self, topic: str | None, group: str, *, writes: bool) -> Iterator[Finding]:
        """The findings, as they are made."""
        from gkafka.cli import checkups

        usable: list[Probe] = []
        for step in self._addresses():
            if isinstance(step, checkups.Finding):
                yield step
                continue
            findings = []
            for finding in checkups.connection(step, self._begin, self._client.handler.time()):
                findings.append(finding)
                yield finding
            if findings[-1].status != "fail":
                usable.append(step)
        if not usable:
            return
        finding, told = checkups.metadata(usable[0], self._begin())
        yield finding
        if told is None:
            return
        yield from checkups.advertised(self._advertised(told), self._begin(), usable[0].host)
        yield from self._inside(topic, group, writes=writes)

    def _addresses(self) -> Iterator[Probe | Finding]:
        from gkafka.cli.checkups import Finding
        from gkafka.exceptions import KafkaException
        from gkafka.hosts import parse_hosts

        if self._zookeeper is None:
            yield from (self._probe(host, port) for host, port in dict.fromkeys(parse_hosts(self._hosts)))
            return
        from gkafka.zookeeper import brokers_of

        config = self._client.cluster.config
        try:
            found = brokers_of(self._zookeeper, config.security_protocol, self._limit_s * 1000, self._client.handler)
        except KafkaException as exc:
            yield Finding("zookeeper", self._zookeeper, "fail", str(exc), "give the brokers themselves: --bootstrap-server")
            return
        yield Finding("zookeeper", self._zookeeper, "ok", "brokers at " + ", ".join(f"{host}:{port}" for host, port in found))
        yield from (self._probe(host, port) for host, port in found)

    def _probe(self, host: str, port: int) -> Probe:
        from gkafka.probing import Probe

        return Probe(self._client.handler, self._client.cluster.config, host, port)

    def _advertised(self, told: Told) -> dict[int, Probe]:
        return {id_: self._probe(host, port) for id_, (host, port) in sorted(told.brokers.items())}

    def _inside(self, topic: str | None, group: str, *, writes: bool) -> Iterator[Finding]:
        """What a client sees once it is connected."""
        from gkafka.cli import checkrights

        checks: list[Callable[[], Iterator[Finding]]] = [
            lambda: checkrights.clock(self._client, self._begin(), FAR_MS),
            lambda: checkrights.coordinator(self._client, group, self._begin()),
        ]
        if topic is not None:
            checks.append(lambda: checkrights.topic(self._client, topic, self._begin, FAR_MS, writes=writes, say=note))
        for check in checks:
            yield from check()
