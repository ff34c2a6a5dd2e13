"""KafkaConsumer's sasl_ options (behaviour 274), on brokers that ask who it is."""

from __future__ import annotations

from typing import Any

import pytest

from gkafka.kafka import KafkaConsumer
from gkafka.kafka.errors import KafkaConfigurationError, KafkaError, SaslAuthenticationFailedError
from gkafka.testing import MockCluster, Sasl
from tests.kafka.conftest import Make

PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "s3same",
    "allow_plaintext_credentials": True,
}


@pytest.fixture
def guarded(make_cluster: Make) -> MockCluster:
    made: MockCluster = make_cluster(sasl=Sasl({"alice": "s3same"}, tokens=["token"]))
    return made


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_mechanism_and_the_name_and_password_let_in(consumer: Make, guarded: MockCluster, mechanism: str) -> None:
    """Behaviour 274: sasl_mechanism, sasl_plain_username, sasl_plain_password."""
    own: dict[str, Any] = {**PLAIN, "sasl_mechanism": mechanism}
    if mechanism != "PLAIN":
        del own["allow_plaintext_credentials"]  # the password is not sent
    assert consumer(guarded, **own).topics() == {"t"}
    with pytest.raises(SaslAuthenticationFailedError, match="error 58"):
        consumer(guarded, **{**own, "sasl_plain_password": "wrong"})
    with pytest.raises(KafkaError):
        consumer(guarded, api_version_auto_timeout_ms=500)


def test_sasl_oauth_token_provider_gives_the_token(consumer: Make, guarded: MockCluster) -> None:
    """Behaviour 274."""
    own = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "allow_plaintext_credentials": True}
    assert consumer(guarded, **own, sasl_oauth_token_provider=lambda: "token").topics() == {"t"}


def test_allow_plaintext_credentials_is_the_word_that_a_password_in_clear_text_takes(consumer: Make, guarded: MockCluster) -> None:
    """Behaviour 274."""
    assert KafkaConsumer.DEFAULT_CONFIG["allow_plaintext_credentials"] is False
    without = {name: value for name, value in PLAIN.items() if name != "allow_plaintext_credentials"}
    for options in (without, {**without, "allow_plaintext_credentials": False}):
        with pytest.raises(KafkaConfigurationError, match=r"or, where nobody can listen, allow_plaintext_credentials=True"):
            consumer(guarded, **options)
    assert not guarded.requests(), "nothing was sent"
    assert consumer(guarded, **without, allow_plaintext_credentials=True).topics() == {"t"}
    assert guarded.count("SaslAuthenticate") > 0
    with pytest.raises(KafkaConfigurationError, match="allow_plaintext_credentials='yes'"):
        consumer(guarded, **without, allow_plaintext_credentials="yes")


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl_plain_username": "alice"},
        {"sasl_mechanism": "PLAIN"},
        {**PLAIN, "sasl_mechanism": "NTLM"},
        {**PLAIN, "sasl_plain_password": None},
        {**PLAIN, "sasl_kerberos_service_name": "other"},
        {**PLAIN, "sasl_kerberos_domain_name": "other"},
    ],
    ids=str,
)
def test_sasl_options_that_could_have_no_effect_are_refused(consumer: Make, guarded: MockCluster, wrong: dict[str, Any]) -> None:
    """Behaviour 274: sasl_kerberos_service_name and sasl_kerberos_domain_name are of another mechanism."""
    assert KafkaConsumer.DEFAULT_CONFIG["sasl_kerberos_service_name"] == "kafka"
    with pytest.raises(KafkaConfigurationError) as caught:
        consumer(guarded, **wrong)
    assert "s3same" not in str(caught.value)
