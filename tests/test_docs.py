"""What the documents say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gkafka.config import ClientConfig, ConsumerConfig, NativeConsumerConfig, ProducerConfig, options_table
from tests import statetables

ROOT = Path(__file__).resolve().parent.parent

PAGE = """# Options

One line for each option of `gkafka/config.py`, which this page is made from (`python tests/test_docs.py` writes it anew). Names may also be written
with dots (`linger.ms`) where they are given as a dictionary. Times that end in `_ms` are milliseconds.

`KafkaClient.from_properties(path)` reads a file of properties, and `KafkaClient.from_properties({{...}})` a mapping, by these names, by those of Java's clients and by
librdkafka's: `ssl.ca.location`, `sasl.jaas.config`, `queue.buffering.max.ms`. What a file says of producers and consumers is what `get_producer()` and
`get_consumer()` take where their arguments say nothing, `group.id` included (pykafka's calls of a topic keep their own defaults). A file may have sections, as
[kafka-tools](kafka-tools.md#what-a-file-says-of-records) reads them. What has no meaning here, such as the address of a schema registry, is passed over with one warning in
the log; what cannot be had is a ConfigurationError with the next step. Keyword arguments count before the file.

`hosts` is a text, `host:port` separated by commas. `PLAINTEXT://`, `SSL://`, `SASL_PLAINTEXT://` or `SASL_SSL://` before an address is taken off; it must be what
`security_protocol` says. Other separators, lists that were printed as text, and placeholders that nobody has filled in are refused with the cure.

## KafkaClient

The documented positional parameters (`hosts`, `socket_timeout_ms`, ...) and these keyword-only ones:

{client}

## client.get_producer

`topic.get_producer()` takes these as well, and keeps pykafka's defaults where it has a keyword of its own: `required_acks=1`, `max_retries=3`, no
idempotence ([all of them, and the safe ones](migrating-from-pykafka.md#defaults-that-are-pykafkas-own)).

{producer}

## Consumers

What the fetching machinery takes. `topic.get_simple_consumer()` has the documented keywords of pykafka, of which those that are here keep their documented
defaults (`fetch_wait_max_ms=100`, ...); the others can be given to it as well.

{consumer}

## client.get_consumer

All of these, and:

{native}
"""


def page() -> str:
    return PAGE.format(
        client=options_table(ClientConfig),
        producer=options_table(ProducerConfig),
        consumer=options_table(ConsumerConfig),
        native=options_table(NativeConsumerConfig, beyond=ConsumerConfig),
    )


def test_the_page_of_options_is_made_from_the_code() -> None:
    assert (ROOT / "docs" / "options.md").read_text() == page(), "run: python tests/test_docs.py"


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_the_design_names_every_room_that_exists() -> None:
    design = (ROOT / "DESIGN.md").read_text()
    for path in (ROOT / "gkafka").iterdir():
        if path.name.startswith("_") or path.name == "py.typed" or path.suffix == ".so":
            continue
        name = f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
        assert name in design, f"{name} stands nowhere in DESIGN.md"


def test_no_text_has_gkafka_fetched_by_its_name_and_each_extra_that_is_named_is_there() -> None:
    """gkafka is installed from its clone or a wheel (README); by its name pip only adds what an extra needs."""
    (extras,) = re.findall(r"^\[project.optional-dependencies\]\n(.*?)^\[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    known = set(re.findall(r"^([\w-]+) = ", extras, re.MULTILINE))
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
    texts += [path for folder in ("examples", "gkafka") for path in (ROOT / folder).rglob("*.py")]
    for path in texts:
        text = path.read_text()
        assert re.findall(r"pip install (?:-\S+ )*['\"]?gkafka(?![\w\[-])", text) == [], path
        named = {extra for extras in re.findall(r"\bgkafka\[([a-z0-9,-]+)\]", text) for extra in extras.split(",")}
        assert named <= known, path


def test_the_design_shows_the_states_as_the_tables_of_moves_have_them() -> None:
    assert statetables.page() in (ROOT / "DESIGN.md").read_text(), "python -m tests.statetables"


if __name__ == "__main__":
    (ROOT / "docs" / "options.md").write_text(page())
