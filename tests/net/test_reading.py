"""Who waits for an answer takes it in, in the reader's place: when that is, and that nothing is lost by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gkafka.config import ClientConfig
from gkafka.exceptions import ForkedClientError, KafkaException, KafkaTimeoutError, SocketDisconnectedError
from gkafka.handlers import ThreadingHandler
from gkafka.net.channel import Channel
from gkafka.net.reading import SMALL_ANSWER, Reading
from gkafka.testing import Drop, MockCluster
from gkafka.wire.metadata import MetadataRequest
from tests.kit.clock import PATIENCE_S, now, soon
from tests.net.channel_peers import Conversation, peer
from tests.public.aids import Held

WAIT_S = PATIENCE_S
Make = Callable[..., Channel]


class Cut(BaseException):
    """What a signal handler raises."""


class Answer:
    """What on_done was called with: of one request. by: the thread that called it."""

    def __init__(self) -> None:
        self.response: Any = None
        self.error: KafkaException | None = None
        self.times = 0
        self.by: threading.Thread | None = None

    def __call__(self, response: Any, error: KafkaException | None) -> None:
        self.response, self.error, self.by = response, error, threading.current_thread()
        self.times += 1

    def is_there(self) -> bool:
        return self.times > 0

    def wait(self) -> None:
        until = now() + WAIT_S
        while not self.times:
            assert now() < until, "no answer came"
            time.sleep(0.001)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Channel] = []
    handler = ThreadingHandler()

    def new(port: int, **options: Any) -> Channel:
        made.append(Channel(handler, "127.0.0.1", port, ClientConfig(**options)))
        made[-1].wait_open(soon(WAIT_S))
        return made[-1]

    yield new
    for channel in made:
        channel.close()
        assert channel.join(WAIT_S)
    handler.stop()


def port_of(cluster: MockCluster) -> int:
    return cluster.brokers[1][1]


def ask(channel: Channel, timeout_s: float = WAIT_S) -> Answer:
    answer = Answer()
    channel.send(MetadataRequest(topics=[]), answer, timeout_s=timeout_s)
    return answer


def call(channel: Channel) -> Answer:
    """One request, waited for as an engine waits."""
    answer = ask(channel)
    if not channel.stand_in.read_until(answer.is_there, soon(WAIT_S)):
        answer.wait()
    return answer


def aside(channel: Channel) -> None:
    """Make calls until the reader stands aside."""
    until = now() + WAIT_S
    while not channel._reading.is_aside:
        assert now() < until, "the reader never stood aside"
        call(channel)
        time.sleep(0.0005)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that stands aside comes back when it is called, or after a second: not after some milliseconds, in which a busy machine may do something else."""
    for name, seconds in {"WATCH_S": 1.0, "IDLE_S": 1000.0, "STUCK_S": 1000.0}.items():
        monkeypatch.setattr(f"gkafka.net.reading.{name}", seconds)
    monkeypatch.setattr("gkafka.net.standin.LOOK_S", 1000.0)


