"""sasl.jaas.config: what a login module of Java is told, as options of KafkaClient. Nothing of Java is loaded.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";

A pasted line works, that of Databricks included, whose classes are called kafkashaded.org.apache...
Source: org.apache.kafka.common.security.JaasConfig, KIP-85; java.io.StreamTokenizer's quoting
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gkafka.config import Secret
from gkafka.exceptions import ConfigurationError
from gkafka.sasloptions import hide_secrets

__all__ = ["Login", "mechanism_of", "read_login"]

NAME = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")
BETWEEN = re.compile(r"(?:\s+|//[^\n]*|/\*[\s\S]*?\*/)*")
TOKEN = re.compile(r"""(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([^\s"'=;]+)|([=;]))""")
IN_QUOTES = re.compile(r"[\"'][\w.$]*LoginModule\s")
ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
PASSWORD = {"username": "sasl_username", "password": "sasl_password"}
AMAZON = {
    "awsProfileName": "sasl_aws_profile",
    "awsRoleArn": "sasl_aws_role_arn",
    "awsRoleSessionName": "sasl_aws_role_session_name",
}
MODULES: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "PlainLoginModule": (("PLAIN",), PASSWORD),
    "ScramLoginModule": (("SCRAM-SHA-256", "SCRAM-SHA-512"), PASSWORD),
    "OAuthBearerLoginModule": (
        ("OAUTHBEARER",),
        {
            "clientId": "sasl_oauth_client_id",
            "clientSecret": "sasl_oauth_client_secret",
            "scope": "sasl_oauth_scope",
            # Strimzi's
            "oauth.client.id": "sasl_oauth_client_id",
            "oauth.client.secret": "sasl_oauth_client_secret",
            "oauth.token.endpoint.uri": "sasl_oauth_token_endpoint_url",
            "oauth.scope": "sasl_oauth_scope",
            "oauth.audience": "sasl_oauth_audience",
        },
    ),
    "Krb5LoginModule": (("GSSAPI",), {"serviceName": "sasl_kerberos_service_name"}),
    "IAMLoginModule": (("AWS_MSK_IAM",), AMAZON),
}
"""Login module -> the mechanisms it is for, and the options that it takes."""
IAM, IAM_HANDLER = "AWS_MSK_IAM", "IAMOAuthBearerLoginCallbackHandler"
"""The mechanism that Java's clients may have as OAUTHBEARER with this class."""
REFUSED = {
    ("Krb5LoginModule", "keyTab"): "tickets come from the environment: kinit, or KRB5_CLIENT_KTNAME=<key table> on every node",
    (
        "Krb5LoginModule",
        "principal",
    ): "tickets come from the environment: kinit with this principal, or KRB5_CLIENT_KTNAME=<key table> on every node",
    **{
        ("OAuthBearerLoginModule", name): "in a program give the token by sasl_oauth_token_provider, else an id and a secret"
        for name in ("oauth.access.token", "oauth.access.token.location", "oauth.refresh.token", "oauth.password.grant.username")
    },
    ("ScramLoginModule", "tokenauth"): "delegation tokens are not supported",
}
"""Options that say who the client is, in a way that is not there -> the next step. Java's modules ignore what they do not know, and so does this."""
HARMLESS = {("tokenauth", "false"), ("awsDebugCreds", "false"), ("useTicketCache", "true"), ("useKeyTab", "false"), ("renewTicket", "true")}
HARMLESS |= {("refreshKrb5Config", "true")}
"""What asks for nothing that is not so here anyway."""
EXTENSION = "extension_"
NAMES = (
    *MODULES,
    *(name for _, known in MODULES.values() for name in known),
    *("required", "tokenauth", "keyTab", "principal", "useKeyTab", "useTicketCache", "ticketCache", "storeKey", "doNotPrompt", "debug"),
    *("renewTicket", "refreshKrb5Config", "isInitiator", "useDefaultCcache", "awsDebugCreds", "awsStsRegion", "awsExternalId"),
    *(f"oauth.ssl.truststore.{name}" for name in ("location", "certificates", "password", "type")),
    *(f"oauth.{name}" for name in ("access.token", "access.token.location", "refresh.token", "password.grant.username")),
    *(f"oauth.{name}" for name in ("username.claim", "max.token.expiry.seconds", "access.token.is.jwt", "connect.timeout.seconds")),
    *("awsMaxRetries", "awsMaxBackOffTimeMs", "user_admin", "unsecuredLoginStringClaim_sub"),
)
"""What Java's login modules and their options are called."""


class Login(NamedTuple):
    """options: of KafkaClient. passed: those of the line that have no effect here, by name where that can be told."""

    options: dict[str, Any]
    passed: tuple[str, ...]


def mechanism_of(mechanism: str | None, *handlers: str) -> str | None:
    """sasl.mechanism, or AWS_MSK_IAM where one of these classes of Java signs the tokens of OAUTHBEARER."""
    return IAM if mechanism == "OAUTHBEARER" and any(handler.endswith(IAM_HANDLER) for handler in handlers) else mechanism


def read_login(text: str, mechanism: str | None, *, prefix: str = "") -> Login:
    """What a login line comes to. mechanism: sasl.mechanism. prefix: what stands before both names where they were given.

    Raises ConfigurationError, which never shows a value.
    """
    text = Secret(text)
    try:
        options, passed = _read_login(text, mechanism, prefix)
        return Login(hide_secrets(options), passed)
    except ConfigurationError as exc:
        told = f"{prefix}{exc}"
    raise ConfigurationError(told)  # out here: without the frames of what was at work on the text


def _read_login(text: str, mechanism: str | None, prefix: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    module, given = _parse(text)
    if module not in MODULES:
        raise ConfigurationError(f"{NAME}: the login module{_shown(module)} is not known; these are: {', '.join(MODULES)}")
    mechanisms, known = MODULES[module]
    if module == "OAuthBearerLoginModule" and mechanism == IAM:
        mechanisms, known = (IAM,), AMAZON
    if mechanism not in mechanisms:
        raise ConfigurationError(
            f"{NAME} names {module}, {prefix}sasl.mechanism is {mechanism or 'not given'}: set {prefix}sasl.mechanism={' or '.join(mechanisms)}"
        )
    options: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    passed: list[str] = []
    for name, value in given.items():
        if name in known:
            if options.setdefault(known[name], value) != value:
                raise ConfigurationError(f"{NAME}: the option {name!r} differs from another one that means the same: leave one out")
        elif module == "OAuthBearerLoginModule" and name.startswith(EXTENSION):
            extensions[name.removeprefix(EXTENSION)] = value
        elif (name, value.lower()) not in HARMLESS:
            passed.append(_passed_over(module, name, known))
    if extensions:
        options["sasl_oauth_extensions"] = extensions
    return options, tuple(passed)


def _passed_over(module: str, name: str, known: Mapping[str, str]) -> str:
    """What to call an option that has no effect. Raises ConfigurationError for one that is meant as one that has, or says who the client is."""
    if (module, name) in REFUSED:
        raise ConfigurationError(f"{NAME}: the option {name!r} has no counterpart here: {REFUSED[module, name]}")
    short = name.lower().replace("_", "")
    is_short = len(short) > 2 and any(short in one.lower() for one in known)  # as "user" is of username
    if name not in NAMES and (is_short or difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
        raise ConfigurationError(f"{NAME}: the option {name!r} has no counterpart here; {module} takes {', '.join(known)}")
    return name if name in NAMES else "another option"


def _parse(text: str) -> tuple[str, dict[str, str]]:
    """The module's own name, and its options."""
    text = text.strip()
    if IN_QUOTES.match(text):
        raise ConfigurationError(f"{NAME}: the whole line stands in quotes: take the outer pair off, it is not a part of the line")
    words = _words(text)
    if words[-2:] == [";", ";"]:
        raise ConfigurationError(f"{NAME}: ends with more than one semicolon: take one off")
    if words[-1:] != [";"]:
        raise ConfigurationError(f"{NAME}: must end with a semicolon")
    if len(words) < 3 or words[1].lower() not in FLAGS:
        raise ConfigurationError(f"{NAME}: must begin with a login module and 'required'")
    if ";" in words[:-1]:
        raise ConfigurationError(
            f"{NAME}: must have one login module; after the first semicolon there is more: put a value that holds one in double quotes, as in "
            'password="..."'
        )
    options: dict[str, str] = {}
    rest = words[2:-1]
    while rest:
        if len(rest) < 3 or rest[1] != "=" or "=" in (rest[0], rest[2]):
            raise ConfigurationError(
                f'{NAME}: its options must be name="value"; the one after{_shown(next(reversed(options), "required"))} is not'
            )
        if rest[0] in options:
            raise ConfigurationError(f"{NAME}: an option{_shown(rest[0])} is given twice")
        options[rest[0]] = rest[2][1:] if rest[2].startswith('"') else rest[2]
        rest = rest[3:]
    return words[0].rpartition(".")[2], options


def _shown(name: str) -> str:
    """A name that is Java's, or nearly one: another may be a part of a password whose quotes are wrong."""
    return f" {name!r}" if difflib.get_close_matches(name, NAMES, n=1, cutoff=0.8) else ""


def _words(text: str) -> list[str]:
    """Words, signs, and texts in quotes of either kind without their escapes, which begin with a quote so that they are no signs. Without comments."""
    words: list[str] = []
    at = _end_of_space(text, 0)
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise ConfigurationError(f"{NAME}: cannot be read at character {at + 1} of {len(text)}: a quote that does not end?")
        double, single, word, sign = found.groups()
        quoted = single if double is None else double
        words.append(word or sign if quoted is None else '"' + ESCAPE.sub(_unescaped, quoted))
        at = _end_of_space(text, found.end())
    return words


def _end_of_space(text: str, at: int) -> int:
    found = BETWEEN.match(text, at)
    return at if found is None else found.end()


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else ESCAPES.get(code, code)
