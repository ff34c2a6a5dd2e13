"""What one member of a group tells and learns in ZooKeeper, in pykafka's layout, so that members of both clients can share a group.

    /consumers/<group>/ids/<member>                          data: the topic; ephemeral
    /consumers/<group>/owners/<topic>/<leader>-<partition>   data: the member; ephemeral

Every call ends by a deadline of its own. What stands in ZooKeeper was written by anybody: it is compared, never trusted.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gkafka.checks import check_seconds
from gkafka.exceptions import ClientClosedError, ConfigurationError, KafkaException, ZooKeeperError
from gkafka.hosts import parse_hosts, parse_zookeeper
from gkafka.logs import get_logger
from gkafka.pages import install

if TYPE_CHECKING:
    from gkafka.handlers import Handler

__all__ = ["NO_ZOOKEEPER", "Registry", "brokers_of", "check_client", "check_path", "close_client", "open_client"]

log = get_logger(__name__)

PATIENCE_S = 2.0
SLICE_S = 0.1
CALLS = 6
"""An answer may take this part of a session."""
OWNER = re.compile(r"-?[0-9]+-(0|[1-9][0-9]{0,8})")
"""The name of an owner's znode: the leader's id, -1 for none, and the partition's."""
NO_ZOOKEEPER = " Without a ZooKeeper, which Kafka 4 does not have,"
"""What to do then follows."""
KAZOO_HANDLERS = {True: "sequential_gevent_handler", False: "sequential_threading_handler"}


def open_client(
    hosts: Any,
    timeout_ms: float,
    handler: Handler,
    *,
    what: str = "zookeeper_connect",
    limit: str = "zookeeper_connection_timeout_ms",
    make_chroot: bool = True,
    without: str = "",
    check: Callable[[], object] = lambda: None,
) -> Any:
    """A connected KazooClient whose workers are of the handler's kind; a chroot that is missing is made, if it may be.

    hosts: "host:port,host:port/chroot"; timeout_ms: for the connection, and of the session; what, limit: the options that these two are; without: what to do
    where there is no ZooKeeper. Raises ConfigurationError for what is no address, ZooKeeperError where nobody answers. check: raises when the caller has no use for it any more.
    """
    kazoo = _kazoo(without)
    timeout_s = check_seconds("zookeeper_connection_timeout_ms", timeout_ms, low=1) / 1000
    servers, chroot = parse_zookeeper(what, hosts)
    client = kazoo.client.KazooClient(servers, timeout=timeout_s, handler=_kazoo_handler(handler))
    _note_session(client)
    deadline = handler.monotonic() + timeout_s
    try:
        connected = client.start_async()
        while not connected.wait(timeout=max(0.0, min(SLICE_S, deadline - handler.monotonic()))) and handler.monotonic() < deadline:
            check()
        if client.connected and chroot:
            if make_chroot:
                _result(client.ensure_path_async(f"/{chroot}"), max(0.1, deadline - handler.monotonic()))
            client.chroot = f"/{chroot}"
        if not client.connected:
            raise ZooKeeperError("no connection")
    except ClientClosedError:
        client.handler.spawn(close_client, client)  # for as long as kazoo waits for an answer: nobody else waits for that
        raise
    except BaseException as exc:
        close_client(client)
        if not isinstance(exc, Exception):
            raise
        raise ZooKeeperError(
            f"{what}={hosts!r}: no ZooKeeper answered within {limit}={timeout_ms:g} ({exc}); is it running, and is the address right?{without}"
        ) from exc
    return client


def brokers_of(
    hosts: str, security_protocol: str, timeout_ms: float, handler: Handler, check: Callable[[], object] = lambda: None
) -> list[tuple[str, int]]:
    """(host, port) of each broker that stands in ZooKeeper and has a listener for the protocol. Raises ZooKeeperError if none does.

    timeout_ms: for all of it. check: as of open_client(). Source: /brokers/ids/<id> as brokers of 0.8 to 3.9 write it (kafka.zk.BrokerIdZNode)
    """
    deadline = handler.monotonic() + timeout_ms / 1000
    patience = min(deadline, handler.monotonic() + PATIENCE_S)  # brokers that are just starting stand there in a moment
    client = open_client(
        hosts,
        timeout_ms,
        handler,
        what="zookeeper_hosts",
        limit="connect_timeout_ms",
        make_chroot=False,
        without=f"{NO_ZOOKEEPER} name the brokers: hosts='host:port,...'",
        check=check,
    )
    try:
        while True:
            found = _listeners(client, security_protocol, max(0.1, deadline - handler.monotonic()))
            if found or handler.monotonic() >= patience:
                break
            handler.sleep(PATIENCE_S / 10)
            check()
    except _kazoo().exceptions.KazooException as exc:
        raise ZooKeeperError(f"zookeeper_hosts={hosts!r}: {_told(exc)}") from exc
    finally:
        close_client(client)
    if not found:
        raise ZooKeeperError(
            f"zookeeper_hosts={hosts!r}: no broker with a listener for {security_protocol} stands in /brokers/ids; is the chroot right, and are they running?"
        )
    return found