@pytest.mark.usefixtures("patient")
def test_who_waits_for_one_answer_after_the_other_takes_them_in(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        first = call(channel)
        assert first.by is not threading.current_thread(), "nobody had said that it would wait"
        aside(channel)
        mine = [call(channel).by is threading.current_thread() for _ in range(200)]
        assert all(mine)
        assert channel.in_flight == 0


def test_an_answer_that_nobody_waits_for_is_read_by_the_reader(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        answer = ask(channel)
        answer.wait()
        assert answer.error is None
        assert answer.by is not threading.current_thread()


@pytest.mark.parametrize("behind", [True, False])
def test_the_reader_does_not_stand_aside_behind_who_waits_for_it(behind: bool) -> None:
    """Whoever began to wait after the last answer was handed up was told to wait for the reader, and would wait for its next look."""
    reading, aside_at = Reading(ThreadingHandler()), []

    def is_over() -> bool:
        aside_at.append(reading.is_aside)
        return True

    reading.want(0)
    reading.answered(100)
    if behind:
        reading.want(0)
    reading.stand_aside(lambda: 0, is_over)
    assert aside_at == ([] if behind else [True])


def test_several_requests_at_once_are_the_readers_again(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        answers = [ask(channel) for _ in range(50)]
        for answer in answers:
            answer.wait()
        assert [answer.times for answer in answers] == [1] * 50
        assert not any(answer.error for answer in answers)


def test_many_callers_of_one_connection_each_get_their_answer(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        answers: list[Answer] = []

        def work() -> None:
            answers.extend(call(channel) for _ in range(100))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(answers) == 600
        assert {(answer.times, answer.error) for answer in answers} == {(1, None)}


def test_a_caller_whose_time_is_over_leaves_the_answer_to_the_reader(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        late = Held()
        cluster.on("Metadata", late)
        answer, begun = ask(channel), now()
        assert channel.stand_in.read_until(answer.is_there, soon(0.05))
        assert now() - begun < WAIT_S
        assert not answer.times
        late.released = True
        answer.wait()
        assert answer.error is None


def test_half_an_answer_is_gone_on_with_by_who_reads_next(make: Make) -> None:
    """The caller's time ends in the middle of a frame."""
    gate, rest = threading.Event(), threading.Event()

    def halves(connection: Conversation) -> None:
        connection.negotiate()
        while True:
            request = connection.read()
            if not gate.is_set():
                connection.answer(request, request.api.response())
                continue
            from gkafka.wire.apis import encode_response

            frame = b"".join(encode_response(request.api.response(), request.version, request.correlation_id))
            connection.send(frame[:7])
            gate.clear()
            rest.wait(WAIT_S)
            connection.send(frame[7:])

    with peer(halves) as server:
        channel = make(server.port)
        aside(channel)
        gate.set()
        answer = ask(channel)
        assert channel.stand_in.read_until(answer.is_there, soon(0.1))
        assert not answer.times
        rest.set()
        answer.wait()
        assert answer.error is None
        assert call(channel).error is None
        channel.close()


def test_who_is_interrupted_while_it_waits_has_taken_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        stream = channel._link.stream
        assert stream is not None

        def cut(deadline: float) -> bool:
            raise Cut

        with monkeypatch.context() as patch:
            patch.setattr(stream, "wait_readable", cut)
            answer = ask(channel)
            with pytest.raises(Cut):
                channel.stand_in.read_until(answer.is_there, soon(WAIT_S))
        answer.wait()
        assert (answer.times, answer.error) == (1, None)
        assert not channel.closed


@pytest.mark.parametrize("where", ["read", "take", "decode", "done"])
def test_who_is_interrupted_while_it_reads_ends_the_connection_and_everybody_is_told(
    make: Make, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        me, told = threading.current_thread(), Answer()

        def cut_off(whole: Callable[..., Any]) -> Callable[..., Any]:
            def cut(*args: Any, **kwargs: Any) -> Any:
                result = whole(*args, **kwargs)
                if threading.current_thread() is me:
                    raise Cut
                return result

            return cut

        def done(response: Any, error: KafkaException | None) -> None:
            told(response, error)
            if where == "done" and error is None:
                raise Cut

        target = {"read": channel._inbox.frames, "take": channel._connection, "decode": channel._connection}
        with monkeypatch.context() as patch:
            patch.setattr("gkafka.net.reading.STUCK_S", 1000.0)  # at which the reader finds it stuck
            if where in target:
                patch.setattr(target[where], where, cut_off(getattr(target[where], where)))
            channel.send(MetadataRequest(topics=[]), done, timeout_s=WAIT_S)
            with pytest.raises(Cut):
                channel.stand_in.read_until(told.is_there, soon(WAIT_S))
            assert channel.join(WAIT_S)
        assert channel.closed
        assert isinstance(told.error, SocketDisconnectedError)
        assert told.times == (2 if where == "done" else 1), "its error once more, as `send` says"


def test_a_request_whose_time_is_over_ends_the_connection_while_callers_read(make: Make) -> None:
    enough = threading.Event()
    with peer(lambda connection: (connection.negotiate(), _answer_until(enough, connection), connection.stay_silent())) as server:
        channel = make(server.port)
        aside(channel)
        enough.set()
        answer = ask(channel, timeout_s=0.3)
        begun = now()
        while not answer.times:
            channel.stand_in.read_until(answer.is_there, soon(5))
            time.sleep(0.001)
            assert now() - begun < WAIT_S
        assert isinstance(answer.error, KafkaTimeoutError)
        assert channel.join(WAIT_S)


def _answer_until(enough: threading.Event, connection: Conversation) -> None:
    """The request that comes after that is read."""
    while request := connection.read():
        if enough.is_set():
            return
        connection.answer(request, request.api.response())


def test_a_peer_that_goes_away_is_noticed_by_the_caller(make: Make) -> None:
    enough = threading.Event()
    with peer(lambda connection: (connection.negotiate(), _answer_until(enough, connection))) as server:
        channel = make(server.port)
        aside(channel)
        enough.set()
        answer = ask(channel)
        channel.stand_in.read_until(answer.is_there, soon(WAIT_S))
        answer.wait()
        assert isinstance(answer.error, SocketDisconnectedError)


def test_garbage_in_place_of_an_answer_ends_the_connection_and_is_named(make: Make) -> None:
    enough = threading.Event()

    def lie(connection: Conversation) -> None:
        connection.negotiate()
        _answer_until(enough, connection)
        connection.send(b"\x00\x00\x00\x08" + bytes(8))

    with peer(lie) as server:
        channel = make(server.port)
        aside(channel)
        enough.set()
        answer = ask(channel)
        channel.stand_in.read_until(answer.is_there, soon(WAIT_S))
        answer.wait()
        assert "correlation id 0" in str(answer.error)
        assert channel.join(WAIT_S)


def test_close_ends_a_caller_that_reads(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        cluster.on("Metadata", Drop())
        answer = ask(channel, timeout_s=1000)
        threading.Timer(0.1, channel.close).start()
        channel.stand_in.read_until(answer.is_there, soon(1000))
        answer.wait()
        assert isinstance(answer.error, SocketDisconnectedError)


@pytest.mark.parametrize("largest", [SMALL_ANSWER, float("inf")])
def test_after_a_large_answer_that_was_decrypted_the_reader_reads(make: Make, largest: float) -> None:
    with MockCluster(topics={f"topic-{n:04d}-with-a-long-name": 8 for n in range(200)}) as cluster:
        channel = make(port_of(cluster))
        assert channel._reading._largest == float("inf")  # TLS is another matter
        channel._reading._largest = largest
        aside(channel)
        answer = Answer()
        channel.send(MetadataRequest(topics=None), answer, timeout_s=WAIT_S)
        if not channel.stand_in.read_until(answer.is_there, soon(WAIT_S)):
            answer.wait()
        assert len(answer.response.topics) == 200
        assert SMALL_ANSWER < 200 * 8 * 20
        if largest == float("inf"):
            for _ in range(20):  # each caller reads its own
                aside(channel)
            return
        until = now() + WAIT_S
        while channel._reading.is_aside:
            assert now() < until
            time.sleep(0.001)


def test_without_calls_the_reader_comes_back_by_itself(make: Make) -> None:
    """It is the one that notices the connection's end."""
    gone = threading.Event()

    def leave(connection: Conversation) -> None:
        connection.negotiate()
        try:
            while not gone.is_set():
                request = connection.read()
                connection.answer(request, request.api.response())
        finally:
            connection.reset()

    with peer(leave) as server:
        channel = make(server.port)
        aside(channel)
        until = now() + WAIT_S
        while channel._reading.is_aside:
            assert now() < until
            time.sleep(0.005)
        gone.set()
        ask(channel)
        assert channel.join(WAIT_S)
        assert channel.closed


def test_half_an_answer_and_then_nothing_is_a_request_whose_time_is_over(make: Make) -> None:
    """A caller that waits on and on has the turn nearly all the time."""

    enough = threading.Event()

    def stall(connection: Conversation) -> None:
        connection.negotiate()
        _answer_until(enough, connection)
        connection.send(b"\x00\x00")
        connection.stay_silent()

    with peer(stall) as server:
        channel = make(server.port)
        aside(channel)
        enough.set()
        answer, begun = ask(channel, timeout_s=0.3), now()
        while not answer.times:
            channel.stand_in.read_until(answer.is_there, soon(1))
            assert now() - begun < WAIT_S
        assert isinstance(answer.error, KafkaTimeoutError)


@pytest.mark.usefixtures("patient")
def test_a_caller_that_waits_hands_up_what_comes_before_its_own_answer(make: Make) -> None:
    """The reader that came back then took the bytes away from under its poll(): the caller waited on for nothing."""
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        held = Held()
        cluster.on("Metadata", held)
        last, answers = Answer(), []

        def wait() -> None:
            answers.append(ask(channel))
            channel.stand_in.read_until(last.is_there, soon(WAIT_S))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until = now() + WAIT_S
        while not channel._reading._expected_until:
            assert now() < until
            time.sleep(0.001)
        answers += [ask(channel) for _ in range(4)]
        channel.send(MetadataRequest(topics=[]), last, timeout_s=WAIT_S)
        held.released = True
        waiting.join(WAIT_S)
        assert {answer.by for answer in (*answers, last)} == {waiting}


def test_a_session_is_renewed_while_callers_read(make: Make) -> None:
    class Due:
        renew_at, renewing, renewals = 0.0, False, 0

        def renew(self, versions: Any, timeout_s: float) -> None:
            self.renew_at, self.renewals = float("inf"), self.renewals + 1

    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        due: Any = Due()
        channel._looks._session = due
        until = now() + WAIT_S
        while not due.renewals and now() < until:
            call(channel)
        channel._looks._session = None
        assert due.renewals == 1


def test_close_while_a_caller_hands_up_an_answer_tells_it_once(make: Make) -> None:
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        told, inside, go_on = Answer(), threading.Event(), threading.Event()

        def done(response: Any, error: KafkaException | None) -> None:
            if error is None:
                inside.set()
                go_on.wait(WAIT_S)
            told(response, error)

        def work() -> None:
            channel.send(MetadataRequest(topics=[]), done, timeout_s=WAIT_S)
            channel.stand_in.read_until(told.is_there, soon(WAIT_S))

        caller = threading.Thread(target=work)
        caller.start()
        assert inside.wait(WAIT_S)
        assert not caller.daemon
        channel.close()
        assert not channel.join(0.2), "it is being told yet"
        go_on.set()
        caller.join(WAIT_S)
        assert channel.join(WAIT_S)
        assert (told.times, told.error) == (1, None)
        assert told.by is caller


def test_who_waits_on_top_of_itself_ends_the_connection_and_is_told_soon(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that calls the client while the main thread hands an answer up: that goes on only after the handler."""
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        monkeypatch.setattr("gkafka.net.reading.STUCK_S", 1000.0)  # not when the reader finds it stuck
        inner, calls = Answer(), []

        def done(response: Any, error: KafkaException | None) -> None:
            if threading.current_thread() is me and not calls:
                calls.append("begun")
                channel.send(MetadataRequest(topics=[]), inner, timeout_s=WAIT_S)
                if not channel.stand_in.read_until(inner.is_there, soon(WAIT_S)):
                    inner.wait()
                calls.append("told")

        me = threading.current_thread()
        channel.send(MetadataRequest(topics=[]), done, timeout_s=WAIT_S)
        channel.stand_in.read_until(lambda: len(calls) > 1, soon(WAIT_S))
        assert calls == ["begun", "told"]
        assert isinstance(inner.error, SocketDisconnectedError)


def test_a_process_that_was_forked_takes_no_byte(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may fork, on top of a caller that waits; in the child that goes on when the handler returns."""
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)

        def forked() -> None:
            if threading.current_thread() is me:
                raise ForkedClientError("created in pid 1, used in pid 2")

        me, answer = threading.current_thread(), ask(channel)
        with monkeypatch.context() as patch:
            patch.setattr(channel._handler, "check_fork", forked)
            with pytest.raises(ForkedClientError):
                channel.stand_in.read_until(answer.is_there, soon(WAIT_S))
        answer.wait()
        assert (answer.times, answer.error) == (1, None)


def test_who_is_interrupted_twice_leaves_no_answer_untold(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time before it could end the connection."""
    with MockCluster() as cluster:
        channel = make(port_of(cluster))
        aside(channel)
        me, answer = threading.current_thread(), Answer()
        decode, cut_short = channel._connection.decode, channel._inbox.cut_short

        def cut(*args: Any) -> Any:
            if threading.current_thread() is me:
                raise Cut
            return decode(*args)

        def cut_again() -> None:
            if threading.current_thread() is me:
                raise Cut
            cut_short()

        with monkeypatch.context() as patch:
            patch.setattr(channel._connection, "decode", cut)
            patch.setattr(channel._inbox, "cut_short", cut_again)
            channel.send(MetadataRequest(topics=[]), answer, timeout_s=WAIT_S)
            with pytest.raises(Cut):
                channel.stand_in.read_until(answer.is_there, soon(WAIT_S))
            answer.wait()
        assert isinstance(answer.error, SocketDisconnectedError)
