"""Whether the options of SASL make sense together, told before anything connects."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from typing import Any

from gkafka.config import (
    NOT_UTF8,
    WORD,
    ClientConfig,
    ConsumerConfig,
    NativeConsumerConfig,
    ProducerConfig,
    Secret,
    is_near,
    is_pem_text,
    is_utf8,
    may_be_key,
)
from gkafka.exceptions import ConfigurationError
from gkafka.oauthoptions import ENDPOINT, OF_ENDPOINT, check_endpoint
from gkafka.unseen import hide_options, unseen

__all__ = [
    "MECHANISMS",
    "UNSET",
    "check_sasl",
    "has_user",
    "hide_hosts",
    "hide_mistaken",
    "hide_secrets",
    "hide_tls",
    "is_of_addresses",
    "seems_secret",
    "seems_secret_config",
    "tls_options",
    "with_region",
    "wrong_extension",
]

PASSWORD = ("sasl_username", "sasl_password")
MECHANISMS: dict[str, tuple[str, ...]] = {
    "PLAIN": PASSWORD,
    "SCRAM-SHA-256": PASSWORD,
    "SCRAM-SHA-512": PASSWORD,
    "OAUTHBEARER": ("sasl_oauth_token_provider", "sasl_oauth_extensions", *ENDPOINT, *OF_ENDPOINT),
    "GSSAPI": ("sasl_kerberos_service_name", "sasl_kerberos_domain_name"),
    "AWS_MSK_IAM": ("sasl_aws_region", "sasl_aws_profile", "sasl_aws_role_arn", "sasl_aws_role_session_name"),
}
"""The options that each mechanism takes."""
OF_MSK = re.compile(
    r"\bkafka(?:-serverless)?\.([a-z]{2}-[a-z0-9-]+-\d+)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)\.?(?=[:,\s]|$)", re.IGNORECASE
)
"""The name of a broker of Amazon MSK, with its region."""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
REUSABLE = ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM")
"""Mechanisms that send what a listener could use again. SCRAM and GSSAPI send proofs."""
EXTENSION_NAME = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
UNSET = ClientConfig()


def _spellings(kind: str, *configs: Any) -> set[str]:
    options = [f for config in configs or (ClientConfig,) for f in dataclasses.fields(config) if f.metadata[kind]]
    return {spelling.replace(".", "_") for f in options for spelling in (f.name, *f.metadata["aliases"])}


SECRETS = _spellings("secret")
BESIDE_SECRETS = _spellings("beside_secret")
OF_MECHANISM = ("sasl_mechanism", "sasl_mechanisms")
PEM, CHOSEN = _spellings("pem"), _spellings("choices", ClientConfig, ConsumerConfig, NativeConsumerConfig, ProducerConfig)
MAPPINGS = ("sasl_oauth_extensions", "sasl_oauth_form_fields")
GIVES_TOKENS = "sasl_oauth_token_provider"  # a token itself, given as text, is a mistake that nothing may show
KNOWN = {
    spelling.replace(".", "_")
    for config in (ClientConfig, ConsumerConfig, NativeConsumerConfig, ProducerConfig)
    for f in dataclasses.fields(config)
    for spelling in (f.name, *f.metadata["aliases"])
}
LIKE_A_SECRET = re.compile(r"pas+_?w|pas+_?phrase|pwd|(^|_)pass(_|$)|secret|token|jaas|credential|(^|_)key$", re.IGNORECASE)
URL_WITH_USER = re.compile(r"://.*@", re.DOTALL)
HOSTS = ("hosts", "bootstrap_servers", "metadata_broker_list", "zookeeper_hosts", "zookeeper_connect")
BETWEEN_ADDRESSES = re.compile(r"[\s,;|&'\"`<>(){}\[\]$#\\\u200b-\u200f\u2018\u2019\u201c\u201d\u3001\ufeff]+")
"""What separates addresses in lists of any kind, and what templates have around a name."""
LIKE_ADDRESS = re.compile(
    r"(?:\w{1,16}:)?/{2,3}(?:%?[\w.-]*%?(?::-?\d\w{0,5})*/?)|"  # of an URL, whose path may be a secret
    r"(?:(?:sasl_)?(?:plaintext|ssl):)?%?[\w.-]*%?(?::-?(?:\d\w{0,5}|(?!\d)\w{0,4}))*(?:/(?!/)[\w./-]*)?|"
    r"[0-9a-fA-F:.]+(?:%\w+)?",
    re.IGNORECASE,
)
NAMED = re.compile(r"[\w.-]+:?")
ALIKE = 0.85  # of two names: a slip of the pen in one of a secret's


def check_sasl(config: ClientConfig) -> None:
    """Raise ConfigurationError, with the next step, for options of SASL that are missing, unsafe or without effect."""
    given = [name for names in MECHANISMS.values() for name in names if getattr(config, name) != getattr(UNSET, name)]
    if not config.uses_sasl:
        _check_without_sasl(config, given)
        return
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigurationError(
            f"security_protocol={config.security_protocol!r} without sasl_mechanism: give one of {', '.join(MECHANISMS)}"
        )
    for name in given:
        if name not in MECHANISMS[mechanism]:
            raise ConfigurationError(f"{name} with sasl_mechanism={mechanism!r}, where it has no effect: leave it out")
    if MECHANISMS[mechanism] is PASSWORD:
        _check_password(config, mechanism)
    elif mechanism == "OAUTHBEARER":
        _check_tokens(config)
    elif mechanism == "AWS_MSK_IAM":
        _check_aws(config)
    if mechanism in REUSABLE and not config.uses_tls and not config.allow_plaintext_credentials:
        raise ConfigurationError(
            f"sasl_mechanism={mechanism!r} with security_protocol='SASL_PLAINTEXT' would send the credentials in clear text: use 'SASL_SSL', "
            "or, where nobody can listen, allow_plaintext_credentials=True"
        )


def with_region(config: ClientConfig, hosts: Any) -> ClientConfig:
    """The same configuration with the region of Amazon's, where AWS_MSK_IAM needs one and none was given: that in the brokers' names, which Java's client
    takes, or that of the environment. hosts: as users give them.
    """
    if config.sasl_mechanism != "AWS_MSK_IAM" or config.sasl_aws_region:
        return config
    text = hosts.decode(errors="replace") if isinstance(hosts, bytes) else hosts
    named = OF_MSK.search(text) if isinstance(text, str) else None
    region = named[1].lower() if named else next(filter(None, map(os.environ.get, REGION_VARIABLES)), None)
    return config if region is None else dataclasses.replace(config, sasl_aws_region=region)


def _check_aws(config: ClientConfig) -> None:
    if not config.sasl_aws_region:
        raise ConfigurationError(
            "sasl_mechanism='AWS_MSK_IAM' without sasl_aws_region: give the region of the cluster, as 'eu-west-1'; neither the brokers' names "
            f"(as in b-1.demo.kafka.eu-west-1.amazonaws.com) nor {' or '.join(REGION_VARIABLES)} tells it"
        )
    if config.sasl_aws_profile is not None and config.sasl_aws_role_arn is not None:
        raise ConfigurationError(
            "sasl_aws_profile together with sasl_aws_role_arn: Amazon's signer takes one of them: leave one out, or name the profile in AWS_PROFILE"
        )
    if config.sasl_aws_role_session_name is not None and config.sasl_aws_role_arn is None:
        raise ConfigurationError("sasl_aws_role_session_name without sasl_aws_role_arn, whose session it names: give both, or leave it out")


def hide_secrets(options: Mapping[str, Any], *known: Iterable[str]) -> dict[str, Any]:
    """The options, with what must not be seen as Secrets: from here on no repr and no traceback shows it.

    That is what a secret's option has, any URL with a user, and whatever stands behind a name that is no option's. known: names that are, beside
    those of gkafka's own configurations.
    """
    more = {name for names in known for name in names}
    return {name: _hidden(name, value, more) for name, value in options.items()}


def _hidden(name: str, value: Any, known: Container[str]) -> Any:
    option = name.replace(".", "_").replace("-", "_")
    if option in HOSTS:
        return hide_hosts(value)
    if option not in KNOWN and option not in known:
        return _of_nothing_known(value)
    if option in MAPPINGS:
        return hide_values(value)
    if option not in BESIDE_SECRETS:
        value = hide_options(value)
    if option == GIVES_TOKENS and not isinstance(value, (str, bytes, bytearray)):
        return value
    if option in BESIDE_SECRETS and value is not None:
        return hide_mistaken(option, value)
    named_so = option in SECRETS or option == GIVES_TOKENS or seems_secret(option)
    if isinstance(value, str):
        is_secret = named_so or is_pem_text(value) or has_user(value) or (option in PEM and may_be_key(value))
        is_secret = is_secret or (option in CHOSEN and not WORD.fullmatch(value))
        return Secret(value) if is_secret else value
    is_usable = value is None or callable(value) or isinstance(value, os.PathLike)
    if is_usable or not (named_so or option in PEM):
        return value
    return unseen(value)


def _of_nothing_known(value: Any) -> Any:
    if isinstance(value, str):
        return Secret(value)
    return value if value is None or isinstance(value, bool) else unseen(value)


def hide_mistaken(option: str, value: Any) -> Any:
    """A value of an option that is no secret's, but beside one: what it cannot be may be the secret."""
    if not isinstance(value, str):
        return unseen(value)
    is_secret = has_user(value) or is_pem_text(value) or (option in OF_MECHANISM and not is_near(value, MECHANISMS))
    return Secret(value) if is_secret else value