def _listeners(client: Any, security_protocol: str, timeout_s: float) -> list[tuple[str, int]]:
    found = []
    with contextlib.suppress(_kazoo().exceptions.NoNodeError):  # there are none, or one has just ended
        for name in _result(client.get_children_async("/brokers/ids"), timeout_s):
            data, _ = _result(client.get_async(f"/brokers/ids/{name}"), timeout_s)
            found.append(_listener(data, security_protocol))
    return [address for address in found if address is not None]


def _listener(data: bytes, security_protocol: str) -> tuple[str, int] | None:
    """What a broker has written of its address. None: nothing that can be used."""
    try:
        told = json.loads(data)
        names = told.get("listener_security_protocol_map") or {}
        for endpoint in told.get("endpoints") or ():
            name, _, address = endpoint.partition("://")
            if names.get(name, name) == security_protocol:
                return parse_hosts(address)[0]
        if security_protocol == "PLAINTEXT" and told.get("host"):
            return parse_hosts(f"{told['host']}:{told['port']}")[0]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as exc:  # the last one for "[[[[..."
        log.warning("a broker's entry in ZooKeeper cannot be read, it is left out: %s", _told(exc))
    return None


def _note_session(client: Any) -> None:
    """Have it noted how long a session ZooKeeper grants: it may be shorter than asked for (maxSessionTimeout), and kazoo keeps it to itself."""
    connect = getattr(client._connection, "_connect", None)
    if connect is None:
        return

    def connected(*args: Any) -> Any:
        limits = connect(*args)
        client._granted_s = limits[0] * 1.5 / 1000  # kazoo gives up after two thirds of it
        return limits

    client._connection._connect = connected


def _session_s(client: Any, asked_s: float) -> float:
    """How long ZooKeeper waits for the client, as far as is known: not longer than it was asked to, and for a client of the user's not longer
    than that has asked.
    """
    return float(min(asked_s, getattr(client, "_granted_s", asked_s), client._session_timeout / 1000))


def check_path(what: str, name: str) -> None:
    """A name that is to be one step of a path."""
    if "/" in name or name in (".", "..") or not name.isprintable():
        raise ConfigurationError(f"{what}={name!r}: must be one printable name without '/', it is part of a path in ZooKeeper")


def close_client(client: Any) -> None:
    """End its session, and with it everything ephemeral."""
    with contextlib.suppress(Exception):
        client.stop()
        client.close()


def _result(asked: Any, timeout_s: float) -> Any:
    """The result of a call, or its exception. Raises ZooKeeperError if there is none in time. (kazoo's own timeout is one of gevent's there, which
    could not be told from a caller's.)
    """
    asked.wait(timeout=timeout_s)
    if not asked.ready():
        raise ZooKeeperError(f"ZooKeeper did not answer within {timeout_s:g} s")
    return asked.get(block=False)


def check_client(client: Any, handler: Handler) -> Any:
    """A KazooClient of the user's. Raises ConfigurationError where it would block the hub, or is none."""
    kazoo = _kazoo()
    if not isinstance(client, kazoo.client.KazooClient):
        raise ConfigurationError(f"zookeeper={client!r}: must be a kazoo.client.KazooClient")
    wanted, has = KAZOO_HANDLERS[handler.cooperative], getattr(client.handler, "name", "?")
    if handler.cooperative and has != wanted:
        raise ConfigurationError(
            f"zookeeper: this KazooClient works with the {has}, which would block all greenlets: make it with"
            " handler=kazoo.handlers.gevent.SequentialGeventHandler()"
        )
    if not client.connected:
        raise ConfigurationError("zookeeper: the KazooClient is not connected: call its start() first")
    return client


def _kazoo(without: str = "") -> Any:
    try:
        import kazoo.client
    except ImportError as exc:
        raise ConfigurationError(f"ZooKeeper needs the package kazoo: {install('zookeeper')}.{without}") from exc
    return kazoo


