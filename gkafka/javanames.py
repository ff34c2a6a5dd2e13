"""What Java's clients call options that have another name here. Any other property is its option with dots for underscores."""

from __future__ import annotations

__all__ = ["CLIENT_NAMES"]

CLIENT_NAMES = {
    "request.timeout.ms": "socket_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certfile",
    "ssl.keystore.key": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauth_client_secret",
}
"""Of any client: property -> option of ClientConfig. The stores must be PEM, files or text."""
