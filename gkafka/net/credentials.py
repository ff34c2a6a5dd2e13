"""What a client says who it is with: from its options to the mechanism of one authentication."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gkafka.config import NOT_UTF8, ClientConfig, Secret, is_utf8
from gkafka.core.refusals import Refusals
from gkafka.core.sasl import Gssapi, Mechanism, OAuthBearer, Plain
from gkafka.exceptions import AuthenticationError, ConfigurationError, ConnectionFailedError, KafkaException
from gkafka.handlers.base import Handler
from gkafka.logs import get_logger
from gkafka.net.tokens import Token, Tokens
from gkafka.pages import install

if TYPE_CHECKING:
    from gkafka.net.oidc import TokenEndpoint

__all__ = ["Credentials", "make_credentials"]

log = get_logger(__name__)
LIBRARIES = {"GSSAPI": ("gssapi", "gssapi"), "AWS_MSK_IAM": ("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws-msk-iam")}


def make_credentials(handler: Handler, config: ClientConfig) -> Credentials | None:
    """None for a client without SASL. Raises ConfigurationError, naming what to install, if a mechanism's library is missing."""
    return Credentials(handler, config) if config.uses_sasl else None


class Credentials:
    """The credentials of one client, for all its connections. They are asked for anew for each authentication, so that they may change."""

    def __init__(self, handler: Handler, config: ClientConfig) -> None:
        assert config.sasl_mechanism is not None
        self.name = config.sasl_mechanism
        self._handler = handler
        self._config = config
        self._library = _load(self.name)
        self._tokens: Tokens | None = None
        if self.name == "AWS_MSK_IAM":
            self._tokens = SignedTokens(handler, self._sign)
        elif config.sasl_oauth_token_endpoint_url is not None:
            self._tokens = _endpoint(handler, config)
        self._patience_s = config.sasl_retry_timeout_ms / 1000
        longest_try_s = (config.connect_timeout_ms + 2 * config.reconnect_backoff_max_ms) / 1000  # with the pause before it, and its jitter
        self._refusals = Refusals(self._patience_s, silence_s=self._patience_s + longest_try_s)

    def mechanism(self, host: str, deadline: float) -> Mechanism:
        """For one authentication with the broker at this host. May call the user's functions, and wait, up to the deadline.

        Raises AuthenticationError if there are no credentials to be had.
        """
        if self.name == "PLAIN":
            return Plain(self._username, self._password())
        if self.name == "AWS_MSK_IAM" and self._tokens is not None:
            return OAuthBearer(self._tokens.token(deadline))
        if self.name == "OAUTHBEARER":
            return self._bearer(deadline)
        if self.name == "GSSAPI":
            return Gssapi(self._handler.offload(self._security_context, host))
        return self._scram()

    def accepted(self, peer: str) -> None:
        """The broker at host:port took them."""
        self._refusals.accepted(peer)

    def refused(self, peer: str, mechanism: Mechanism | None, error: AuthenticationError) -> KafkaException:
        """What to tell after a failed authentication there: the error, or, where they are to be tried again, a ConnectionFailedError that it caused.

        mechanism: None if they could not be had.
        """
        if mechanism is not None and mechanism.distrusts:
            return error  # who answers is not the right broker: no refusal
        if self._tokens is not None and mechanism is not None:
            self._tokens.refused(mechanism.secrets[0])
        left_s = self._refusals.refused(peer, self._handler.monotonic())
        if not left_s:
            return error
        text = f"{error}; this client got in before: it tries for {left_s:.3g} s more (sasl_retry_timeout_ms)"
        log.log(logging.WARNING if left_s == self._patience_s else logging.DEBUG, "%s", text)
        again = ConnectionFailedError(text, broker=error.broker)
        again.__cause__ = error
        return again

    def _scram(self) -> Mechanism:
        import secrets  # with hashes and big numbers: whoever needs no SCRAM starts faster without them

        from gkafka.core.scram import Scram

        return Scram(self.name, self._username, self._password(), secrets.token_urlsafe(24))

    @property
    def _username(self) -> str:
        return self._config.sasl_username or ""

    def _password(self) -> str:
        given = self._config.sasl_password
        if not callable(given):
            return given or ""
        password = _text("sasl_password", _asked("sasl_password", given))
        if "\0" in password:
            raise AuthenticationError("sasl_password gave a text with a NUL character, which no password holds")
        return password

    def _bearer(self, deadline: float) -> OAuthBearer:
        extensions = dict(self._config.sasl_oauth_extensions or {})
        if self._tokens is not None:
            return OAuthBearer(self._tokens.token(deadline), extensions)
        provider = self._config.sasl_oauth_token_provider
        name = "sasl_oauth_token_provider"
        token = _text(name, _asked(name, getattr(provider, "token", provider)))
        more = getattr(provider, "extensions", None)
        if callable(more):
            extensions.update(_mapping(f"{name}.extensions()", _asked(f"{name}.extensions()", more)))
        return OAuthBearer(token, extensions)

    def _sign(self) -> tuple[Secret, float]:
        """A token, and when it is over: seconds since the epoch."""
        try:
            token, until_ms = _signed_token(self._library, self._config)
        except Exception as exc:  # of a library, whose texts say what is missing
            found = "AWS_MSK_IAM, with what botocore finds (AWS_PROFILE, a role, ...),"
            raise AuthenticationError(f"{found} gave no credentials: {type(exc).__name__}: {exc}") from exc
        return _text("AWS_MSK_IAM", token), until_ms / 1000 if isinstance(until_ms, (int, float)) else 0.0

    def _security_context(self, host: str) -> Any:
        gssapi = self._library
        principal = f"{self._config.sasl_kerberos_service_name}@{self._config.sasl_kerberos_domain_name or host}"
        name = gssapi.Name(principal, gssapi.NameType.hostbased_service).canonicalize(gssapi.MechType.kerberos)
        return gssapi.SecurityContext(name=name, usage="initiate", mech=gssapi.MechType.kerberos)


