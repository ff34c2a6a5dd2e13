"""KafkaAdminClient's calls about SCRAM users. Passwords are salted in this process and shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gkafka.admin import ScramMechanism
from gkafka.admin.users import SALT_BYTES, salted_password
from gkafka.config import Secret
from gkafka.exceptions import BrokerError, KafkaException
from gkafka.kafka.admin.calls import Calls, member, outcomes_of, text_of
from gkafka.kafka.arguments import listed
from gkafka.kafka.errors import IllegalArgumentError

__all__ = ["ScramMechanism", "UserCalls", "UserScramCredentialDeletion", "UserScramCredentialUpsertion"]


class UserScramCredentialDeletion:
    """A password to take away. mechanism: a ScramMechanism or its name, as "SCRAM-SHA-256"."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A password to give, to a new user as well. salt: None for a new one. The password itself is kept as a secret, and shown by nothing."""

    DEFAULT_ITERATIONS = 4096

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | int | str,
        password: str | bytes,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("mechanism=UNKNOWN: must be SCRAM-SHA-256 or SCRAM-SHA-512")
        self.iterations = self.DEFAULT_ITERATIONS if iterations is None else iterations
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int):
            raise IllegalArgumentError(f"iterations: a {type(iterations).__name__}: must be a whole number")
        self.salt = os.urandom(SALT_BYTES) if salt is None else salt
        if not isinstance(self.salt, bytes):
            raise IllegalArgumentError(f"salt: a {type(salt).__name__}: must be bytes")
        self.password = _secret(password)

    @property
    def salted_password(self) -> bytes:
        """RFC 5802's SaltedPassword."""
        return salted_password(self.password, self.salt, self.iterations, self.mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"


def _mechanism(given: Any) -> ScramMechanism:
    """What is none may be the password, in the wrong place: it is not shown."""
    try:
        return member("mechanism", given, ScramMechanism)
    except IllegalArgumentError:
        pass
    raise IllegalArgumentError(f"mechanism: a {type(given).__name__} that is none: must be SCRAM-SHA-256 or SCRAM-SHA-512")


def _secret(password: Any) -> Secret:
    if not isinstance(password, (str, bytes)):
        raise IllegalArgumentError(f"password: a {type(password).__name__}: must be a text, or the bytes of one")
    try:
        return Secret(password.decode() if isinstance(password, bytes) else password)
    except UnicodeDecodeError:
        pass  # which holds the bytes
    raise IllegalArgumentError("password: its bytes are not UTF-8")


class UserCalls(Calls):
    """The calls about SCRAM users (2.7 and newer; KRaft 3.5)."""

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Give and take passwords. Returns None, or the text of what went wrong, by user."""
        wanted = list(alterations)
        for one in wanted:
            if not isinstance(one, (UserScramCredentialDeletion, UserScramCredentialUpsertion)):
                text = f"alterations: a {type(one).__name__} in it: must be a UserScramCredentialDeletion or a UserScramCredentialUpsertion"
                raise IllegalArgumentError(text)
        told: dict[str, str | None] = {}
        for one in wanted:
            told[one.user] = self._alter_user(one) or told.get(one.user)
        return told

    def _alter_user(self, one: UserScramCredentialDeletion | UserScramCredentialUpsertion) -> str | None:
        within = self._within()
        try:
            if isinstance(one, UserScramCredentialDeletion):
                self._admin.delete_user(one.user, one.mechanism, timeout=within)
            else:
                self._admin.set_user(one.user, one.password, one.mechanism, iterations=one.iterations, salt=one.salt, timeout=within)
        except BrokerError as exc:
            return str(exc)
        return None

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """What users can log in with, None for all. An error of a user is its "error"."""
        names = None if users is None else listed("users", users)
        told = outcomes_of(self._admin.describe_users, names, timeout=self._within())
        return {user: _shown(told.of(user)) for user in (told.results.keys() | told.errors.keys() if names is None else names)}


def _shown(outcome: Any) -> dict[str, Any]:
    failed = isinstance(outcome, KafkaException)
    infos = [] if failed else [{"mechanism": one.mechanism, "iterations": one.iterations} for one in outcome]
    return {"error": text_of(outcome), "credential_infos": infos}
