"""Write client_names.json: the names of the properties of librdkafka, and of Java's client, producer, consumer and admin configurations.

    python tests/reference/make_client_names.py [kafka-clients.jar]

librdkafka's are those that the library inside confluent-kafka prints, from which its CONFIGURATION.md is made. Java's are the text constants of the
classes in kafka-clients' jar, read from their class files: no JVM is needed. Without an argument the jar is that of RELEASE where Maven keeps it.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

RELEASE = "4.2.0"
JAR = Path.home() / f".m2/repository/org/apache/kafka/kafka-clients/{RELEASE}/kafka-clients-{RELEASE}.jar"
TO = Path(__file__).with_name("client_names.json")
CLASSES = {
    "client": (
        "clients/CommonClientConfigs",
        "common/config/SslConfigs",
        "common/config/SaslConfigs",
        "common/config/SecurityConfig",
        "common/config/AbstractConfig",
    ),
    "producer": ("clients/producer/ProducerConfig",),
    "consumer": ("clients/consumer/ConsumerConfig",),
    "admin": ("clients/admin/AdminClientConfig",),
}
NO_NAMES = re.compile(r"DEFAULT_(?!API_TIMEOUT_MS_CONFIG)|.*_(DOC|DEFAULT|NOTE)$|AUTOMATIC_|.*_PREFIX$")
"""Constants of those classes that hold something else."""
NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+|acks|retries")
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of an entry of a class file's constants behind its tag; a text (1) has its length there."""


def main() -> None:
    """Write the file."""
    jar = Path(sys.argv[1]) if len(sys.argv) > 1 else JAR
    version, printed = of_librdkafka()
    names = {
        "librdkafka": {"version": version, "names": sorted(set(re.findall(r"^([a-z][\w.]*) *\|", printed, re.MULTILINE)))},
        "java": {"version": jar.stem.rpartition("-")[2], **{kind: of_java(jar, classes) for kind, classes in CLASSES.items()}},
    }
    TO.write_text(json.dumps(names, indent=1) + "\n")


def of_librdkafka() -> tuple[str, str]:
    """Its version, and the table of CONFIGURATION.md."""
    import confluent_kafka

    (path,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*")
    library, libc = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        return confluent_kafka.libversion()[0], Path(file.name).read_text()


def of_java(jar: Path, classes: tuple[str, ...]) -> list[str]:
    """The names of properties that these classes define."""
    with zipfile.ZipFile(jar) as archive:
        found = [pair for name in classes for pair in constants(archive.read(f"org/apache/kafka/{name}.class"))]
    return sorted({text for field, text in found if not NO_NAMES.match(field) and NAME.fullmatch(text)})


def constants(data: bytes) -> Iterator[tuple[str, str]]:
    """The names and values of a class's constants of type String. Source: JVM specification, chapter 4."""
    texts: dict[int, str] = {}
    strings: dict[int, int] = {}
    at, index, count = 10, 1, struct.unpack_from(">H", data, 8)[0]
    while index < count:
        tag = data[at]
        if tag == 1:
            length = struct.unpack_from(">H", data, at + 1)[0]
            texts[index] = data[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            if tag == 8:
                strings[index] = struct.unpack_from(">H", data, at + 1)[0]
            at += 1 + SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    interfaces, fields = struct.unpack_from(">H", data, at + 6)[0], at + 8
    at = fields + 2 * interfaces
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(count):
        _, name, _, attributes = struct.unpack_from(">4H", data, at)
        at += 8
        for _ in range(attributes):
            kind, size = struct.unpack_from(">HI", data, at)
            if texts[kind] == "ConstantValue":
                value = struct.unpack_from(">H", data, at + 6)[0]
                if value in strings:
                    yield texts[name], texts[strings[value]]
            at += 6 + size


if __name__ == "__main__":
    main()
