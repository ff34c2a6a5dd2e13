"""Real Apache Kafka on the loopback, for the tests, the demo and the benchmarks.

    with KafkaCluster("4.2.0") as kafka:
        client = gkafka.KafkaClient(kafka.hosts)

A node runs from its Maven artifacts and needs only a JDK and mvn. Its data live in a temporary folder that is removed at the end.
As a program: `python -m tests.live.kafka --version 4.2.0` runs a cluster until Ctrl-C, `--fetch` fills the cache of jars.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from gkafka.testing.localkafka import LocalKafkaError, answering, in_use, new_id
from tests.kit.clock import now
from tests.live.classes import archive_flags
from tests.live.formatted import formatted
from tests.live.jvm import GUARDIAN, Jvm, StartError, free_ports, wait_for
from tests.live.maven import MissingToolError, jars
from tests.live.probe import metadata, zookeeper_serves

__all__ = ["RELEASES", "VERSIONS", "KafkaCluster", "KafkaNode", "MissingToolError", "Node", "Release", "StartError", "main"]

START_S = 60.0
TRIES = 3
STARTED_OFTEN = {"2.8.2", "3.9.1", "4.2.0"}
"""Releases of which an archive of classes pays for itself within a run of the tests, or two."""


@dataclasses.dataclass(frozen=True)
class Release:
    """What one version of Kafka needs to run on a JDK 17, and what its clients can expect of it."""

    version: str
    scala: str
    extra: str  # the artifact that its own jars lack
    zookeeper: bool

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    @property
    def headers(self) -> bool:
        return self.number >= (0, 11)

    @property
    def timestamps(self) -> bool:
        return self.number >= (0, 10)

    @property
    def asks_versions(self) -> bool:
        """Whether it answers ApiVersions (KIP-35)."""
        return self.number >= (0, 10)

    @property
    def codecs(self) -> tuple[str, ...]:
        old = ("gzip", "snappy", "lz4")  # lz4 since 0.8.2 (KAFKA-1456)
        return (*old, "zstd") if self.number >= (2, 1) else old  # KIP-110

    def jars(self) -> list[Path]:
        return jars(f"kafka-{self.version}", [f"org.apache.kafka:kafka_{self.scala}:{self.version}", self.extra])


# 1.0 to 2.x name log4j 1 classes without shipping them; javax.xml.bind left the JDK in Java 11; 3.x and 4.x ship slf4j without a binding.
_SIMPLE = "org.slf4j:slf4j-simple:1.7.36"
_RELOAD = "org.slf4j:slf4j-reload4j:1.7.36"
_JAXB = "javax.xml.bind:jaxb-api:2.3.1"
RELEASES = {
    release.version: release
    for release in (
        Release("0.8.2.2", "2.11", _JAXB, zookeeper=True),
        Release("0.9.0.1", "2.11", _JAXB, zookeeper=True),
        Release("0.10.2.2", "2.11", _JAXB, zookeeper=True),
        Release("0.11.0.3", "2.11", _JAXB, zookeeper=True),
        Release("1.1.1", "2.11", _RELOAD, zookeeper=True),
        Release("2.8.2", "2.13", _RELOAD, zookeeper=True),
        Release("3.9.1", "2.13", _SIMPLE, zookeeper=False),
        Release("4.2.0", "2.13", _SIMPLE, zookeeper=False),
    )
}
VERSIONS = tuple(RELEASES)

# Small and quick. Retention by time is out: tests write records with old timestamps.
COMMON = {
    "offsets.topic.num.partitions": 4,
    "delete.topic.enable": "true",
    "log.retention.hours": 876000,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "share.coordinator.state.topic.num.partitions": 4,
}
# A dead node is noticed after 3 s instead of 9 s, and a new controller is found in about 2 s.
QUICK_FAILOVER = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.election.timeout.ms": 1000,
    "zookeeper.session.timeout.ms": 3000,
}


class Node:
    """One broker of a cluster. id: its broker id; host, port: where clients reach it; log: the path of its log.

    behind: the port of its second listener, to which the cluster's `doors` lead; 0 without doors. listeners: the ports of the others, by name.
    cluster: the id that its folder of data was given; None where ZooKeeper keeps it.
    """

    def __init__(
        self, id: int, port: int, jvm: Jvm, behind: int = 0, listeners: Mapping[str, int] | None = None, cluster: str | None = None
    ) -> None:
        self.id = id
        self.host = "127.0.0.1"
        self.port = port
        self.jvm = jvm
        self.behind = behind
        self.listeners = dict(listeners or {})
        self.cluster = cluster

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.jvm.pid

    @property
    def log(self) -> Path:
        return self.jvm.log

    @property
    def alive(self) -> bool:
        return self.jvm.alive

    @property
    def is_itself(self) -> bool:
        """Whether the Kafka that answers on its port is this one, and no other: as far as its id is known, and its process lives."""
        if self.cluster is None:
            return self.alive
        other = answering(self.port)
        return other is not None and other.cluster == self.cluster and self.alive

    def brokers(self) -> set[int] | None:
        """The ids of the live brokers as this node knows them; None while it does not answer."""
        answer = metadata(self.host, self.port)
        return None if answer is None else answer.brokers

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker id, -1 where there is no leader; empty while the node does not know the topic."""
        answer = metadata(self.host, self.port, [topic])
        return {} if answer is None else answer.leaders.get(topic, {})


