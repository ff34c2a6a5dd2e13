"""docs/errors.md is made from the classes, so that it says what the code does."""

from __future__ import annotations

import inspect
from pathlib import Path

import gkafka.exceptions
from gkafka.exceptions import BrokerError, KafkaException, UnknownBrokerError

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "errors.md"

HEAD = """# Errors

Everything that gkafka raises is a `gkafka.exceptions.KafkaException`. Where it is known, an error has the attributes `topic`, `partition`, `offset`,
`group`, `broker` and `api`. `retriable` says that the same call may succeed later; the calls of gkafka try such errors again by themselves, until their
timeout or their number of retries. `abortable` says that the transaction has to be aborted and its work done again, `fatal` that the producer has to be
closed (see [transactions](transactions.md)). The error of one record (what `delivery.result()` raises, `delivery.exception()` and pykafka's delivery
reports give) has `persisted`: "no", or "maybe" where a broker may have written the record without its answer reaching the client, and `record`: the
record as it was produced, as long as the delivery is kept. `str(error)` is one line: what a broker or another peer sent stands escaped in it; the
attributes are as they came. This page is made from the classes (`python tests/reference/test_errors_page.py` writes it anew).

## Errors of the client

| class | is also | retriable | abortable, fatal | when |
|---|---|---|---|---|
{client}

## Error codes of brokers

All of them are `BrokerError` (`ProtocolClientError` is the same class) and have the `code` that the broker answered; a
code that gkafka does not know is an `UnknownBrokerError`. "stale": what the client looks up
anew when it meets the error.

| code | class | also called | retriable | stale | when |
|---|---|---|---|---|---|
{broker}
"""


def text_of(cls: type[KafkaException]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split()).replace("|", "\\|")


def yes(flag: bool) -> str:
    return "yes" if flag else ""


def means(cls: type[KafkaException]) -> str:
    """What an error means for a transaction."""
    return "fatal" if cls.fatal else "abortable" if cls.abortable else ""


def names_of(cls: type[KafkaException]) -> list[str]:
    """The other names under which a class is exported."""
    return sorted(n for n in gkafka.exceptions.__all__ if getattr(gkafka.exceptions, n) is cls and n != cls.__name__)


def client_rows() -> list[str]:
    exported = {getattr(gkafka.exceptions, name) for name in gkafka.exceptions.__all__}
    elsewhere = {KafkaException, BrokerError, UnknownBrokerError, *BrokerError.by_code.values()}
    classes = [c for c in exported if inspect.isclass(c) and issubclass(c, KafkaException) and c not in elsewhere]
    return [
        f"| `{c.__name__}` | {', '.join(f'`{b.__name__}`' for b in c.__bases__ if b is not KafkaException)} | {yes(c.retriable)} | {means(c)} | {text_of(c)} |"
        for c in sorted(classes, key=lambda c: c.__name__)
    ]


def broker_rows() -> list[str]:
    return [
        f"| {code} | `{c.__name__}` | {', '.join(f'`{n}`' for n in names_of(c))} | {yes(c.retriable)} | {c.stale.value if c.stale else ''} | {text_of(c)} |"
        for code, c in sorted(BrokerError.by_code.items())
    ]


def page() -> str:
    return HEAD.format(client="\n".join(client_rows()), broker="\n".join(broker_rows()))


def test_the_page_of_errors_is_made_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/reference/test_errors_page.py"


def test_the_page_names_every_error_that_is_exported() -> None:
    text = page()
    for name in gkafka.exceptions.__all__:
        if inspect.isclass(getattr(gkafka.exceptions, name)) and issubclass(getattr(gkafka.exceptions, name), KafkaException):
            assert f"`{name}`" in text or f".{name}`" in text, name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
