"""BalancedConsumer on a real ZooKeeper: members of a group divide a topic, lose nothing and own nothing twice."""

from __future__ import annotations

import contextlib
import gc
import itertools
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from gkafka import KafkaClient
from gkafka.exceptions import (
    ClientClosedError,
    ConfigurationError,
    ConsumerStoppedException,
    KafkaException,
    NoPartitionsForConsumerException,
    PartitionOwnedError,
    ZooKeeperError,
)
from gkafka.membershipprotocol import GroupMembershipProtocol, RoundRobinProtocol
from gkafka.records import IMPLEMENTATION
from tests.kit.clock import during, now
from tests.live.kafka import KafkaCluster
from tests.live.peer import Peer
from tests.live.pool import POOL
from tests.live.sessions import end_session
from tests.live.sharing import add_partitions, fill, read, shares, until
from tests.public.aids import Runner
from tests.public.programs import Ended, play, with_values

if TYPE_CHECKING:
    from gkafka.balancedconsumer import BalancedConsumer

pytestmark = pytest.mark.usefixtures("version")

SHORT: dict[str, Any] = {"rebalance_backoff_ms": 200, "zookeeper_connection_timeout_ms": 4000}


@pytest.fixture(params=["2.8.2"])
def version(request: pytest.FixtureRequest) -> str:
    """A release that comes with its ZooKeeper."""
    name: str = request.param
    return name


