"""pykafka's `SslConfig`, under its documented name."""

from __future__ import annotations

from typing import Any

__all__ = ["SslConfig"]


class SslConfig:
    """TLS for `KafkaClient(ssl_config=...)`. Documented: pykafka 2.8 connection.

    cafile: PEM file of the authorities to trust. certfile, keyfile: PEM files of this client's certificate and key (None: none, or the key
    is in certfile). password: pass phrase of the key. The broker's certificate and its host name are checked, unlike in pykafka.
    """

    def __init__(self, cafile: str, certfile: str | None = None, keyfile: str | None = None, password: str | bytes | None = None) -> None:
        self.cafile = cafile
        self.certfile = certfile
        self.keyfile = keyfile
        self._password = password.decode() if isinstance(password, bytes) else password

    def __repr__(self) -> str:
        return f"SslConfig(cafile={self.cafile!r}, certfile={self.certfile!r}, keyfile={self.keyfile!r})"

    def client_options(self) -> dict[str, Any]:
        """The same as options of `gkafka.config.ClientConfig`."""
        password = self._password
        return {
            "security_protocol": "SSL",
            "ssl_cafile": self.cafile,
            "ssl_certfile": self.certfile,
            "ssl_keyfile": self.keyfile,
            # A callable: the pass phrase stands in no field that a repr of the options would show.
            "ssl_password": None if password is None else (lambda: password),
        }
