"""Which handler a client gets, and what importing does: each case in a process of its own."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import pytest

from gkafka import KafkaClient
from gkafka.exceptions import ConfigurationError
from gkafka.handlers import GEventHandler, Handler, ThreadingHandler, resolve_handler
from gkafka.testing import MockCluster
from tests.handlers.hub import run_script
from tests.kit.forks import PATCHING, Program, play

PATCHES = {
    "unpatched": "",
    "patch_all": "from gevent import monkey; monkey.patch_all()",
    "no thread": "from gevent import monkey; monkey.patch_all(thread=False)",
    "no socket": "from gevent import monkey; monkey.patch_all(socket=False)",
    "no select": "from gevent import monkey; monkey.patch_all(select=False)",
    "no queue": "from gevent import monkey; monkey.patch_all(queue=False)",
    "thread alone": "from gevent import monkey; monkey.patch_thread()",
    "queue alone": "from gevent import monkey; monkey.patch_queue()",
    "time alone": "from gevent import monkey; monkey.patch_time()",
    "gevent imported": "import gevent",
    "monkey imported": "import gevent.monkey",
    "hub running": "import gevent; gevent.sleep(0)",
    "gevent missing": "import sys; sys.modules['gevent'] = None",
}
REPORT = """
import warnings
warnings.simplefilter("always")
{patch}
from gkafka.handlers import resolve_handler
from gkafka.exceptions import ConfigurationError
with warnings.catch_warnings(record=True) as seen:
    try:
        print(resolve_handler({arguments}).name)
    except ConfigurationError as exc:
        print("ConfigurationError", exc)
for w in seen:
    print(w.category.__name__, w.message)