def hide_tls(given: Any) -> Any:
    """An SslConfig as it is; what is none in its place, as a dict with a pass phrase, as what nothing shows."""
    return given if given is None or callable(getattr(given, "client_options", None)) else unseen(given)


def tls_options(given: Any) -> dict[str, Any]:
    """The options that an SslConfig stands for, none for None. given: as hide_tls() leaves it. Raises ConfigurationError for what is no SslConfig."""
    if given is None:
        return {}
    try:
        options: dict[str, Any] = given.client_options()
    except (AttributeError, TypeError) as exc:
        raise ConfigurationError(f"ssl_config: must be a gkafka.connection.SslConfig, not {type(given).__name__}") from exc
    return options


def hide_values(value: Any) -> Any:
    """Extensions of a token, or fields of the request for one, whose values may be keys: each a Secret."""
    if isinstance(value, str):
        return Secret(value)
    if not isinstance(value, Mapping):
        return value if value is None else unseen(value)
    return {name: Secret(one) if isinstance(one, str) else unseen(one) for name, one in value.items()}


def has_user(text: str) -> bool:
    """Whether it may be a URL, or hold one, in which somebody's name and password stand before the host."""
    return URL_WITH_USER.search(text) is not None


def hide_hosts(value: Any) -> Any:
    """Addresses as users give them, a text or a list, as Secrets where they may hold one: somebody's name and password before a host, or something else
    that was pasted there, as a connection string. What is used is never hidden.
    """
    if isinstance(value, bytes) and not is_of_addresses(value.decode(errors="replace")):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return value if isinstance(value, Secret) or is_of_addresses(value) else Secret(value)
    if isinstance(value, Mapping):
        return unseen(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        if not all(isinstance(one, str) for one in value):
            return unseen(value)
        return value if all(map(is_of_addresses, value)) else [Secret(one) for one in value]
    return value


def is_of_addresses(text: str) -> bool:
    """Is every word of a text an address, or what a template has in place of one? The only rule of what messages may show of one."""
    text = unicodedata.normalize("NFKC", text).replace("\\/", "/").replace("\ufffd", "")
    words = [word for word in BETWEEN_ADDRESSES.split(text) if word]
    is_list = len(words) > 1  # of words, one of which may be the name of a secret, and the next the secret
    return all(LIKE_ADDRESS.fullmatch(word) and not (is_list and NAMED.fullmatch(word) and LIKE_A_SECRET.search(word)) for word in words)


def seems_secret(option: str) -> bool:
    """Whether a name that no option has may be meant as a secret's: of another client, or mistyped."""
    if option in KNOWN:
        return False
    return LIKE_A_SECRET.search(option) is not None or bool(difflib.get_close_matches(option, SECRETS, n=1, cutoff=ALIKE))


def seems_secret_config(name: Any) -> bool:
    """Whether what brokers and topics are configured with under a name may be a secret. What is no text is no name: it may stand before anything."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    return not isinstance(text, str) or LIKE_A_SECRET.search(text.replace(".", "_").replace("-", "_")) is not None


def _check_without_sasl(config: ClientConfig, given: list[str]) -> None:
    if config.sasl_mechanism is not None:
        given = ["sasl_mechanism", *given]
    if config.allow_plaintext_credentials:
        given.append("allow_plaintext_credentials")
    if given:
        instead = "SASL_SSL" if config.uses_tls else "SASL_SSL' or 'SASL_PLAINTEXT"
        raise ConfigurationError(
            f"{given[0]} with security_protocol={config.security_protocol!r}, which tells no broker who the client is: "
            f"set security_protocol='{instead}', or leave {given[0]} out"
        )


def _check_password(config: ClientConfig, mechanism: str) -> None:
    for name, other in (PASSWORD, PASSWORD[::-1]):
        if getattr(config, name) in (None, ""):
            there = (
                f"{other} without {name}" if getattr(config, other) not in (None, "") else f"sasl_mechanism={mechanism!r} without {name}"
            )
            raise ConfigurationError(f"{there}: give both sasl_username and sasl_password")
    _check_utf8(config, PASSWORD)
    if "\0" in (config.sasl_username or "") or (isinstance(config.sasl_password, str) and "\0" in config.sasl_password):
        raise ConfigurationError("sasl_username and sasl_password must hold no NUL character")


def wrong_extension(name: Any, value: Any) -> str | None:
    """Why an extension of a token cannot be sent (KIP-342); its value is not told."""
    if not isinstance(name, str) or name == "auth" or not EXTENSION_NAME.fullmatch(name):
        return f"{name!r}: a name has letters alone, and is not 'auth'"
    if not isinstance(value, str) or not EXTENSION_VALUE.fullmatch(value):
        return f"{name!r}: its value is no text, is empty or holds characters that cannot be sent"
    return None


def _check_tokens(config: ClientConfig) -> None:
    for name, value in (config.sasl_oauth_extensions or {}).items():
        if wrong := wrong_extension(name, value):
            raise ConfigurationError(f"sasl_oauth_extensions: {wrong}")
    provider = config.sasl_oauth_token_provider
    if provider is None and config.sasl_oauth_token_endpoint_url is None:
        raise ConfigurationError(
            "sasl_mechanism='OAUTHBEARER' without a source of tokens: give sasl_oauth_token_provider, or sasl_oauth_token_endpoint_url with "
            "sasl_oauth_client_id and sasl_oauth_client_secret"
        )
    if provider is not None:
        if not callable(provider) and not callable(getattr(provider, "token", None)):
            kind = "str" if isinstance(provider, str) else type(provider).__name__
            raise ConfigurationError(
                f"sasl_oauth_token_provider must be a callable that returns a token, or have a method token(), not {kind}"
            )
        beside = [name for name in (*ENDPOINT, *OF_ENDPOINT) if getattr(config, name) != getattr(UNSET, name)]
        if beside:
            raise ConfigurationError(f"sasl_oauth_token_provider together with {beside[0]}: both say where tokens come from; give one")
        return
    check_endpoint(config)


def _check_utf8(config: ClientConfig, names: tuple[str, ...]) -> None:
    for name in names:
        given = getattr(config, name)
        if isinstance(given, str) and not is_utf8(given):
            raise ConfigurationError(f"{name}: {NOT_UTF8}")