class KafkaCluster:
    """Brokers of one version, with the ZooKeeper or the controllers that they need. A context manager.

    version: one of VERSIONS; brokers: 1 or 3 (replication factor 3); properties: more lines of server.properties.
    fast: small JVMs that start quickly; False: the JVM's own defaults, for benchmarks. port: of the first broker, else any.
    doors: a port of the loopback or a host:port for each broker (KRaft only): whoever comes in by its second listener is told to find the brokers
    there, where the caller's proxies are. listeners: name -> security protocol, of further listeners of each broker (KRaft only); their other
    settings are `properties`. users: for the storage's --add-scram, as "SCRAM-SHA-256=[name=u,password=p]". flags: of java.
    Raises MissingToolError if java or mvn is not installed, StartError (with the tail of the log) if a node does not come up.
    """

    def __init__(
        self,
        version: str = "4.2.0",
        *,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        fast: bool = True,
        heap_mb: int | None = None,
        port: int | None = None,
        doors: Sequence[int | str] = (),
        listeners: Mapping[str, str] | None = None,
        users: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        if version not in RELEASES:
            raise ValueError(f"version={version!r}: must be one of {', '.join(VERSIONS)}")
        self.release = RELEASES[version]
        self.version = version
        self.nodes: list[Node] = []
        self.started_in = 0.0
        self._count = brokers
        self._properties = dict(properties or {})
        self._fast = fast
        self._heap_mb = heap_mb or (512 if fast else 1024)
        self._port = port
        self._doors = [door if isinstance(door, str) else f"127.0.0.1:{door}" for door in doors]
        self._listeners = dict(listeners or {})
        self._users = users
        self._flags = flags
        self._archive: Sequence[str] = ()
        self._records_classes = any("ArchiveClassesAtExit" in flag for flag in flags)
        self._folder: Path | None = None
        self._zookeeper: Jvm | None = None
        self._zookeeper_port = 0

    # -- life ----------------------------------------------------------------------------------------------------------
    def start(self) -> KafkaCluster:
        """Returns when each broker knows of all. Ports that another process took meanwhile are replaced."""
        if self.nodes:
            return self
        if self._port and (other := in_use(self._port)):
            raise StartError(other, clash=True)
        classpath = self.release.jars()
        if self._fast and self.version in STARTED_OFTEN and not self._records_classes:
            self._archive = archive_flags(f"kafka-{self.version}", self._record_classes)
        began = now()
        for attempt in range(1, TRIES + 1):
            try:
                self._start(classpath)
                break
            except StartError as error:
                self.stop()
                if not error.clash or self._port or attempt == TRIES:
                    raise
            except BaseException:
                self.stop()
                raise
        self.started_in = now() - began
        return self

    def stop(self) -> None:
        """Ends every process and removes the data. Idempotent."""
        for jvm in [*(node.jvm for node in self.nodes), *filter(None, [self._zookeeper])]:
            jvm.forget()
        self.nodes, self._zookeeper = [], None
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            GUARDIAN.removed(str(folder))

    def __enter__(self) -> KafkaCluster:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- what tests ask ------------------------------------------------------------------------------------------------
    @property
    def hosts(self) -> str:
        """The bootstrap string: every broker."""
        return ",".join(node.address for node in self.nodes)

    @property
    def zookeeper(self) -> str | None:
        """host:port of ZooKeeper; None for a version without."""
        return f"127.0.0.1:{self._zookeeper_port}" if self._zookeeper else None

    def answers(self) -> bool:
        """Return whether each process lives and each node answers, at the latest when it was asked five times (10 s)."""
        jvms = [*(node.jvm for node in self.nodes), *filter(None, [self._zookeeper])]
        return all(jvm.alive for jvm in jvms) and all(any(node.brokers() is not None for _ in range(5)) for node in self.nodes)

    def node(self, id: int) -> Node:
        return next(node for node in self.nodes if node.id == id)

    def kill(self, node: Node | int, number: int = signal.SIGKILL) -> None:
        """Send a signal that ends the node and wait for its end; restart() brings it back with its data."""
        self._node(node).jvm.kill(number)

    def restart(self, node: Node | int, *, timeout: float = START_S) -> None:
        """Start a killed node again, on its port, and wait until it knows of all live nodes."""
        node = self._node(node)
        if node.alive:
            node.jvm.kill(signal.SIGTERM)
        if self.zookeeper:
            from tests.live import admin

            admin.wait_until_unregistered(self.zookeeper, node.id, timeout)
        node.jvm.start()
        self._wait([node], timeout)

    def advertise(self, doors: Sequence[str]) -> None:
        """Other doors (host:port): each broker tells of its own from its next start on."""
        for node, before, door in zip(self.nodes, self._doors, doors, strict=True):
            settings = node.jvm.folder / "server.properties"
            settings.write_text(settings.read_text().replace(f"PROXIED://{before}\n", f"PROXIED://{door}\n"))
        self._doors = list(doors)

    def suspend_zookeeper(self) -> None:
        """Stop ZooKeeper's process as it is; nothing of it answers until `resume_zookeeper`."""
        assert self._zookeeper is not None
        self._zookeeper.freeze()

    def resume_zookeeper(self) -> None:
        """Let it go on."""
        assert self._zookeeper is not None
        self._zookeeper.send(signal.SIGCONT)

    def kill_zookeeper(self) -> None:
        """SIGKILL; `restart_zookeeper` brings it back with its data."""
        assert self._zookeeper is not None
        self._zookeeper.kill()

    def restart_zookeeper(self) -> None:
        """Start it again, on its port, and wait until it serves."""
        assert self._zookeeper is not None
        self._zookeeper.start()
        wait_for(self._zookeeper, lambda: zookeeper_serves(self._zookeeper_port), what="serving", timeout=START_S)

    def suspend(self, node: Node | int) -> None:
        """SIGSTOP: the node accepts connections (its kernel does) and answers nothing."""
        self._node(node).jvm.freeze()

    def resume(self, node: Node | int) -> None:
        self._node(node).jvm.send(signal.SIGCONT)

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, configs: Mapping[str, object] | None = None
    ) -> None:
        """Make a topic with means that are not gkafka's, and wait until every broker serves it.

        replication_factor: default as many as there are brokers. Needs kazoo before 0.11, confluent-kafka from there on.
        """
        from tests.live import admin

        factor = replication_factor or self._count
        given = {key: str(value) for key, value in (configs or {}).items()}
        if self.release.number < (0, 11):
            assert self.zookeeper
            admin.create_in_zookeeper(self.zookeeper, name, partitions, [node.id for node in self.nodes][:factor], given)
        else:
            admin.create(self.hosts, name, partitions, factor, given)
        for node in self.nodes:
            wait_for(node.jvm, functools.partial(_leads, node, name, partitions), what=f"serving the topic {name}", timeout=60)

    # -- how it starts -------------------------------------------------------------------------------------------------
    def _node(self, node: Node | int) -> Node:
        return self.node(node) if isinstance(node, int) else node

    def _start(self, classpath: Sequence[Path]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"gkafka-{self.version}-"))
        GUARDIAN.folder(str(self._folder))
        ports = free_ports((3 + len(self._listeners)) * self._count + 1)
        if self._port:
            ports[0] = self._port
        if self.release.zookeeper:
            self._start_zookeeper(classpath, ports[-1])
        layout = [(id, ports[id - 1], ports[self._count + id - 1]) for id in range(1, self._count + 1)]
        voters = ",".join(f"{id}@127.0.0.1:{controller}" for id, _, controller in layout)
        cluster_id = new_id()
        formatted_as = None if self.release.zookeeper else formatted(self.version, self._users, functools.partial(self._format, classpath))
        for id, port, controller in layout:
            folder = self._folder / f"node-{id}"
            folder.mkdir()
            own = _with_zookeeper(self.release, id, port, ports[-1]) if self.release.zookeeper else _kraft(id, port, controller, voters)
            behind = ports[2 * self._count + id - 1] if self._doors else 0
            if behind:
                own.update(_listener(own, "PROXIED", "PLAINTEXT", f"127.0.0.1:{behind}", self._doors[id - 1]))
            named = dict(zip(self._listeners, ports[3 * self._count + (id - 1) * len(self._listeners) :], strict=False))
            for name, protocol in self._listeners.items():
                own.update(_listener(own, name, protocol, f"127.0.0.1:{named[name]}", f"127.0.0.1:{named[name]}"))
            settings = folder / "server.properties"
            settings.write_text(_properties({**COMMON, **self._replication(), **own, "log.dirs": folder / "data", **self._properties}))
            jvm = Jvm(
                f"Kafka {self.version} node {id}",
                folder,
                classpath,
                ["kafka.Kafka", str(settings)],
                quick=self._fast,
                heap_mb=self._heap_mb,
                flags=[*self._archive, *self._flags],
            )
            self.nodes.append(Node(id, port, jvm, behind, named, cluster_id if formatted_as is not None else None))
            if formatted_as is not None:
                formatted_as.copy_to(folder / "data", id, cluster_id)
        for node in self.nodes:
            node.jvm.start()
        self._wait(self.nodes, START_S)
        for node in self.nodes:  # one may serve clients without a port for its controller
            if node.jvm.clashed:
                raise node.jvm.failed("does not have all its listeners")

    def _record_classes(self, flag: str) -> None:
        """Run a broker of this release once, with a topic, and end it as the JVM wants it to write down what it has loaded."""
        with KafkaCluster(self.version, flags=[flag]) as once:
            once.create_topic("any")
            once.kill(1, signal.SIGTERM)

    def _replication(self) -> dict[str, object]:
        factor, in_sync = self._count, max(1, self._count - 1)
        settings: dict[str, object] = {
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": in_sync,
            "default.replication.factor": factor,
            "min.insync.replicas": in_sync,
        }
        return {**settings, **QUICK_FAILOVER} if self._count > 1 else settings

    def _format(self, classpath: Sequence[Path], data: Path) -> None:
        """Have Kafka's own tool make a folder of data."""
        with tempfile.TemporaryDirectory(prefix="gkafka-format-") as folder:
            settings = Path(folder) / "server.properties"
            settings.write_text(_properties({**_kraft(1, 1, 2, "1@127.0.0.1:2"), "log.dirs": data}))
            tool = ["kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(settings)]
            tool += [word for user in self._users for word in ("--add-scram", user)]
            jvm = Jvm(f"StorageTool of Kafka {self.version}", Path(folder) / "format", classpath, tool, flags=self._archive)
            try:
                jvm.run(START_S)
            finally:
                jvm.forget()

    def _start_zookeeper(self, classpath: Sequence[Path], port: int) -> None:
        assert self._folder
        folder = self._folder / "zookeeper"
        folder.mkdir()
        settings = folder / "zookeeper.properties"
        settings.write_text(
            _properties(
                {
                    "dataDir": folder / "data",
                    "clientPort": port,
                    "clientPortAddress": "127.0.0.1",
                    "admin.enableServer": "false",
                    "maxClientCnxns": 0,
                    "tickTime": 500,
                }
            )
        )
        self._zookeeper_port = port
        self._zookeeper = Jvm(
            f"ZooKeeper of Kafka {self.version}",
            folder,
            classpath,
            ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)],
            heap_mb=256,
        )
        self._zookeeper.start()
        wait_for(self._zookeeper, lambda: zookeeper_serves(port), what="serving", timeout=START_S)

    def _wait(self, nodes: Sequence[Node], timeout: float) -> None:
        # The controller of 0.8 tells its brokers of each other with the first partition, not before.
        silent = self.release.number < (0, 9)
        alive = {node.id for node in self.nodes if node.alive}

        def serves(node: Node) -> bool:
            known = node.brokers()
            return known is not None and (silent or alive <= known) and node.is_itself

        for node in nodes:
            wait_for(node.jvm, functools.partial(serves, node), what="serving", timeout=timeout)