def _kazoo_handler(handler: Handler) -> Any:
    if handler.cooperative:
        from kazoo.handlers.gevent import SequentialGeventHandler

        return SequentialGeventHandler()
    from kazoo.handlers.threading import SequentialThreadingHandler

    return SequentialThreadingHandler()


def _told(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


class Registry:
    """One member. on_event(): something that was looked at has changed; on_state(state): the connection is "CONNECTED" again, "SUSPENDED" or, with its
    session, "LOST". Both are called on kazoo's workers, and must not wait. session_s: the time of the session that was asked for.

    Every look leaves a watch behind, so that a change after it is told once.
    """

    def __init__(
        self,
        client: Any,
        group: str,
        topic: str,
        member: str,
        *,
        session_s: float,
        on_event: Callable[[], None],
        on_state: Callable[[str], None],
    ) -> None:
        self._client, self._topic, self._member, self._asked_s = client, topic, member, session_s
        self._ids = f"/consumers/{group}/ids"
        self._owners = f"/consumers/{group}/owners/{topic}"
        self._odd: list[str] = []  # what was found there and is no claim
        self._lasting: list[str] = []  # what was found among the members and is of no session
        errors = _kazoo().exceptions
        self._exists, self._no_node, self._no_children = errors.NodeExistsError, errors.NoNodeError, errors.NoChildrenForEphemeralsError
        self._watch: Callable[[Any], None] = lambda event: on_event()
        self._on_state = on_state

    @property
    def path_self(self) -> str:
        """Where this member stands."""
        return f"{self._ids}/{self._member}"

    def path_of(self, leader: int, partition: int) -> str:
        """Where the owner of a partition stands."""
        return f"{self._owners}/{leader}-{partition}"

    @property
    def session_s(self) -> float:
        """How long ZooKeeper waits for this member before it gives away what that has."""
        return _session_s(self._client, self._asked_s)

    @property
    def session(self) -> Any:
        """The id of the session of now, None without one."""
        session = self._client.client_id
        return session[0] if session is not None else None

    # -- this member -----------------------------------------------------------------------------------------------------
    def prepare(self, patience_s: float | None = None) -> None:
        """Make the paths that everybody needs, and listen for the end of the connection. patience_s: as of _ask()."""
        self._client.add_listener(self._on_state)  # once, however often it is added
        self._ask(self._client.ensure_path_async(self._ids), patience_s)
        self._ask(self._client.ensure_path_async(self._owners), patience_s)

    def register(self) -> bool:
        """Stand among the members, under the session of now. False: what an earlier session left there has not gone yet."""
        return self._create(self.path_self, self._topic)

    def leave(self) -> None:
        """Stand there no longer."""
        self._delete(self.path_self)

    def forget(self) -> None:
        """Listen no longer."""
        self._client.remove_listener(self._on_state)

    def is_registered(self) -> bool:
        """Does this member stand there, under the session of now? The round trip also keeps the session alive."""
        stat = self._ask(self._client.exists_async(self.path_self))
        return stat is not None and self._is_ours(stat)

    def participants(self) -> list[str]:
        """The ids of all members for this topic, sorted. What is of no session would never end, and nobody would consume its share: it is no member."""
        found: list[str] = []
        lasting: list[str] = []
        for name in sorted(self._children(self._ids)):
            data = self._data(f"{self._ids}/{name}")
            if data is not None and data[0] == self._topic.encode():
                (found if data[1].ephemeralOwner else lasting).append(name)
        if lasting != self._lasting:
            self._lasting = lasting
            if lasting:
                log.warning("%s holds %s, which is of no session and so no member: it gets no partition", self._ids, lasting[:10])
        return found

    # -- partitions --------------------------------------------------------------------------------------------------------
    def owned(self) -> set[int]:
        """The partitions that this member owns, under the session of now."""
        mine = set()
        for partition, names in self._claims().items():
            for name in names:
                data = self._data(f"{self._owners}/{name}")
                if data is not None and data[0] == self._member.encode() and self._is_ours(data[1]):
                    mine.add(partition)
        return mine

    def owned_names(self) -> set[int]:
        """The partitions that anybody owns; one look."""
        return set(self._claims())

    def claim(self, leader: int, partition: int) -> bool:
        """Own a partition. False: somebody else does, under whatever leader's name."""
        path = self.path_of(leader, partition)
        claims = {name for name in self._claims().get(partition, ()) if not self._is_free(name)}
        if claims - {path.rpartition("/")[2]}:
            return False
        if not self._create(path, self._member):
            return False
        if self._is_first(path, partition):
            return True
        self._delete(path)
        return False

    def _is_free(self, name: str) -> bool:
        """Has a claim gone, or is it of no session, which nobody would ever end? The latter is taken away.

        Two members may want that at once, and the second one must not take away the claim that the first one put in its place: only who has a node
        inside takes it away, with that, and there can be none inside what is of a session.
        """
        path = f"{self._owners}/{name}"
        data = self._data(path)
        if data is None or data[1].ephemeralOwner:
            return data is None
        mark = f"{path}/taken"
        try:
            if not self._create(mark, self._member):
                return False  # another member is at it
        except self._no_children:
            return False
        both = self._client.transaction()
        both.delete(mark)
        both.delete(path)
        is_gone = not any(isinstance(result, Exception) for result in self._ask(both.commit_async()))
        if is_gone:
            log.warning("%s was of no session, so that no member had it: it was taken away", path)
        else:
            self._delete(mark)
            log.error(
                "%s is of no session, and cannot be taken away, since there is more inside: delete it, its partition is nobody's", path
            )
        return is_gone

    def _is_first(self, path: str, partition: int) -> bool:
        """Members that see different leaders claim under different names: of those who did so at once the first one owns it."""
        mine = self._data(path)
        if mine is None:
            return False
        for name in self._claims().get(partition, set()):
            other = self._data(f"{self._owners}/{name}")
            if other is not None and other[1].czxid < mine[1].czxid:
                return False
        return True

    def release(self, partitions: Iterable[int]) -> None:
        """Own these no longer."""
        claims = self._claims()
        for partition in partitions:
            for name in claims.get(partition, ()):
                path = f"{self._owners}/{name}"
                data = self._data(path)
                if data is not None and data[0] == self._member.encode():
                    self._delete(path)

    def watch_cluster(self) -> None:
        """Have it told when brokers or the topic change, where Kafka keeps them in this ZooKeeper."""
        self._children("/brokers/ids")
        self._data(f"/brokers/topics/{self._topic}", watch=True)

    def _claims(self) -> dict[int, set[str]]:
        claims: dict[int, set[str]] = {}
        odd: list[str] = []
        for name in sorted(self._children(self._owners)):
            if (found := OWNER.fullmatch(name)) is not None:
                claims.setdefault(int(found[1]), set()).add(name)
            else:
                odd.append(name[:100])
        if odd != self._odd:  # asked several times a second: what is new is told
            self._odd = odd
            if odd:
                log.warning("%s holds %s, which is no partition: left alone", self._owners, odd[:10])
        return claims

    # -- calls -------------------------------------------------------------------------------------------------------------
    def _is_ours(self, stat: Any) -> bool:
        session = self._client.client_id
        return session is not None and stat.ephemeralOwner == session[0]

    def _create(self, path: str, data: str) -> bool:
        """An ephemeral node of this session. False: somebody else's is there, or one of an earlier session that has not ended yet."""
        for _ in range(2):
            try:
                self._ask(self._client.create_async(path, data.encode(), ephemeral=True))
                return True
            except self._exists:
                there = self._data(path, watch=True)
                return there is not None and there[0] == data.encode() and self._is_ours(there[1])
            except self._no_node:  # somebody took the group's paths away
                self.prepare()
        raise ZooKeeperError(f"{path} cannot be made: its parents vanish")

    def _delete(self, path: str) -> None:
        with contextlib.suppress(self._no_node):
            self._ask(self._client.delete_async(path))

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._ask(self._client.get_children_async(path, watch=self._watch)))
        except self._no_node:
            return []

    def _data(self, path: str, *, watch: bool = False) -> tuple[bytes, Any] | None:
        try:
            data, stat = self._ask(self._client.get_async(path, watch=self._watch if watch else None))
        except self._no_node:
            return None
        return data or b"", stat

    def _ask(self, asked: Any, patience_s: float | None = None) -> Any:
        """patience_s: for the answer; None: what a member may wait that has partitions, and loses them with its session."""
        try:
            return _result(asked, max(0.5, self.session_s / CALLS) if patience_s is None else patience_s)
        except (self._exists, self._no_node, self._no_children, KafkaException):
            raise
        except Exception as exc:
            raise ZooKeeperError(f"ZooKeeper refused: {_told(exc)}") from exc
