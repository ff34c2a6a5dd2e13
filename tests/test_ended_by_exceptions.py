"""What undoes, calls or marks something when an exception of any kind comes: gkafka.undoing, gkafka.guarding, gkafka.marks."""

from __future__ import annotations

import pytest

from gkafka.exceptions import ReentrantCallError
from gkafka.fetchdriver import Step
from gkafka.guarding import guarded
from gkafka.handlers import ThreadingHandler
from gkafka.marks import EngineMark, Mark
from gkafka.undoing import Undoing

KINDS = [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit]


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_begun_is_undone_and_the_exception_goes_on(kind: type[BaseException]) -> None:
    undone: list[tuple[int, ...]] = []
    with pytest.raises(kind), Undoing(lambda *args: undone.append(args), 1, 2):
        raise kind
    assert undone == [(1, 2)]


def test_nothing_is_undone_without_an_exception() -> None:
    undone: list[int] = []
    with Undoing(undone.append, 1):
        pass
    assert undone == []


def test_an_exception_of_undo_has_the_first_one_as_its_context() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Undoing(fail, ZeroDivisionError()):
        raise KeyError
    assert isinstance(caught.value.__context__, KeyError)


def test_guarded_returns_what_the_function_returns() -> None:
    assert guarded(divmod, 7, 2, failed=fail) == (3, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_guarded_ends_the_exception_unless_failed_returns_true(kind: type[BaseException]) -> None:
    error, met = kind(), list[BaseException]()
    assert guarded(fail, error, failed=met.append) is None
    assert met == [error]
    assert guarded(fail, error, failed=lambda error: 1) is None
    with pytest.raises(kind):
        guarded(fail, error, failed=lambda error: True)


def test_call_back_tells_of_a_failure_and_of_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, met = ThreadingHandler(), list[BaseException]()
    error = KeyError()
    handler.call_back(fail, error, failed=met.append)
    assert met == [error]
    monkeypatch.setattr(handler, "interrupted", lambda error: True)
    with pytest.raises(KeyError):
        handler.call_back(fail, error, failed=met.append)
    monkeypatch.setattr(handler, "hands_on", lambda error: True)
    handler.call_back(fail, error, failed=met.append)
    assert met == [error], "neither what goes on nor what is handed on is a failure"


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_keeps_what_cut_the_steps_short(kind: type[BaseException]) -> None:
    mark = Mark()
    with mark:
        pass
    assert mark.cause is None
    with pytest.raises(kind), mark:
        raise kind
    assert isinstance(mark.cause, kind)


def test_a_kafka_error_cuts_no_step_of_a_consumer_short() -> None:
    step = Step()
    with pytest.raises(ReentrantCallError), step:
        raise ReentrantCallError("here")
    assert step.cause is None
    with pytest.raises(KeyError), step:
        raise KeyError
    assert isinstance(step.cause, KeyError)


def test_an_engines_mark_wakes_its_worker_and_tells_a_bug_from_an_interruption() -> None:
    handler = ThreadingHandler()
    wake = handler.Event()
    mark = EngineMark(handler, wake)
    for error in (KeyboardInterrupt(), ReentrantCallError("here")):
        with pytest.raises(type(error)), mark:
            raise error
        assert mark.cause is error
        mark.raise_bug()  # there is none
    assert wake.is_set()
    bug = KeyError()
    with pytest.raises(KeyError), mark:
        raise bug
    assert mark.cause is bug
    with pytest.raises(KeyError):
        mark.raise_bug()
    mark.raise_bug()  # once
