"""KafkaAdminClient's calls about SCRAM users. Passwords are salted in this process and shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gkafka.admin import ScramMechanism
from gkafka.admin.users import SALT_BYTES, salted_password
from gkafka.config import NOT_UTF8, Secret, is_utf8
from gkafka.exceptions import BrokerError, KafkaException
from gkafka.kafka.admin.calls import Calls, member, outcomes_of, text_of
from gkafka.kafka.arguments import listed
from gkafka.kafka.errors import IllegalArgumentError
from gkafka.unseen import hide_options, unseen

__all__ = ["ScramMechanism", "UserCalls", "UserScramCredentialDeletion", "UserScramCredentialUpsertion"]


class UserScramCredentialDeletion:
    """A password to take away. mechanism: a ScramMechanism or its name, as "SCRAM-SHA-256"."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        user, mechanism = hide_options(user), _known(mechanism)
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        if not hasattr(self, "mechanism"):  # where a traceback shows what could not be made
            return "<UserScramCredentialDeletion that was not made>"
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
        # From here on, and in what this raises, nothing that a traceback's variables show, wherever the password stands.
        user, mechanism, password = hide_options(user), _known(mechanism), _hidden(password)
        iterations, salt = _hidden_unless(int, iterations), _hidden_unless(bytes, salt)
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
        if not hasattr(self, "password"):
            return "<UserScramCredentialUpsertion that was not made>"
        return f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"


def _known(mechanism: Any) -> Any:
    """The mechanism that is meant. What is none may be the password, in the wrong place, and becomes what nothing shows."""
    try:
        return member("mechanism", mechanism, ScramMechanism)
    except IllegalArgumentError:
        return unseen(mechanism)


def _mechanism(known: Any) -> ScramMechanism:
    if isinstance(known, ScramMechanism):
        return known
    raise IllegalArgumentError(f"mechanism: a {type(known).__name__} that is none: must be SCRAM-SHA-256 or SCRAM-SHA-512")


def _hidden(password: Any) -> Any:
    if isinstance(password, bytes):
        password = password.decode(errors="surrogateescape")  # halves of characters are refused; a UnicodeDecodeError would hold the bytes
    return Secret(password) if isinstance(password, str) else unseen(password)


def _hidden_unless(kind: type, given: Any) -> Any:
    """What is of another kind than it must be may be the password."""
    return given if given is None or isinstance(given, kind) else unseen(given)


def _secret(hidden: Any) -> Secret:
    if not isinstance(hidden, Secret):
        raise IllegalArgumentError(f"password: a {type(hidden).__name__}: must be a text, or the bytes of one")
    if not is_utf8(hidden):
        raise IllegalArgumentError(f"password: {NOT_UTF8}")
    return hidden


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