"""


TABLE = [
    ("unpatched", "'auto'", "threading", ""),
    ("patch_all", "'auto'", "gevent", ""),
    ("gevent imported", "'auto'", "threading", ""),
    ("monkey imported", "'auto'", "threading", ""),
    ("hub running", "'auto'", "threading", "RuntimeWarning gevent in use but not patched"),
    ("gevent missing", "'auto'", "threading", ""),
    ("no thread", "'auto'", "ConfigurationError", "patched socket, select, queue but not threading"),
    ("no socket", "'auto'", "ConfigurationError", "patched threading, select, queue but not socket"),
    ("queue alone", "'auto'", "ConfigurationError", "patched queue but not threading, socket, select"),
    ("no select", "'auto'", "gevent", ""),
    ("no thread", "'threading'", "ConfigurationError", "but not threading"),
    ("no socket", "'threading'", "ConfigurationError", "but not socket"),
    ("no select", "'threading'", "ConfigurationError", "but not select"),
    ("thread alone", "'threading'", "ConfigurationError", "patched threading but not socket, select"),
    ("queue alone", "'threading'", "ConfigurationError", "patched queue but not threading"),
    ("time alone", "'threading'", "threading", ""),
    ("no queue", "'threading'", "threading", "RuntimeWarning ThreadingHandler in a process that gevent has monkey-patched"),
    ("unpatched", "'gevent'", "gevent", ""),
    ("patch_all", "'gevent'", "gevent", ""),
    ("no thread", "'gevent'", "gevent", ""),
    ("no socket", "use_greenlets=True", "gevent", ""),
    ("unpatched", "use_greenlets=True", "gevent", ""),
    ("unpatched", "'gevent', use_greenlets=True", "gevent", ""),
    ("unpatched", "'threading'", "threading", ""),
    ("patch_all", "'threading'", "threading", "RuntimeWarning ThreadingHandler in a process that gevent has monkey-patched"),
    ("gevent missing", "'gevent'", "ConfigurationError", "pip install 'gkafka[gevent]'"),
    ("unpatched", "'threading', use_greenlets=True", "ConfigurationError", "give one of them"),
]


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], list[str]]:
    """What is printed for each row of the table."""
    found: dict[tuple[str, str], list[str]] = {}
    for before in ("", PATCHING):
        cases = [(patch, arguments) for patch, arguments, *_ in TABLE if ("monkey.patch" in PATCHES[patch]) == bool(before)]
        programs = [Program(REPORT.format(patch=PATCHES[patch], arguments=arguments)) for patch, arguments in cases]
        for case, ended in zip(cases, play(programs, before=before, python=()), strict=True):
            assert (ended.returncode, ended.stderr) == (0, ""), case
            found[case] = ended.stdout.splitlines()
    return found


@pytest.mark.parametrize(("patch", "arguments", "handler", "says"), TABLE)
def test_the_selection_table(patch: str, arguments: str, handler: str, says: str, outcomes: dict[tuple[str, str], list[str]]) -> None:
    first, *warned = outcomes[patch, arguments]
    assert first.partition(" ")[0] == handler
    if handler == "ConfigurationError":
        assert says in first
        assert warned == []
    else:
        assert len(warned) == bool(says), warned
        assert all(says in line for line in warned)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({}, "handler threading (handler='auto', use_greenlets=False)"),
        ({"handler": "gevent"}, "handler gevent (handler='gevent', use_greenlets=False)"),
        ({"use_greenlets": True}, "handler gevent (handler='auto', use_greenlets=True)"),
        ({"handler": ThreadingHandler()}, "handler threading (given)"),
    ],
)
def test_one_line_of_the_log_says_what_a_client_got(wish: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), MockCluster(topics={"t": 1}) as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other tests of this process have used gevent
        with KafkaClient(cluster.bootstrap, **wish) as client:
            client.get_producer().produce("t", b"x").result(60)
    assert [(r.levelno, r.getMessage()) for r in caplog.records if "handler" in r.getMessage()] == [(logging.INFO, says)]


def test_the_mix_that_hangs_names_both_ways_out(outcomes: dict[tuple[str, str], list[str]]) -> None:
    (text,) = outcomes["no thread", "'auto'"]
    assert "monkey.patch_all()" in text
    assert "handler='gevent'" in text


def test_inside_a_greenlet_auto_warns_once() -> None:
    out = run_script(
        """
        import warnings, gevent
        from gkafka.handlers import resolve_handler
        def main():
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                print(resolve_handler().name, resolve_handler().name, len(seen), seen[0].filename)
        gevent.spawn(main).join()
        """
    )
    assert out == "threading threading 1 <string>"  # the warning names the caller's line


def test_gkafka_imported_before_patching_still_chooses_greenlets() -> None:
    out = run_script(
        """
        import gkafka.handlers
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        print(gkafka.handlers.resolve_handler().name)
        """
    )
    assert out == "gevent"


def test_patching_after_the_handler_was_made_is_an_error_at_first_use() -> None:
    out = run_script(
        """
        from gkafka.handlers import resolve_handler
        from gkafka.exceptions import ConfigurationError
        handler = resolve_handler()
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        for use in (lambda: handler.spawn(print), lambda: handler.getaddrinfo("localhost", 1), handler.start,
                    lambda: handler.create_connection((2, ("127.0.0.1", 1)))):
            try:
                use()
            except ConfigurationError as exc:
                print("monkey-patch before" in str(exc))
        """
    )
    assert out.splitlines() == ["True"] * 4


def test_greenlets_do_not_mind_patching_after_they_were_made() -> None:
    out = run_script(
        """
        from gkafka.handlers import GEventHandler
        handler = GEventHandler()
        import tests.handlers.noplugins; from gevent import monkey; monkey.patch_all()
        q = handler.Queue()
        print(handler.spawn(q.put, 1).join(60), q.get(timeout=60))
        """
    )
    assert out == "True 1"


def test_without_the_gil_greenlets_are_refused_and_threads_are_not() -> None:
    out = run_script(
        """
        import sys
        sys._is_gil_enabled = lambda: False
        from gkafka.handlers import resolve_handler
        from gkafka.exceptions import ConfigurationError
        print(resolve_handler().name)
        try:
            resolve_handler("gevent")
        except ConfigurationError as exc:
            print("GIL" in str(exc), "handler='threading'" in str(exc), "gevent" in sys.modules)
        """
    )
    assert out.splitlines() == ["threading", "True True False"]


def test_an_instance_is_used_as_it_is() -> None:
    threads, greenlets = ThreadingHandler(), GEventHandler()
    assert resolve_handler(threads) is threads
    assert resolve_handler(greenlets) is greenlets
    assert resolve_handler(greenlets, use_greenlets=True) is greenlets
    with pytest.raises(ConfigurationError, match="give one of them"):
        resolve_handler(threads, use_greenlets=True)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("greenlet", "'auto', 'threading', 'gevent'"),
        ("threads", "did you mean 'threading'"),
        (None, "must be one of"),
        (ThreadingHandler, r"handler=ThreadingHandler\(\)"),
        (3, "handler=3"),
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(wrong: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        resolve_handler(wrong)


def test_a_handler_of_the_users_own_is_accepted() -> None:
    class Recording(ThreadingHandler):
        pass

    recording = Recording()
    assert resolve_handler(recording) is recording

    class Half(Handler):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


# -- imports -----------------------------------------------------------------------------------------------------------
def test_importing_imports_nothing_that_is_not_asked_for() -> None:
    out = run_script(
        """
        import sys
        import gkafka, gkafka.handlers, gkafka.net.stream
        heavy = ("gevent", "greenlet", "ssl", "kazoo", "numpy", "pyspark", "pyarrow", "asyncio", "concurrent.futures")
        print([m for m in heavy if m in sys.modules])
        gkafka.handlers.GEventHandler
        print("gevent" in sys.modules, "GEventHandler" in dir(gkafka.handlers))
        """
    )
    assert out.splitlines() == ["[]", "True True"]


def test_importing_and_making_a_greenlet_handler_patches_nothing() -> None:
    out = run_script(
        """
        import queue, select, socket, ssl, threading, time, os, _thread
        modules = (queue, select, socket, ssl, threading, time, os, _thread)
        before = [dict(vars(m)) for m in modules]
        import gkafka.handlers
        handler = gkafka.handlers.GEventHandler()
        handler.spawn(handler.sleep, 0.001).join()
        handler.offload(int)
        gkafka.KafkaClient("127.0.0.1:1", handler=handler).close()
        for module, was in zip(modules, before):
            now = vars(module)
            print([name for name in was if now.get(name) is not was[name]], end="")
        """
    )
    assert out == "[]" * 8


def test_an_unknown_name_is_an_attribute_error() -> None:
    import gkafka.handlers

    assert not hasattr(gkafka.handlers, "EventletHandler")


@pytest.mark.parametrize("destroyed", ["the thread has ended", "the hub is destroyed, too"])
def test_a_client_whose_hub_is_gone_says_so_at_once(destroyed: str) -> None:
    """Nobody would ever answer: a call that waited would only lose time, and a record that was accepted would be lost."""
    out = run_script(
        f"""
        import threading, gevent
        from gkafka import KafkaClient
        from gkafka.exceptions import HandlerThreadError
        from gkafka.testing import MockCluster
        from tests.kit.clock import now
        cluster, made = MockCluster(1, {{"t": 1}}), []
        def own():
            client = KafkaClient(cluster.bootstrap, handler="gevent")
            producer = client.get_producer(linger_ms=100_000)
            consumer = client.get_consumer("t")
            waiting = producer.produce("t", b"warm")
            waiting.result(60)
            producer.produce("t", b"its batch is open")
            made.extend((client, producer, consumer))
            if {destroyed != "the thread has ended"}:
                gevent.get_hub().destroy()
        thread = threading.Thread(target=own)
        thread.start()
        thread.join()
        client, producer, consumer = made
        began = now()
        for call in (
            lambda: producer.produce("t", b"x"),
            lambda: producer.flush(120),
            lambda: client.list_offsets({{("t", 0): -1}}, timeout=120),
            lambda: consumer.consume(120_000),
            lambda: client.close(120),
        ):
            try:
                print("answered", call())
            except HandlerThreadError as exc:
                assert "make a client in a thread that lives" in str(exc)
        print(now() - began < 60, [r.value for r in cluster.log("t", 0)])
        """,
        python=(),
    )
    assert out == "True [b'warm']"


def test_a_greenlet_that_calls_a_client_of_threads_made_before_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    import gevent

    def program() -> None:  # in a thread that has no hub yet
        given, chosen = resolve_handler("threading"), resolve_handler("auto")
        for handler in (given, chosen, chosen):
            handler.check_fork()
        assert not told()
        for handler in (given, chosen, chosen):
            gevent.spawn(handler.check_fork).join()
        gevent.get_hub().destroy(destroy_loop=True)

    def told() -> list[str]:
        return [
            record.getMessage() for record in caplog.records if record.getMessage().startswith("a greenlet calls a client of OS threads")
        ]

    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    assert len(told()) == 1
    assert "handler='gevent'" in told()[0]