class SignedTokens(Tokens):
    """The tokens of one client that AWS signs. sign(): a token, and when it is over, seconds since the epoch.

    Signing may ask a service of AWS for credentials, which answers only so often: the connections of a client share a token.
    """

    def __init__(self, handler: Handler, sign: Callable[[], tuple[Secret, float]]) -> None:
        super().__init__(handler, "AWS_MSK_IAM")
        self._sign = sign

    def _ask(self, deadline: float) -> Token:
        asked_at = self._handler.monotonic()
        token, until = self._handler.offload(self._sign)
        return Token.of(token, asked_at, max(0.0, until - self._handler.time()))


def _endpoint(handler: Handler, config: ClientConfig) -> TokenEndpoint:
    from gkafka.net.oidc import TokenEndpoint  # ssl and http.client are imported only by those who use them

    return TokenEndpoint(handler, config)


def _load(mechanism: str) -> Any:
    if mechanism not in LIBRARIES:
        return None
    module, extra = LIBRARIES[mechanism]
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as exc:  # OSError: the package is there, the system's Kerberos library is not
        raise ConfigurationError(
            f"sasl_mechanism={mechanism!r} needs the package {module.partition('.')[0]}: {install(extra)} ({exc})"
        ) from exc


def _signed_token(signer: Any, config: ClientConfig) -> Any:
    """What Amazon's signer gives for the profile or the role of the options, else for what botocore finds: (token, when it is over in ms)."""
    if config.sasl_aws_profile is not None:
        return signer.generate_auth_token_from_profile(config.sasl_aws_region, config.sasl_aws_profile)
    if config.sasl_aws_role_arn is not None:
        session = [] if config.sasl_aws_role_session_name is None else [config.sasl_aws_role_session_name]
        return signer.generate_auth_token_from_role_arn(config.sasl_aws_region, config.sasl_aws_role_arn, *session)
    return signer.generate_auth_token(config.sasl_aws_region)


def _asked(name: str, ask: Callable[[], Any]) -> Any:
    """What a function of the user's gives. The text of what it raised is not told: it may repeat what was to be given."""
    try:
        return ask()
    except KafkaException:
        raise
    except Exception as exc:
        raise AuthenticationError(f"{name} gave no credentials: it raised {type(exc).__name__}") from exc


def _text(name: str, given: Any) -> Secret:
    if not isinstance(given, str) or not given:
        raise AuthenticationError(f"{name} gave no text, but {'an empty one' if given == '' else type(given).__name__}")
    if not is_utf8(given):
        raise AuthenticationError(f"{name}: {NOT_UTF8}")
    return given if isinstance(given, Secret) else Secret(given)


def _mapping(name: str, given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise AuthenticationError(f"{name} gave no mapping of names to texts, but {type(given).__name__}")
    return given