class KafkaNode(KafkaCluster):
    """A cluster of one broker."""

    def __init__(
        self,
        version: str = "4.2.0",
        *,
        properties: Mapping[str, object] | None = None,
        fast: bool = True,
        heap_mb: int | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(version, properties=properties, fast=fast, heap_mb=heap_mb, port=port)


def _leads(node: Node, topic: str, partitions: int) -> bool:
    leaders = node.leaders(topic)
    return len(leaders) == partitions and min(leaders.values()) >= 0


# -- settings ----------------------------------------------------------------------------------------------------------
def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _kraft(id: int, port: int, controller: int, voters: str) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": id,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "metadata.max.idle.interval.ms": 0,  # else the controller writes twice a second that nothing has happened
        # Each node is a rack of its own: only whoever names one is sent to a follower (KIP-392).
        "broker.rack": f"rack-{id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }


def _listener(own: Mapping[str, object], name: str, protocol: str, address: str, advertised: str) -> dict[str, object]:
    """One more listener."""
    return {
        "listeners": f"{own['listeners']},{name}://{address}",
        "advertised.listeners": f"{own['advertised.listeners']},{name}://{advertised}",
        "listener.security.protocol.map": f"{own['listener.security.protocol.map']},{name}:{protocol}",
    }


def _with_zookeeper(release: Release, id: int, port: int, zookeeper: int) -> dict[str, object]:
    common: dict[str, object] = {"broker.id": id, "zookeeper.connect": f"127.0.0.1:{zookeeper}", "zookeeper.connection.timeout.ms": 15000}
    if release.number < (0, 9):  # listeners came with 0.9
        return {**common, "port": port, "host.name": "127.0.0.1", "advertised.host.name": "127.0.0.1"}
    return {**common, "listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}


# -- the program -------------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a cluster until Ctrl-C, SIGTERM or the end of a pipe on standard input. The first line it prints is the bootstrap string."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.kafka", description="Real Apache Kafka on the loopback.")
    parser.add_argument("--version", default="4.2.0", choices=VERSIONS)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--port", type=int, help="of the first broker; any free one if not given")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="a line of server.properties")
    parser.add_argument("--bench", action="store_true", help="the JVM's own defaults instead of a quick start")
    parser.add_argument("--fetch", action="store_true", help="only fetch the jars of all versions into the cache")
    given = parser.parse_args(arguments)
    try:
        if given.fetch:
            for release in RELEASES.values():
                print(f"{release.version}: {len(release.jars())} jars", flush=True)
            return 0
        properties = dict(line.split("=", 1) for line in given.property)
        with KafkaCluster(given.version, brokers=given.brokers, port=given.port, properties=properties, fast=not given.bench) as cluster:
            print(cluster.hosts, flush=True)
            print(f"Kafka {given.version} is up after {cluster.started_in:.1f} s; Ctrl-C ends it", file=sys.stderr, flush=True)
            _wait_for_the_end()
    except (LocalKafkaError, MissingToolError, StartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _wait_for_the_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _wait_for_the_end() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if os.fstat(0).st_mode & 0o170000 == 0o010000:  # a pipe: whoever holds its other end may simply go away
        threading.Thread(target=_wait_for_the_input, args=(ended,), daemon=True).start()
    while not ended.wait(3600):
        pass


if __name__ == "__main__":
    sys.exit(main())
