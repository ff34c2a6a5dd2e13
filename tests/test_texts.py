"""All text leaves gkafka through one function that escapes it: an error's by KafkaException, a log line's by a logger's filter."""

from __future__ import annotations

import ast
import builtins
import importlib
import logging
import pickle
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import gkafka
from gkafka.common import TopicPartition
from gkafka.core.standing import Reason
from gkafka.escaping import LONGEST, escaped
from gkafka.exceptions import KafkaException, UnknownError
from gkafka.explaining import Explanation, PartitionReport
from gkafka.logs import get_logger
from tests.test_floors import PACKAGE, modules, parsed, room

EVIL = "evil\nERROR root: all is lost\x1b[31m\u202e\u2028\x85"
SHOWN = "evil\\nERROR root: all is lost\\x1b[31m\\u202e\\u2028\\x85"


# -- the function ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, größer 語", "plain words, größer 語"),
        (EVIL, SHOWN),
        ("\r\t\0\x7f", "\\r\\t\\x00\\x7f"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
        ("a\\nb", "a\\nb"),
    ],
)
def test_what_does_not_print_becomes_a_visible_escape(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert escaped(shown) == shown


def test_a_text_that_is_too_long_is_cut() -> None:
    assert escaped("x" * 30_000_000) == "x" * LONGEST + "..."
    assert escaped("xyz", 2) == "xy..."
    assert escaped("xyz", 3) == "xyz"


# -- errors ------------------------------------------------------------------------------------------------------------
def test_an_errors_text_is_escaped_and_what_it_is_about_is_not() -> None:
    error = UnknownError(EVIL, topic=EVIL, broker=EVIL)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == SHOWN
        assert (one.topic, one.broker) == (EVIL, EVIL)


def test_the_text_of_another_librarys_error_is_escaped_in_ours() -> None:
    assert str(KafkaException(OSError(EVIL))) == SHOWN


def test_what_explain_says_is_escaped_line_by_line() -> None:
    report = PartitionReport(Reason.FETCHING, f"last: {EVIL}")
    told = Explanation({TopicPartition("t", 0): report, TopicPartition("t", 1): report}, f"member {EVIL}")
    assert str(told).split("\n") == [f"member {SHOWN}", f"t-0: last: {SHOWN}", f"t-1: last: {SHOWN}"]


# -- logs --------------------------------------------------------------------------------------------------------------
class Shows:
    """A value with a text of its own."""

    def __str__(self) -> str:
        return EVIL

    def __repr__(self) -> str:
        return f"<{EVIL}>"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (("%s: %d", EVIL, 3), f"{SHOWN}: 3"),
        (("%s", ValueError(EVIL)), SHOWN),
        (("%s %r", Shows(), Shows()), f"{SHOWN} <{SHOWN}>"),
        (("%r", EVIL), f"'{SHOWN}'"),
        (("%.6r", EVIL), "'evil\\"),
        (("%(name)s: %(left)d", {"name": EVIL, "left": 2}), f"{SHOWN}: 2"),
        (("%s", {"name": EVIL}), str({"name": EVIL})),
        (("%s", b"\n"), "b'\\n'"),
        (("%s", None), "None"),
        (("%5.2f|%5d", 1.5, True), " 1.50|    1"),
        ((EVIL,), SHOWN),
        ((Shows(),), SHOWN),
    ],
)
def test_a_log_line_is_one_line(call: tuple[Any, ...], line: str, caplog: pytest.LogCaptureFixture) -> None:
    get_logger("gkafka.one").warning(*call)
    assert caplog.messages == [line]


def test_a_logger_is_the_one_that_the_user_configures(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("gkafka.two")
    assert logger is get_logger("gkafka.two") is logging.getLogger("gkafka.two")
    assert len(logger.filters) == 1
    with caplog.at_level(logging.ERROR, "gkafka.two"):
        logger.warning("%s", "not this")
        try:
            raise LookupError("cause")
        except LookupError:
            logger.exception("%s of %d", "one", 2)
    (record,) = caplog.records
    assert (record.getMessage(), record.funcName) == ("one of 2", "test_a_logger_is_the_one_that_the_user_configures")
    assert record.pathname == __file__
    assert record.exc_info is not None


@pytest.mark.parametrize(("message", "args", "line"), [("%s of %d", ("one", 2), "one of 2: gone"), ("100 %", (), "100 %: gone")])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_what_went_wrong_in_kafka_is_one_line_and_its_traceback_is_for_debug(
    caplog: pytest.LogCaptureFixture, level: int, message: str, args: tuple[object, ...], line: str
) -> None:
    logger = get_logger("gkafka.four")
    with caplog.at_level(level, "gkafka.four"):
        logger.error(message, *args, exc_info=KafkaException("gone"))
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info is not None) == (line, level == logging.DEBUG)