@pytest.fixture
def zookeeper(kafka: KafkaCluster) -> Iterator[KazooClient]:
    """Another client of the same ZooKeeper."""
    assert kafka.zookeeper is not None
    client = KazooClient(kafka.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def join(kafka: KafkaCluster, connect: Callable[..., KafkaClient]) -> Iterator[Callable[..., BalancedConsumer]]:
    """Makes members, each with a client of its own; they are stopped after the test."""
    made: list[BalancedConsumer] = []

    def make(topic: str, group: str, **options: Any) -> BalancedConsumer:
        options = {"zookeeper_connect": kafka.zookeeper, **SHORT, **options}
        made.append(connect().topics[topic].get_balanced_consumer(group, **options))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def divided(*members: BalancedConsumer, partitions: int) -> Callable[[], bool]:
    """Has every partition one owner among the members?"""
    return lambda: sorted(p for share in shares(*members) for p in share) == list(range(partitions))


def test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves(
    join: Callable[..., BalancedConsumer], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    places = fill(peer, topic, 4)
    first = join(topic, group, auto_commit_enable=True)
    assert shares(first) == [[0, 1, 2, 3]]
    assert sorted(read(40, first)) == places
    second = join(topic, group, auto_commit_enable=True)
    until(lambda: sorted(map(len, shares(first, second))) == [2, 2])
    assert divided(first, second, partitions=4)()
    more = fill(peer, topic, 4, first=10)
    assert sorted(read(40, first, second)) == more, "each once: what was consumed is committed when a partition moves"
    second.stop()
    until(divided(first, partitions=4))
    last = fill(peer, topic, 4, first=20)
    assert sorted(read(40, first)) == last


ENDS = """
from gkafka import KafkaClient
client = KafkaClient(HOSTS, handler=HANDLER)
OWN
consumer = client.topics[TOPIC].get_balanced_consumer(GROUP, auto_commit_enable=True, OPTIONS)
print(consumer.consume().offset)
"""
OWN = """
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler
own = KazooClient(ZOOKEEPER, timeout=40, handler=SequentialGeventHandler() if HANDLER == "gevent" else None)
own.start()
"""


@pytest.mark.parametrize("given", [False, True])
def test_a_program_that_ends_leaves_its_group_at_once_and_what_it_had_in_its_hands_comes_to_the_next(
    given: bool,
    handler: str,
    kafka: KafkaCluster,
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    peer: Peer,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    """Without a stop(). Its session would last for 40 seconds more."""
    topic, group = new_topic(2), new_name("group")
    places = fill(peer, topic, 2)
    options = "zookeeper=own" if given else "zookeeper_connect=ZOOKEEPER, zookeeper_connection_timeout_ms=40_000"
    program = ENDS.replace("OWN", OWN if given else "").replace("OPTIONS", options)
    program = with_values(program, HOSTS=kafka.hosts, HANDLER=handler, TOPIC=topic, GROUP=group, ZOOKEEPER=kafka.zookeeper)
    assert play(program, alone=True) == Ended(0, "0\n", "")
    assert zookeeper.get_children(f"/consumers/{group}/ids") == []
    assert zookeeper.get_children(f"/consumers/{group}/owners/{topic}") == []
    assert sorted(read(20, join(topic, group))) == places


def test_the_znodes_are_pykafkas(
    join: Callable[..., BalancedConsumer], zookeeper: KazooClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    member = join(topic, group)
    (name,) = zookeeper.get_children(f"/consumers/{group}/ids")
    assert re.fullmatch(r".+:[0-9a-f-]{36}", name)
    assert zookeeper.get(f"/consumers/{group}/ids/{name}")[0] == topic.encode()
    leader = member.partitions[0].leader
    assert leader is not None
    assert sorted(zookeeper.get_children(f"/consumers/{group}/owners/{topic}")) == [f"{leader.id}-0", f"{leader.id}-1"]
    data, stat = zookeeper.get(f"/consumers/{group}/owners/{topic}/{leader.id}-0")
    assert data == name.encode()
    assert stat.ephemeralOwner
    member.stop()
    assert zookeeper.get_children(f"/consumers/{group}/ids") == []
    assert zookeeper.get_children(f"/consumers/{group}/owners/{topic}") == []


def test_a_member_of_pykafkas_gets_its_share_and_gives_it_back(
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
    handler: str,
) -> None:
    topic, group = new_topic(4), new_name("group")
    member = join(topic, group)
    zookeeper.create(f"/consumers/{group}/ids/0-before-all-others", topic.encode(), ephemeral=True)
    until(lambda: shares(member) == [[2, 3]])
    leader = member.partitions[2].leader
    assert leader is not None
    for partition in (0, 1):
        zookeeper.create(f"/consumers/{group}/owners/{topic}/{leader.id}-{partition}", b"0-before-all-others", ephemeral=True)
    zookeeper.delete(f"/consumers/{group}/ids/0-before-all-others")
    with pytest.raises(PartitionOwnedError) as raised:
        until(lambda: member.consume(block=False) or False)
    assert raised.value.partition.id == 0
    assert shares(member) == [[2, 3]]
    for partition in (0, 1):
        zookeeper.delete(f"/consumers/{group}/owners/{topic}/{leader.id}-{partition}")
    until(lambda: shares(member) == [[0, 1, 2, 3]])


def test_contradiction_2_a_member_more_than_partitions_is_idle(
    join: Callable[..., BalancedConsumer], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    first = join(topic, group)
    second = join(topic, group, consumer_timeout_ms=100)
    until(divided(first, second, partitions=1))
    idle = next(m for m in (first, second) if not m.partitions)
    busy = first if idle is second else second
    assert idle.consume(block=False) is None
    assert idle.held_offsets == {}
    with pytest.raises(NoPartitionsForConsumerException, match="no partition at the moment"):
        idle.commit_offsets()
    busy.stop()
    until(divided(idle, partitions=1))


def test_b54_who_loses_its_session_stops_and_joins_again(
    kafka: KafkaCluster,
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    peer: Peer,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group = new_topic(2), new_name("group")
    member = join(topic, group, auto_commit_enable=True)
    session = member._session
    victim = member._registry._client.client_id  # type: ignore[union-attr]
    until(lambda: end_session(kafka.zookeeper, victim))
    until(lambda: member._session not in (None, session))
    until(divided(member, partitions=2))
    places = fill(peer, topic, 2)
    assert sorted(read(20, member)) == places
    owners = zookeeper.get_children(f"/consumers/{group}/owners/{topic}")
    assert len(owners) == 2


def test_b54_a_partition_that_was_taken_away_is_not_consumed_further(
    join: Callable[..., BalancedConsumer], zookeeper: KazooClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    member = join(topic, group, rebalance_max_retries=1000)
    owners = f"/consumers/{group}/owners/{topic}"
    (name,) = [n for n in zookeeper.get_children(owners) if n.endswith("-1")]
    transaction = zookeeper.transaction()
    transaction.delete(f"{owners}/{name}")
    transaction.create(f"{owners}/9-1", b"somebody-else", ephemeral=True)
    transaction.commit()
    until(lambda: shares(member) == [[0]])
    zookeeper.delete(f"{owners}/9-1")
    until(lambda: shares(member) == [[0, 1]])


def test_the_callback_of_a_rebalance_says_from_where_to_go_on(
    join: Callable[..., BalancedConsumer], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    fill(peer, topic, 1)
    calls: list[tuple[dict[int, int], dict[int, int]]] = []

    def callback(consumer: Any, before: dict[int, int], after: dict[int, int]) -> dict[int, int]:
        calls.append((before, after))
        return {0: 6}

    member = join(topic, group, post_rebalance_callback=callback)
    assert calls == [({}, {0: -2})]
    assert read(3, member) == [(0, 7), (0, 8), (0, 9)]


@pytest.mark.parametrize("what", ["raises", "returns nonsense", "names another partition"])
def test_a_callback_that_fails_is_told_and_the_consumer_goes_on(
    what: str, join: Callable[..., BalancedConsumer], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    places = fill(peer, topic, 1)

    def callback(consumer: Any, before: Any, after: Any) -> Any:
        if what == "raises":
            raise RuntimeError("no")
        return {5: 1} if what == "names another partition" else "no"

    member = join(topic, group, post_rebalance_callback=callback)
    with pytest.raises(RuntimeError if what == "raises" else ConfigurationError):
        member.consume(block=False)
    assert read(10, member) == places


def test_a_callback_may_stop_the_consumer(
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group = new_topic(2), new_name("group")
    first = join(topic, group, post_rebalance_callback=lambda consumer, before, after: consumer.stop() if before else None)
    zookeeper.create(f"/consumers/{group}/ids/0-before-all-others", topic.encode(), ephemeral=True)
    until(lambda: first.closed)
    until(lambda: zookeeper.get_children(f"/consumers/{group}/owners/{topic}") == [])


def test_round_robin_divides_in_turn(
    join: Callable[..., BalancedConsumer], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(4), new_name("group")
    members = [join(topic, group, membership_protocol=RoundRobinProtocol) for _ in range(2)]
    until(lambda: sorted(shares(*members)) == [[0, 2], [1, 3]])


def test_a_protocol_that_returns_nonsense_is_named(
    join: Callable[..., BalancedConsumer], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    nonsense = GroupMembershipProtocol(b"consumer", b"odd", None, lambda participants, partitions, me: [17])  # type: ignore[list-item]
    member = join(new_topic(1), new_name("group"), membership_protocol=nonsense)
    with pytest.raises(ConfigurationError, match="'odd' chose 17"):
        member.consume(block=False)


def test_behaviour_47_a_kazoo_client_that_is_given_stays_open(
    kafka: KafkaCluster,
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    handler: str,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group = new_topic(1), new_name("group")
    if handler == "gevent":
        with pytest.raises(ConfigurationError, match="SequentialGeventHandler"):
            join(topic, group, zookeeper=zookeeper)
        return
    member = join(topic, group, zookeeper=zookeeper, zookeeper_connect="no-such-host:1")
    assert shares(member) == [[0]]
    member.stop()
    assert zookeeper.connected
    assert zookeeper.get_children(f"/consumers/{group}/owners/{topic}") == []
    assert zookeeper.get_children(f"/consumers/{group}/ids") == []


def test_behaviour_7_a_chroot_that_is_missing_is_made(
    kafka: KafkaCluster,
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group, chroot = new_topic(1), new_name("group"), new_name("chroot")
    member = join(topic, group, zookeeper_connect=f"{kafka.zookeeper},{kafka.zookeeper}/{chroot}/deep")
    assert shares(member) == [[0]]
    assert zookeeper.get_children(f"/{chroot}/deep/consumers/{group}/owners/{topic}")


def test_partitions_that_are_added_are_shared_also_where_this_zookeeper_knows_nothing_of_kafka(
    kafka: KafkaCluster, join: Callable[..., BalancedConsumer], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    member = join(topic, group, zookeeper_connect=f"{kafka.zookeeper}/{new_name('elsewhere')}", consumer_timeout_ms=100)
    member.consume()
    add_partitions(kafka.hosts, topic, 3)
    until(lambda: (member._cluster.update(), member.consume(), shares(member) == [[0, 1, 2]])[-1])


def test_a_zookeeper_that_is_away_is_told_in_its_time(
    join: Callable[..., BalancedConsumer], new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    begun = now()
    with pytest.raises(ZooKeeperError, match="no ZooKeeper answered within zookeeper_connection_timeout_ms=500"):
        join(new_topic(1), new_name("group"), zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=500)
    assert now() - begun < 30


def test_the_close_of_a_client_ends_the_wait_for_a_zookeeper_that_is_silent(
    connect: Callable[..., KafkaClient], handler: str, new_topic: Callable[..., str]
) -> None:
    client, run = connect(), Runner(handler)
    topic = client.topics[new_topic(1)]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts, and nobody answers
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        waiting = run.aside(lambda: topic.get_balanced_consumer("g", zookeeper_connect=address, zookeeper_connection_timeout_ms=120_000))
        run.sleep(0.3)
        assert waiting.running, waiting.error or waiting.value
        client.close(1)
        run.until(lambda: not waiting.running, 60)
    assert isinstance(waiting.error, ClientClosedError), waiting.error


def test_garbage_among_the_znodes_is_left_alone(
    join: Callable[..., BalancedConsumer], zookeeper: KazooClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    for path, data in ((f"ids/odd-{topic}", b"\xff\xfe"), (f"owners/{topic}/nonsense", b"x"), (f"owners/{topic}/1-99999999999", b"")):
        zookeeper.create(f"/consumers/{group}/{path}", data, makepath=True)
    member = join(topic, group)
    assert shares(member) == [[0, 1]]
    with contextlib.suppress(Exception):
        member.stop()
    assert sorted(zookeeper.get_children(f"/consumers/{group}/owners/{topic}")) == ["1-99999999999", "nonsense"]


def test_what_is_of_no_session_is_no_member_and_owns_nothing(
    join: Callable[..., BalancedConsumer],
    zookeeper: KazooClient,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = new_topic(4), new_name("group")
    for path, data in (("ids/a", topic.encode()), (f"owners/{topic}/1-0", b"a"), (f"owners/{topic}/-1-2", b"\xff\xfe")):
        zookeeper.create(f"/consumers/{group}/{path}", data, makepath=True)
    zookeeper.create(f"/consumers/{group}/owners/{topic}/9-3/inside", makepath=True)
    member = join(topic, group)
    assert shares(member) == [[0, 1, 2]]
    assert sum("no member: it gets no partition" in r.getMessage() for r in caplog.records) == 1
    assert sum("it was taken away" in r.getMessage() for r in caplog.records) == 2
    assert any("9-3 is of no session, and cannot be taken away" in r.getMessage() for r in caplog.records)
    zookeeper.delete(f"/consumers/{group}/owners/{topic}/9-3", recursive=True)
    others = [join(topic, group), join(topic, group)]
    until(divided(member, *others, partitions=4))


def test_auto_start_false_asks_nothing_of_zookeeper(
    join: Callable[..., BalancedConsumer], zookeeper: KazooClient, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    member = join(topic, group, auto_start=False, consumer_timeout_ms=100)
    assert zookeeper.exists(f"/consumers/{group}") is None
    with pytest.raises(ConsumerStoppedException, match="call start"):
        member.consume()
    member.start()
    assert shares(member) == [[0]]
    assert member.consume() is None, "consumer_timeout_ms"


def test_what_is_committed_is_where_the_next_member_begins(
    join: Callable[..., BalancedConsumer], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(1), new_name("group")
    fill(peer, topic, 1)
    member = join(topic, group, use_rdkafka=IMPLEMENTATION == "cython", commit_on_rebalance=False)
    assert [message.offset for message in itertools.islice(member, 5)] == [0, 1, 2, 3, 4]
    assert member.held_offsets == {0: 4}
    member.commit_offsets()
    assert [message.offset for message in itertools.islice(member, 2)] == [5, 6]
    member.reset_offsets([(member.partitions[0], 1)])
    assert [message.offset for message in itertools.islice(member, 2)] == [1, 2]
    member.stop()
    assert read(5, join(topic, group))[:5] == [(0, n) for n in range(1, 6)], "reset_offsets() commits, stop() does not"


def test_b27_a_partition_that_stays_goes_on_where_it_stood_though_nothing_is_committed(
    join: Callable[..., BalancedConsumer], peer: Peer, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic, group = new_topic(2), new_name("group")
    fill(peer, topic, 2)
    first = join(topic, group)
    read(20, first)
    inside = first._consumer
    second = join(topic, group)
    until(lambda: sorted(map(len, shares(first, second))) == [1, 1])
    assert first._consumer is not inside
    assert inside is not None
    assert not inside._running, "stopped before another took its place"
    more = fill(peer, topic, 2, first=10)
    (stayed,) = first.partitions
    assert read(10, first) == [place for place in more if place[0] == stayed]
    assert first._get_participants() == second._get_participants() == sorted([first._consumer_id, second._consumer_id])


def test_a_consumer_that_is_dropped_gives_its_partitions_back(
    join: Callable[..., BalancedConsumer],
    kafka: KafkaCluster,
    connect: Callable[..., KafkaClient],
    zookeeper: KazooClient,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    topic, group = new_topic(1), new_name("group")
    member = connect().topics[topic].get_balanced_consumer(group, zookeeper_connect=kafka.zookeeper, **SHORT)
    assert shares(member) == [[0]]
    del member
    until(lambda: gc.collect() >= 0 and zookeeper.get_children(f"/consumers/{group}/owners/{topic}") == [])


def test_a_group_moves_from_zookeeper_to_its_coordinator_with_every_message_once(
    join: Callable[..., BalancedConsumer],
    connect: Callable[..., KafkaClient],
    peer: Peer,
    new_topic: Callable[..., str],
    new_name: Callable[[str], str],
) -> None:
    """docs/groups.md: stop them all, then start the others."""
    topic, group = new_topic(2), new_name("group")
    places = fill(peer, topic, 2, each=20)
    old = [join(topic, group, auto_commit_enable=True) for _ in range(2)]
    until(lambda: sorted(map(len, shares(*old))) == [1, 1])
    seen = [(m.partition_id, m.offset) for member in old for m in itertools.islice(member, 7)]
    for member in old:
        member.stop()
    new = connect().topics[topic].get_balanced_consumer(group, managed=True, auto_commit_enable=True)
    assert sorted(seen + read(40 - len(seen), new)) == places
    late = join(topic, group)
    until(lambda: shares(late) == [[0, 1]])
    with pytest.raises(KafkaException, match="member"):
        late.commit_offsets()
    new.stop()


# -- F20: ZooKeeper or the member stands still -----------------------------------------------------------------------------
@pytest.fixture
def own_kafka(version: str) -> KafkaCluster:
    """A broker of these tests alone: its ZooKeeper stands still for a while."""
    return POOL.get(version, kind="shaken")


@pytest.mark.parametrize(
    "sessions", [2.0, 0.85]
)  # so long that ZooKeeper has ended it; or that it still knows it, which the member cannot know
def test_f20_nothing_is_handed_out_on_a_frozen_zookeepers_word(
    own_kafka: KafkaCluster, handler: str, new_name: Callable[[str], str], sessions: float
) -> None:
    topic, group = new_name("topic"), new_name("group")
    own_kafka.create_topic(topic, 2)
    fill(Peer(own_kafka.hosts, own_kafka.release), topic, 2, each=2000)
    session_s = 6.0
    with KafkaClient(own_kafka.hosts, handler=handler) as client:
        member = client.topics[topic].get_balanced_consumer(
            group, zookeeper_connect=own_kafka.zookeeper, **SHORT | {"zookeeper_connection_timeout_ms": session_s * 1000}
        )
        until(lambda: member.consume_batch(1, timeout_ms=50))
        own_kafka.suspend_zookeeper()
        frozen = last = now()
        for _ in during(sessions * session_s, pause=0):
            if member.consume_batch(1, timeout_ms=20):
                last = now()
            client.handler.sleep(0.005)  # some must be left for afterwards: of a session that goes on nothing is read again
        assert last > frozen
        assert last - frozen <= session_s, "by the member's own clock: after two thirds of it"
        with pytest.raises(NoPartitionsForConsumerException):
            member.commit_offsets()
        own_kafka.resume_zookeeper()
        resumed = now()
        read(10, member)
        assert now() - resumed <= 60
        member.stop()


CHILD = """
import sys, time
from gkafka import KafkaClient
hosts, zookeeper, handler, topic, group = sys.argv[1:]
client = KafkaClient(hosts, handler=handler)
member = client.topics[topic].get_balanced_consumer(
    group, zookeeper_connect=zookeeper, zookeeper_connection_timeout_ms=4000, rebalance_backoff_ms=200, queued_max_messages=100_000,
    commit_on_rebalance=False)
session = None
while True:
    for message in member.consume_batch(1, timeout_ms=20):
        print("message", message.partition_id, message.offset, flush=True)
    if member._session not in (None, session):
        session = member._session
        print("session", session, flush=True)
"""


def test_f20_a_member_that_stood_still_for_longer_than_its_session_hands_nothing_out(
    own_kafka: KafkaCluster, handler: str, new_name: Callable[[str], str]
) -> None:
    topic, group = new_name("topic"), new_name("group")
    own_kafka.create_topic(topic, 2)
    fill(Peer(own_kafka.hosts, own_kafka.release), topic, 2, each=5000)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, own_kafka.hosts, str(own_kafka.zookeeper), handler, topic, group], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(iter(child.stdout.readline, "")), daemon=True)  # type: ignore[union-attr]
    reader.start()
    try:
        until(lambda: sum(line.startswith("message") for line in said) > 5)
        with KafkaClient(own_kafka.hosts, handler="threading") as client:
            other = client.topics[topic].get_balanced_consumer(
                group, zookeeper_connect=own_kafka.zookeeper, rebalance_max_retries=1000, **SHORT
            )
            until(lambda: len(other.partitions) == 1)
            child.send_signal(signal.SIGSTOP)
            until(lambda: sorted(other.partitions) == [0, 1])
            read(10, other)
            before = len(said)
            child.send_signal(signal.SIGCONT)
            until(lambda: any(line.startswith("session") for line in said[before:]))
            at = next(n for n, line in enumerate(said) if n >= before and line.startswith("session"))
            assert at - before <= 1, f"handed out after another member had them: {said[before:at]}"
            other.stop()
    finally:
        child.kill()
        child.wait(60)
        reader.join(60)
        child.stdout.close()
