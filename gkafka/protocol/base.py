"""What all documented requests and responses share: bytes by way of `gkafka.wire`, names as bytes (reference: pykafka.protocol)."""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn, TypeVar

from gkafka.brokererrors import error_for
from gkafka.exceptions import ConfigurationError, UnicodeException
from gkafka.utils import Serializable
from gkafka.wire.apis import APIS, Message, decode_response, encode_request

__all__ = ["Names", "Request", "Response", "check_has", "listed", "text"]

Buffer = bytes | bytearray | memoryview
Name = str | bytes
V = TypeVar("V")
_HEADER = struct.Struct(">ihhih")
_NO_ID = bytes(4)
MIN_INT32 = -(1 << 31)


def text(name: Any) -> str:
    """A name as the wire has it. Raises ConfigurationError for what is none, UnicodeException for bytes that are not UTF-8."""
    if isinstance(name, str):
        return name
    if isinstance(name, (bytes, bytearray, memoryview)):
        try:
            return bytes(name).decode()
        except UnicodeDecodeError as exc:
            raise UnicodeException(f"{bytes(name)!r}: Kafka keeps names as UTF-8: {exc}") from exc
    raise ConfigurationError(f"{name!r}: must be str or bytes")


def listed(what: str, given: Any, *attributes: str) -> list[Any]:
    """The entries of an iterable, each with these attributes. Raises ConfigurationError for anything else, also a text: its letters are no names."""
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what}={given!r}: must be a list")
    entries = list(given)
    for one in entries:
        check_has(what, one, *attributes)
    return entries


def check_has(what: str, one: Any, *attributes: str) -> None:
    """Raise ConfigurationError for a thing without these attributes."""
    missing = [name for name in attributes if not hasattr(one, name)]
    if missing:
        raise ConfigurationError(f"{what}: {one!r} has no {', '.join(missing)}")


class Names(dict[bytes, V]):
    """By name: bytes, as pykafka has them; a str finds the same."""

    def __missing__(self, name: Any) -> V:
        if isinstance(name, str):
            return self[name.encode()]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name.encode() if isinstance(name, str) else name)

    def get(self, name: Any, default: Any = None) -> Any:
        return super().get(name.encode() if isinstance(name, str) else name, default)


class Request(Serializable):
    """A request. API_KEY: its API's number; api_version: the version that get_bytes() writes, by default the one of the reference.

    correlation_id: comes back with the answer, unmodified. parked_ms: how long the broker may take before it answers.
    """

    API_KEY: ClassVar[int] = -1
    API_VERSION: ClassVar[int] = 0
    CLIENT_ID: ClassVar[bytes] = b"gkafka"

    api_version: int
    correlation_id: int = 0
    parked_ms: float = 0

    def __init__(self, *, api_version: int | None = None) -> None:
        self.api_version = self.API_VERSION if api_version is None else api_version

    def to_message(self) -> Message:
        """The request as `gkafka.wire` has it, for whatever version a broker speaks."""
        raise NotImplementedError

    def get_bytes(self) -> bytearray:
        """The whole request: its size, its header and itself.

        Raises SerializationError for a value that its field cannot hold, UnsupportedVersion for one that the version does not have.
        """
        return self._encoded(self.to_message())

    def _encoded(self, message: Message) -> bytearray:
        return bytearray(b"".join(encode_request(message, self.api_version, self.correlation_id, text(self.CLIENT_ID))))

    def __len__(self) -> int:
        """Length of what get_bytes() gives."""
        return len(self.get_bytes())

    def pack_into(self, buff: bytearray | memoryview, offset: int) -> None:
        data = self.get_bytes()
        struct.pack_into(f"{len(data)}s", buff, offset, data)

    def _write_header(self, buff: bytearray | memoryview, api_version: int = 0, correlation_id: int = 0) -> None:
        """Write the header to the start of a buffer that is as long as the whole request."""
        head = _HEADER.pack(len(buff) - 4, self.API_KEY, api_version, correlation_id, len(self.CLIENT_ID)) + self.CLIENT_ID
        struct.pack_into(f"{len(head)}s", buff, 0, head)


class Response:
    """An answer. buff: its bytes behind the correlation id, or the message that `gkafka.wire` made of them.

    api_version: the version that the bytes are of, by default the one of the reference. Raises ProtocolError, with the position, for
    bytes that are not exactly one such answer.
    """

    API_KEY: ClassVar[int] = -1
    API_VERSION: ClassVar[int] = 0

    def __init__(self, buff: Buffer | Message, *, api_version: int | None = None) -> None:
        if not isinstance(buff, Message):
            version = self.API_VERSION if api_version is None else api_version
            _, buff = decode_response(APIS[self.API_KEY], version, _NO_ID + bytes(buff))
        self._read(buff)

    def _read(self, message: Any) -> None:
        raise NotImplementedError

    def raise_error(self, err_code: int, response: Any) -> NoReturn:
        """Raise the exception of an error code. response: what came, for the text."""
        error = error_for(err_code, f"{type(self).__name__}: {reprlib.repr(response)}")
        if error is None:
            raise ConfigurationError("raise_error(0): 0 is no error")
        raise error