def test_a_call_below_the_level_asks_for_no_text(caplog: pytest.LogCaptureFixture) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError

    with caplog.at_level(logging.INFO, "gkafka.three"):
        get_logger("gkafka.three").debug("%s", Costly())


# -- nobody goes past them ---------------------------------------------------------------------------------------------
MAY_GET_LOGGERS = {"logs.py", "cli/settings.py"}
"""The one place; and the option that sets the level of the loggers of gkafka."""
INTERNAL = {
    "_AskedLater",
    "_Repeated",
    "_TooLarge",
    "_Wrong",
    "Crowded",
    "Malformed",
    "NotYet",
    "OtherSources",
    "Refused",
    "Unanswered",
}
"""Exceptions that are caught where they are raised, or become one of ours on the way; "Refused" is of the broker for tests."""
SHOWN_BY_THE_CLI = {"LocalKafkaError", "ToolError", "UnusableError", "PartialError", "BadLine"}
"""The command line cleans all that it prints: `gkafka.cli.output.clean`."""


def calls_of_get_logger(source: str) -> list[int]:
    """Lines that get a logger from logging, under whatever name."""
    if "getLogger" not in source and "from logging" not in source:  # most modules: they need not be parsed
        return []
    return [
        node.lineno
        for node in ast.walk(parsed(source))
        if (isinstance(node, ast.Attribute) and node.attr == "getLogger") or (isinstance(node, ast.ImportFrom) and node.module == "logging")
    ]


def test_every_logger_comes_from_one_place() -> None:
    others = {path.relative_to(PACKAGE).as_posix(): calls_of_get_logger(path.read_text()) for path in modules()}
    assert {path: lines for path, lines in others.items() if lines and path not in MAY_GET_LOGGERS} == {}


@pytest.mark.parametrize("source", ["import logging\nlog = logging.getLogger('gkafka')", "from logging import getLogger"])
def test_a_logger_from_elsewhere_is_found(source: str) -> None:
    assert calls_of_get_logger(source)


def own_exceptions() -> Iterator[type[BaseException]]:
    for found in pkgutil.walk_packages(gkafka.__path__, "gkafka."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    left: list[type[BaseException]] = [BaseException]
    seen: set[type[BaseException]] = set()
    while left:
        cls = left.pop()
        if cls not in seen:
            seen.add(cls)
            left += cls.__subclasses__()
    return (cls for cls in seen if cls.__module__.startswith("gkafka."))


def test_every_error_escapes_its_text() -> None:
    """Also where a class of Python's stands beside ours among its bases."""
    pytest.importorskip("gevent")
    pytest.importorskip("pyspark")
    others = set()
    for cls in own_exceptions():
        if not issubclass(cls, KafkaException):
            others.add(cls.__name__)
        else:
            assert cls.__str__ is KafkaException.__str__, f"{cls.__module__}.{cls.__name__} makes its text itself"
    assert others == INTERNAL | SHOWN_BY_THE_CLI


HEARS_PEERS = ("admin", "core", "net", "wire", "handlers")
BUILTIN_ERRORS = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)}
HARMLESS = {
    "self.peer",  # host:port: a host with anything else in it is refused before
    "self.state.value",
    "len(data)",
    "MAX_STRING",
    "LONGEST_ANSWER",
    "__name__",
    "cls.__name__",
    "key",  # a number, of a table
    "request.API.name",
    "type(self).__name__",
    "', '.join(others)",  # names of a struct's fields, which a programmer gave
    "', '.join((f.name for f in self.FIELDS))",
}


def raw_values(source: str) -> list[str]:
    """What the texts of Python's own exceptions show as it is: neither by repr() nor one of the harmless."""
    if not BUILTIN_ERRORS.intersection(re.findall(r"\braise (\w+)\(", source)):  # most modules: they need not be parsed
        return []
    found = []
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        if isinstance(node.exc.func, ast.Name) and node.exc.func.id in BUILTIN_ERRORS:
            values = [n for argument in node.exc.args for n in ast.walk(argument) if isinstance(n, ast.FormattedValue)]
            found += [ast.unparse(v.value) for v in values if v.conversion != ord("r")]
    return [value for value in found if value not in HARMLESS]


def test_pythons_own_errors_show_nothing_of_a_peer() -> None:
    shown = {path.relative_to(PACKAGE).as_posix(): raw_values(path.read_text()) for path in modules() if room(path) in HEARS_PEERS}
    assert {path: values for path, values in shown.items() if values} == {}


def test_a_peers_value_in_an_error_of_python_is_found() -> None:
    assert raw_values("raise ValueError(f'{answer.topic} is odd')") == ["answer.topic"]
    assert raw_values("raise ValueError(f'{answer.topic!r} is odd')") == []
    assert raw_values("raise ProtocolError(f'{answer.topic} is odd')") == []
