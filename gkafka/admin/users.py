"""SCRAM users: what they log in with. Passwords are salted here (RFC 5802) and never leave the process, nor show themselves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from gkafka.admin.arguments import check_enum, check_names
from gkafka.admin.enums import ScramMechanism, known
from gkafka.admin.requests import Subject
from gkafka.checks import check_count, check_name
from gkafka.config import NOT_UTF8, Secret, is_near, is_utf8
from gkafka.exceptions import ConfigurationError, KafkaException, error_for
from gkafka.unseen import hide_options
from gkafka.wire.access import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

__all__ = ["ScramCredential", "UsersAdmin", "salted_password"]

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""What brokers take: org.apache.kafka.common.security.scram.internals.ScramMechanism, and their own bound."""
SALT_BYTES = 24
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class ScramCredential(NamedTuple):
    """What a user can log in with; nothing of the password."""

    mechanism: ScramMechanism
    iterations: int


class UsersAdmin(Subject):
    """The calls about SCRAM users."""

    def describe_users(self, users: Iterable[str] | None = None, *, timeout: float | None = None) -> dict[str, list[ScramCredential]]:
        """The credentials of each user, None for all users. Item errors: ResourceNotFound, ... (2.7 and newer, KRaft from 3.5 on)."""
        names = None if users is None else check_names("users", users)
        deadline = self._requests.begin(timeout)

        def ask(left: list[str] | None) -> dict[str, list[ScramCredential] | KafkaException]:
            request = DescribeUserScramCredentialsRequest(users=None if left is None else [UserName(name=name) for name in left])
            response, broker = self._requests.controller(request, deadline)
            about = {"broker": broker, "api": "DescribeUserScramCredentials"}
            error = error_for(response.error_code, response.error_message, **about)
            if error is not None:
                raise error
            return {r.user: error_for(r.error_code, r.error_message, **about) or _credentials(r) for r in response.results}

        if names is not None:
            return self._requests.settle("describing users", names, ask, deadline)
        told = self._requests.settle("describing users", [""], lambda _: {"": ask(None)}, deadline)[""]
        errors = {user: answer for user, answer in told.items() if isinstance(answer, KafkaException)}
        found = {user: answer for user, answer in sorted(told.items()) if not isinstance(answer, KafkaException)}
        return self._requests.all_or_error("describing users", errors, found)

    def set_user(
        self,
        user: str,
        password: str | Secret,
        mechanism: ScramMechanism | str = ScramMechanism.SCRAM_SHA_512,
        *,
        iterations: int = 8192,
        salt: bytes | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give a user a password, a new user too. iterations: 4096 to 16384; more are slower to guess, and to log in with. salt: None for a new one.

        Raises UnacceptableCredential, ClusterAuthorizationFailed, ...
        """
        try:
            secret = _secret(password)
        finally:
            del password  # from here on, and in what this raises, nothing that a traceback's variables show
            user, mechanism = hide_options(user), _hidden(mechanism)
        name, kind = check_name("user", user), _mechanism(mechanism)
        rounds = check_count("iterations", iterations, low=MIN_ITERATIONS, high=MAX_ITERATIONS)
        upsertion = self._requests.aside(_upsertion, name, secret, rounds, kind, _salt(salt))
        self._alter_user(AlterUserScramCredentialsRequest(upsertions=[upsertion]), name, timeout)

    def delete_user(self, user: str, mechanism: ScramMechanism | str, *, timeout: float | None = None) -> None:
        """Take a user's password for a mechanism away. Raises ResourceNotFound where there is none, ..."""
        name = check_name("user", user)
        deletion = ScramCredentialDeletion(name=name, mechanism=_mechanism(mechanism))
        self._alter_user(AlterUserScramCredentialsRequest(deletions=[deletion]), name, timeout)

    def _alter_user(self, request: AlterUserScramCredentialsRequest, user: str, timeout: float | None) -> None:
        deadline = self._requests.begin(timeout)

        def attempt(left: list[str]) -> dict[str, None]:
            response, controller = self._requests.controller(request, deadline)
            for result in response.results:
                error = error_for(result.error_code, result.error_message, broker=controller, api="AlterUserScramCredentials")
                if error is not None:
                    raise error
            return {result.user: None for result in response.results}

        self._requests.settle(f"changing user {user!r}", [user], attempt, deadline)


def _upsertion(user: str, password: Secret, iterations: int, mechanism: ScramMechanism, salt: bytes) -> ScramCredentialUpsertion:
    salted = salted_password(password, salt, iterations, mechanism)
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)


def salted_password(password: Secret, salt: bytes, iterations: int, mechanism: ScramMechanism) -> bytes:
    """RFC 5802's SaltedPassword. The password is taken as it is, as Kafka does: SASLprep is not applied (ScramFormatter.normalize)."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.reveal().encode(), salt, iterations)


def _secret(given: Any) -> Secret:
    if not isinstance(given, str):
        kind = type(given).__name__
        del given
        raise ConfigurationError(f"password: must be a text, not {kind}")
    given = secret = Secret(given)
    if not secret.reveal():
        raise ConfigurationError("password: must not be empty")
    if not is_utf8(secret):
        raise ConfigurationError(f"password: {NOT_UTF8}")
    return secret


def _salt(given: Any) -> bytes:
    if given is None:
        return os.urandom(SALT_BYTES)
    if not isinstance(given, bytes) or not given:
        raise ConfigurationError("salt: must be bytes, or None for a new one")
    return given


def _hidden(mechanism: Any) -> Any:
    """What is nothing like a mechanism may be the password, as what nothing shows."""
    return Secret(mechanism) if isinstance(mechanism, str) and not is_near(mechanism, MECHANISMS) else hide_options(mechanism)


def _mechanism(given: Any) -> ScramMechanism:
    if isinstance(given, Secret):
        raise ConfigurationError(f"mechanism, a text of {len(given)} characters: must be {' or '.join(MECHANISMS)}")
    mechanism = check_enum("mechanism", given, ScramMechanism)
    if mechanism is ScramMechanism.UNKNOWN:
        raise ConfigurationError(f"mechanism: must be {' or '.join(MECHANISMS)}")
    return mechanism


def _credentials(result: Any) -> list[ScramCredential]:
    return sorted(ScramCredential(known(ScramMechanism, c.mechanism), c.iterations) for c in result.credential_infos)
