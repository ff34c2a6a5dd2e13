"""sasl.jaas.config: what a login module of Java is told, as options of KafkaClient. Nothing of Java is loaded.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";

A pasted line works, that of Databricks included, whose classes are called kafkashaded.org.apache...
Source: org.apache.kafka.common.security.JaasConfig, KIP-85; java.io.StreamTokenizer's quoting
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from gkafka.config import Secret
from gkafka.exceptions import ConfigurationError
from gkafka.sasloptions import hide_secrets

__all__ = ["client_options"]

NAME = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")
BETWEEN = re.compile(r"(?:\s+|//[^\n]*|/\*[\s\S]*?\*/)*")
TOKEN = re.compile(r"""(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([^\s"'=;]+)|([=;]))""")
ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
PASSWORD = {"username": "sasl_username", "password": "sasl_password"}
MODULES: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "PlainLoginModule": (("PLAIN",), PASSWORD),
    "ScramLoginModule": (("SCRAM-SHA-256", "SCRAM-SHA-512"), PASSWORD),
    "OAuthBearerLoginModule": (
        ("OAUTHBEARER",),
        {"clientId": "sasl_oauth_client_id", "clientSecret": "sasl_oauth_client_secret", "scope": "sasl_oauth_scope"},
    ),
    "Krb5LoginModule": (("GSSAPI",), {"serviceName": "sasl_kerberos_service_name"}),
    "IAMLoginModule": (("AWS_MSK_IAM",), {}),
}
"""Login module -> the mechanisms it is for, and the options that it takes."""
INSTEAD = {
    "Krb5LoginModule": "tickets come from the environment: kinit, or KRB5_CLIENT_KTNAME=<key table> on every node",
    "IAMLoginModule": "credentials come from the environment of every node, as botocore finds them: AWS_PROFILE, a role, ...",
    "ScramLoginModule": "delegation tokens are not supported",
}
EXTENSION = "extension_"
NAMES = (
    *MODULES,
    *(name for _, known in MODULES.values() for name in known),
    *("required", "tokenauth", "keyTab", "principal", "useKeyTab", "useTicketCache", "ticketCache", "storeKey", "doNotPrompt", "debug"),
    *(
        "renewTicket",
        "refreshKrb5Config",
        "isInitiator",
        "awsDebugCreds",
        "awsProfileName",
        "awsRoleArn",
        "awsRoleSessionName",
        "awsStsRegion",
    ),
)
"""What Java's login modules and their options are called."""


def client_options(text: str, mechanism: str | None, *, prefix: str = "") -> dict[str, Any]:
    """What a login line comes to. mechanism: sasl.mechanism. prefix: what stands before both names where they were given.

    Raises ConfigurationError, which never shows a value.
    """
    text = Secret(text)
    try:
        return hide_secrets(_client_options(text, mechanism, prefix))
    except ConfigurationError as exc:
        told = f"{prefix}{exc}"
    raise ConfigurationError(told)  # out here: without the frames of what was at work on the text


def _client_options(text: str, mechanism: str | None, prefix: str) -> dict[str, Any]:
    module, given = _parse(text)
    if module not in MODULES:
        raise ConfigurationError(f"{NAME}: the login module{_shown(module)} is not known; these are: {', '.join(MODULES)}")
    mechanisms, known = MODULES[module]
    if mechanism not in mechanisms:
        raise ConfigurationError(
            f"{NAME} names {module}, {prefix}sasl.mechanism is {mechanism or 'not given'}: set {prefix}sasl.mechanism={' or '.join(mechanisms)}"
        )
    options: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    for name, value in given.items():
        if name in known:
            options[known[name]] = value
        elif module == "OAuthBearerLoginModule" and name.startswith(EXTENSION):
            extensions[name.removeprefix(EXTENSION)] = value
        elif not _is_harmless(module, name, value):
            instead = f": {INSTEAD[module]}" if module in INSTEAD else f"; {module} takes {', '.join(known)}"
            raise ConfigurationError(f"{NAME}: the option{_shown(name)} has no counterpart here{instead}")
    if extensions:
        options["sasl_oauth_extensions"] = extensions
    return options


def _is_harmless(module: str, name: str, value: str) -> bool:
    """What asks for nothing that is not so here anyway."""
    if module == "Krb5LoginModule":
        return (name, value.lower()) in {
            ("useTicketCache", "true"),
            ("useKeyTab", "false"),
            ("renewTicket", "true"),
            ("refreshKrb5Config", "true"),
        }
    return (name, value.lower()) in {("tokenauth", "false"), ("awsDebugCreds", "false")}


def _parse(text: str) -> tuple[str, dict[str, str]]:
    """The module's own name, and its options."""
    words = _words(text)
    if words[-1:] != [";"]:
        raise ConfigurationError(f"{NAME}: must end with a semicolon")
    if len(words) < 3 or words[1].lower() not in FLAGS:
        raise ConfigurationError(f"{NAME}: must begin with a login module and 'required'")
    if ";" in words[:-1]:
        raise ConfigurationError(f"{NAME}: must have one login module; after the first semicolon there is more")
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
