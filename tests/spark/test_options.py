"""The options of format("gkafka"): every option, valid and not, and what the refusals say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gkafka.common import IsolationLevel
from gkafka.exceptions import ConfigurationError
from gkafka.spark import hints
from gkafka.spark.kafkaproperties import PROPERTIES
from gkafka.spark.offsets import AtTimestamp, AtTimestamps, Earliest, Latest, Specific
from gkafka.spark.options import (
    OPTIONS,
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    options_table,
    parse,
    parse_either,
    parse_stream,
)
from gkafka.spark.producerproperties import PROPERTIES as PRODUCER_PROPERTIES
from gkafka.spark.sinkoptions import SINK_OPTIONS, parse_sink
from tests.public.test_secrets import told_by

PEM = "-----BEGIN X----- k3y -----END X-----"
LEAST = {"kafka.bootstrap.servers": "h1:9092,h2", "subscribe": "t"}
TEXTS = {
    **LEAST,
    "kafka.security.protocol": "SSL",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.certificates": PEM,
    "kafka.ssl.keystore.type": "PEM",
    "kafka.ssl.keystore.certificate.chain": PEM,
    "kafka.ssl.keystore.key": PEM,
    "kafka.ssl.key.password": "hush",
}
ROOT = Path(__file__).resolve().parents[2]


def options(**more: str | None) -> SourceOptions:
    """The least options that are enough, with more; a name's "__" stands for a dot, and None leaves an option out."""
    given = {**LEAST, **{name.replace("__", "."): value for name, value in more.items()}}
    return parse({name: value for name, value in given.items() if value is not None})


def refusal(**more: str | None) -> str:
    with pytest.raises(ConfigurationError) as refused:
        options(**more)
    return str(refused.value)


# -- what is there by default ------------------------------------------------------------------------------------------
def test_the_defaults_are_the_jvm_connectors() -> None:
    found = options()
    assert found.kafka.hosts == "h1:9092,h2"
    assert found.topics == Subscribe(("t",))
    assert (found.start, found.end) == (Earliest(), Latest())
    assert found.fail_on_data_loss
    assert (found.min_partitions, found.max_records_per_partition, found.include_headers) == (None, None, False)
    assert (found.poll_timeout_ms, found.offset_tries, found.offset_retry_ms) == (120000, 3, 1000)
    assert found.kafka.isolation is IsolationLevel.READ_UNCOMMITTED
    assert found.kafka.check_crcs
    assert found.kafka.client == {}
    assert found.warnings == ()


def test_names_are_taken_in_any_case_as_spark_lowers_them() -> None:
    for spell in (str, str.lower, str.upper):
        found = parse({**LEAST, spell("includeHeaders"): "TRUE", spell("startingOffsets"): "EARLIEST", spell("minPartitions"): "7"})
        assert (found.include_headers, found.start, found.min_partitions) == (True, Earliest(), 7)


# -- which partitions --------------------------------------------------------------------------------------------------
def test_the_three_ways_to_name_partitions() -> None:
    assert options(subscribe=" a, b ,,a").topics == Subscribe(("a", "b"))
    assert options(subscribe=None, subscribePattern=" ev.* ").topics == SubscribePattern("ev.*")
    assert options(subscribe=None, assign='{"a":[1,0,1]}').topics == Assign((("a", 1), ("a", 0)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"subscribe": None},
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign. See the docs for more details.",
        ),
        (
            {"assign": '{"t":[0]}'},
            "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign. See the docs for more details.",
        ),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        (
            {"subscribe": None, "subscribePattern": " "},
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ' '",
        ),
        ({"kafka__bootstrap__servers": None}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"),
        ({"kafka__enable__auto__commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka__interceptor__classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(3).",
        ),
    ],
)
def test_refusals_have_the_jvm_connectors_words(more: dict[str, str | None], words: str) -> None:
    assert refusal(**more) == words


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ({"subscribe": None, "assign": "x"}, "No topicpartitions to assign as specified value for option 'assign' is 'x'"),
        ({"kafka__auto__offset__reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported."),
        ({"kafka__key__deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays"),
        (
            {"kafka__value__deserializer": "x"},
            "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays",
        ),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"subscribe": None, "subscribePattern": "a("}, "subscribePattern='a(': not a regular expression"),
        ({"startingOffsets": "nonsense"}, "startingOffsets='nonsense': must be 'earliest', 'latest' or JSON; Expected e.g. "),
        ({"endingOffsets": "{}}"}, "endingOffsets='{}}': must be 'earliest', 'latest' or JSON; Expected e.g. "),
    ],
)
def test_refusals_begin_with_the_jvm_connectors_words(more: dict[str, str | None], start: str) -> None:
    assert refusal(**more).startswith(start)


# -- where it begins and ends ------------------------------------------------------------------------------------------
ALL_STARTS = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":6}}', "startingOffsets": '{"t":{"0":7}}'}


def test_the_order_in_which_starts_count() -> None:
    assert options(**ALL_STARTS).start == AtTimestamp(5, False)
    assert options(**{**ALL_STARTS, "startingTimestamp": None}).start == AtTimestamps({("t", 0): 6}, False)
    assert options(startingOffsets=ALL_STARTS["startingOffsets"]).start == Specific({("t", 0): 7})


def test_the_order_in_which_ends_count() -> None:
    ends = {name.replace("starting", "ending"): value for name, value in ALL_STARTS.items()}
    assert options(**ends).end == AtTimestamp(5, False)
    assert options(**{**ends, "endingTimestamp": None}).end == AtTimestamps({("t", 0): 6}, False)
    assert options(endingOffsets=ends["endingOffsets"]).end == Specific({("t", 0): 7})


def test_the_strategy_for_timestamps_that_nothing_matches() -> None:
    assert options(startingTimestamp="5", startingOffsetsByTimestampStrategy="LATEST").start == AtTimestamp(5, True)
    assert refusal(startingOffsetsByTimestampStrategy="x") == "startingOffsetsByTimestampStrategy='x': must be 'error' or 'latest'"


# -- single values -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("includeHeaders", "true", "include_headers", True),
        ("minPartitions", "12", "min_partitions", 12),
        ("maxRecordsPerPartition", "100", "max_records_per_partition", 100),
        ("kafkaConsumer.pollTimeoutMs", "512", "poll_timeout_ms", 512),
        ("fetchOffset.numRetries", "1", "offset_tries", 1),
        ("fetchOffset.retryIntervalMs", "0", "offset_retry_ms", 0),
        ("batchRows", "1", "batch_rows", 1),
        ("batchBytes", "1000", "batch_bytes", 1000),
    ],
)
def test_an_option_is_taken(name: str, text: str, attribute: str, value: Any) -> None:
    assert getattr(parse({**LEAST, name: text}), attribute) == value


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"])
@pytest.mark.parametrize("text", ["x", "", "1.5", "-1", "99999999999999999999"])
def test_a_number_that_is_none_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        parse({**LEAST, name: text})


def test_a_pause_that_no_process_can_sleep_is_refused() -> None:
    assert options(fetchOffset__retryIntervalMs=str((1 << 31) - 1)).offset_retry_ms == (1 << 31) - 1
    assert (
        refusal(fetchOffset__retryIntervalMs="10000000000000") == "fetchOffset.retryIntervalMs='10000000000000': must be 2147483647 or less"
    )


@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders", "kafka.check.crcs", "kafka.keepalive"])
def test_a_truth_that_is_none_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}='yes': must be 'true' or 'false'"):
        parse({**LEAST, name: "yes"})


# -- unknown names -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "did you mean 'startingOffsets'?"),
        ("includeheader", "did you mean 'includeHeaders'?"),
        ("subscribepatern", "did you mean 'subscribePattern'?"),
        ("bootstrap.servers", "did you mean 'kafka.bootstrap.servers'?"),
        ("group.id", "did you mean 'kafka.group.id'?"),
        ("isolation.level", "did you mean 'kafka.isolation.level'?"),
        ("sasl.password", "did you mean 'kafka.sasl.password'?"),
        ("sasl.jaas.config", "did you mean 'kafka.sasl.jaas.config'?"),
        ("security.protocol", "did you mean 'kafka.security.protocol'?"),
        ("path", "load() and save() take no path: name the topic by .option('subscribe', ...)"),
        ("maxOffsetPerTrigger", "did you mean 'maxOffsetsPerTrigger'?"),
        ("wibble", "kafka-tools docs spark lists them"),
        ("kafka.isolation.levle", "did you mean 'kafka.isolation.level'?"),
        ("kafka.wibble", "kafka-tools docs spark lists what is known"),
        ("kafka.startingOffsets", "did you mean 'startingOffsets'?"),
        ("kafka.fetch.offset.num.retries", "did you mean 'fetchOffset.numRetries'?"),
        ("isolationLevel", "did you mean 'kafka.isolation.level'?"),
        ("pollTimeoutMs", "did you mean 'kafkaConsumer.pollTimeoutMs'?"),
        ("fail_on_data_loss", "did you mean 'failOnDataLoss'?"),
        ("groupId", "did you mean 'kafka.group.id'?"),
        ("servers", "did you mean 'kafka.bootstrap.servers'?"),
        ("topic", "'topic' is an option of writes, and this reads: name the topic by .option('subscribe', ...)"),
        ("topics", "'topic' is an option of writes, and this reads: name the topic by .option('subscribe', ...)"),
        ("kafka.topic", "'topic' is an option of writes, and this reads: name the topic by .option('subscribe', ...)"),
        ("checkpointLocation", "'checkpointLocation' is an option of writes, and this reads: leave it out"),
        ("exactlyOnce", "'exactlyOnce' is an option of writes, and this reads: leave it out"),
        ("compression", "kafka.compression.type has no effect: it is a property of producers, and this reads; leave it out"),
        ("acks", "kafka.acks has no effect: it is a property of producers, and this reads; leave it out"),
        ("enable.auto.commit", "; Kafka option 'enable.auto.commit' is not supported"),
        ("ssl.cipher.suites", "did you mean 'kafka.ssl.cipher.suites'?"),
        ("ssl.ca.location", "did you mean 'kafka.ssl.ca.location'?"),
        ("kafka.enable.ssl.certificate.verificaton", "did you mean 'kafka.enable.ssl.certificate.verification'?"),
    ],
)
def test_an_unknown_name_is_refused_with_a_near_miss(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown .*{name.lower()}|{name.lower()}.* unknown|{name.lower()}: unknown") as refused:
        parse({**LEAST, name.lower(): "x"})
    assert str(refused.value).endswith(hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscribe", "'subscribe' is an option of reads, and this writes: name the topic by .option('topic', ...)"),
        ("startingOffsets", "'startingOffsets' is an option of reads, and this writes: leave it out"),
        ("kafka.failOnDataLoss", "'failOnDataLoss' is an option of reads, and this writes: leave it out"),
        ("topics", "did you mean 'topic'?"),
        ("kafka.topic", "did you mean 'topic'?"),
        ("exactly_once", "did you mean 'exactlyOnce'?"),
        ("compression", "did you mean 'kafka.compression.type'?"),
        ("compression.codec", "did you mean 'kafka.compression.codec'?"),
        ("lingerMs", "did you mean 'kafka.linger.ms'?"),
        ("pollTimeoutMs", "'kafkaConsumer.pollTimeoutMs' is an option of reads, and this writes: leave it out"),
        ("transactional.id", "and transactionalIdPrefix to choose how the ids begin"),
        ("group.id", "kafka.group.id has no effect: it is a property of consumers, and this writes; leave it out"),
        ("kafka.mesage.max.bytes", "did you mean 'kafka.message.max.bytes'?"),
    ],
)
def test_an_unknown_name_of_a_write_is_refused_with_a_near_miss(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown .*{name.lower()}|{name.lower()}: unknown") as refused:
        parse_sink({"kafka.bootstrap.servers": "h:1", name.lower(): "x"})
    assert str(refused.value).endswith(hint)


def test_what_hints_call_options_are_options() -> None:
    written = {*SINK_OPTIONS, "checkpointLocation"}
    assert set(hints.OF_WRITES) == written - {option.name for option in OPTIONS.values()}
    known = {f"kafka.{name}" for name in {**PROPERTIES, **PRODUCER_PROPERTIES}} | {option.name for option in OPTIONS.values()}
    assert set(hints.OTHER_WORDS.values()) <= known


LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2secret";'


@pytest.mark.parametrize(
    "more",
    [
        {"kafka.security.protocol": LOGIN},
        {"startingOffsets": LOGIN},
        {"startingTimestamp": LOGIN},
        {"kafka.acks": LOGIN},
        {"kafka.client.id": LOGIN, "failOnDataLoss": LOGIN},
        {LOGIN: "x"},
        {f"kafka.sasl.jaas.config={LOGIN}": "x"},
        {"kafka.sasl.password=hunter2secret": "x"},
    ],
    ids=lambda more: next(iter(more))[:24],
)
@pytest.mark.parametrize("read", [parse, parse_stream, parse_sink])
def test_a_login_line_in_the_wrong_place_is_not_shown(read: Any, more: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read({"kafka.bootstrap.servers": "h:1", **more, **({} if read is parse_sink else {"subscribe": "t", "minPartitions": "none"})})
    assert "hunter2" not in told_by(refused.value).lower()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol='SASL_SSL' without kafka.sasl.mechanism: give one of PLAIN"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.sasl.mechanism='PLAIN' without kafka.sasl.username: give both kafka.sasl.username and kafka.sasl.password",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"},
            "kafka.sasl.mechanism='OAUTHBEARER' without a source of tokens: give kafka.sasl.oauthbearer.token.endpoint.url with "
            "kafka.sasl.oauthbearer.client.credentials.client.id and kafka.sasl.oauthbearer.client.credentials.client.secret",
        ),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": "u",
                "kafka.sasl.password": "p",
            },
            "kafka.sasl.mechanism='PLAIN' with kafka.security.protocol='SASL_PLAINTEXT' would send the credentials in clear text: use "
            "'SASL_SSL', or, where nobody can listen, kafka.allow.plaintext.credentials=True",
        ),
    ],
)
def test_what_sasl_lacks_is_told_by_properties(more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse({**LEAST, **more})
    assert str(refused.value).startswith(words)


# -- what a batch read does not use ------------------------------------------------------------------------------------
def test_streaming_options_are_ignored_with_the_jvm_connectors_warning() -> None:
    found = options(maxOffsetsPerTrigger="5", maxTriggerDelay="15m")
    assert found.warnings == ("maxOffsetsPerTrigger option ignored in batch queries", "maxTriggerDelay option ignored in batch queries")


def test_groups_are_accepted_with_a_warning() -> None:
    assert "without a consumer group" in options(groupIdPrefix="mine").warnings[0]
    prefix, group = options(groupIdPrefix="mine", kafka__group__id="g").warnings
    assert prefix == "Option groupIdPrefix will be ignored as option kafka.group.id has been set"
    assert group.startswith("kafka.group.id='g' is accepted and used for nothing")


def test_properties_that_do_nothing_here_are_named() -> None:
    assert options(kafka__max__poll__records="500").warnings == (
        "kafka.max.poll.records has no effect: gkafka reads without a consumer group",
    )


# -- kafka.* -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("client.id", "me", "client_id", "me"),
        ("request.timeout.ms", "5000", "socket_timeout_ms", 5000),
        ("default.api.timeout.ms", "1000", "api_timeout_ms", 1000),
        ("socket.connection.setup.timeout.ms", "2000", "connect_timeout_ms", 2000),
        ("metadata.max.age.ms", "1000", "metadata_max_age_ms", 1000),
        ("reconnect.backoff.ms", "9", "reconnect_backoff_ms", 9),
        ("security.protocol", "ssl", "security_protocol", "SSL"),
        ("broker.version", "0.8.2", "broker_version", "0.8.2"),
        ("max_response_bytes", "1048576", "max_response_bytes", 1048576),
    ],
)
def test_a_property_becomes_a_client_option(name: str, text: str, option: str, value: Any) -> None:
    assert dict(parse({**LEAST, f"kafka.{name}": text}).kafka.client) == {option: value}


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("ssl.key.password", "secret", "ssl_password", "secret"),
        ("ssl.cafile", "/ca.pem", "ssl_cafile", "/ca.pem"),
        ("ssl.crlfile", "/revoked.pem", "ssl_crlfile", "/revoked.pem"),
    ],
)
def test_a_property_of_tls_needs_tls(name: str, text: str, option: str, value: Any) -> None:
    with_tls = parse({**LEAST, "kafka.security.protocol": "SSL", f"kafka.{name}": text})
    assert dict(with_tls.kafka.client) == {option: value, "security_protocol": "SSL"}
    for protocol in ({}, {"kafka.security.protocol": "PLAINTEXT"}):
        with pytest.raises(ConfigurationError) as caught:
            parse({**LEAST, **protocol, f"kafka.{name}": text})
        assert f"kafka.{name} " in str(caught.value)
        assert "set kafka.security.protocol=SSL" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("name", "option"), [("tls.verify", "tls_verify"), ("ssl.check.hostname", "ssl_check_hostname")])
def test_checks_of_tls_are_turned_off_with_two_words(name: str, option: str) -> None:
    given = {**LEAST, "kafka.security.protocol": "SSL", f"kafka.{name}": "false"}
    with pytest.raises(ConfigurationError, match=rf"^kafka\.{name}=false gives up .*kafka\.allow\.unverified\.tls=true"):
        parse(given)
    found = parse({**given, "kafka.allow.unverified.tls": "true"})
    assert dict(found.kafka.client) == {option: False, "allow_unverified_tls": True, "security_protocol": "SSL"}


def test_pem_stores_become_files() -> None:
    found = options(
        kafka__security__protocol="SSL",
        kafka__ssl__truststore__location="/ca.pem",
        kafka__ssl__truststore__type="pem",
        kafka__ssl__keystore__location="/me.pem",
        kafka__ssl__keystore__type="PEM",
    )
    assert dict(found.kafka.client) == {"security_protocol": "SSL", "ssl_cafile": "/ca.pem", "ssl_certfile": "/me.pem"}


def test_pem_stores_may_be_text() -> None:
    """KIP-651: in the options of the job, and so in no file of any node."""
    found = parse(TEXTS).kafka.client
    assert dict(found) == {"security_protocol": "SSL", "ssl_cafile": PEM, "ssl_certfile": PEM, "ssl_keyfile": PEM, "ssl_password": "hush"}
    assert "k3y" not in repr(dict(found))
    assert dict(
        parse_sink({"topic": "t", **{name: text for name, text in TEXTS.items() if name != "subscribe"}}).kafka.client.client
    ) == dict(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kafka.ssl.keystore.type": "JKS"}, "kafka.ssl.keystore.certificate.chain: text is PEM alone"),
        ({"kafka.ssl.truststore.type": None}, "kafka.ssl.truststore.certificates: text is PEM alone"),
        ({"kafka.ssl.truststore.location": "/ca.pem"}, "given twice"),
        ({"kafka.ssl.keystore.key": None}, "without kafka.ssl.keystore.key"),
        ({"kafka.ssl.keystore.certificate.chain": None}, "without kafka.ssl.keystore.certificate.chain"),
        ({"kafka.ssl.keystore.certificate.chain": None, "kafka.ssl.keystore.location": "/me.pem"}, "beside kafka.ssl.keystore.location"),
        ({"kafka.ssl.keystore.key": "/me.key"}, "kafka.ssl.keystore.key: must be PEM text"),
        ({"kafka.ssl.keystore.key": "k3y" * 50}, "kafka.ssl.keystore.key: must be PEM text"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "without TLS"),
        ({"kafka.ssl.keystore.password": "hush"}, "give the pass phrase of the key in kafka.ssl.key.password"),
    ],
    ids=str,
)
def test_pem_text_that_makes_no_store_is_refused_and_not_shown(change: dict[str, str | None], words: str) -> None:
    given = {name: text for name, text in {**TEXTS, **change}.items() if text is not None}
    with pytest.raises(ConfigurationError) as refused:
        parse(given)
    told = told_by(refused.value)
    assert words in told
    assert "k3y" not in told
    assert "hush" not in told


@pytest.mark.parametrize("read", [parse, parse_stream, parse_either, parse_sink])
@pytest.mark.parametrize(
    "wrong",
    [
        {"no_such_option": "1"},
        {"kafka.no.such": "1"},
        {"kafka.sasl.jaas.config": "Foo required password=hush;"},
        {"kafka.sasl.jaas.config": "hush"},
    ],
)
def test_no_traceback_shows_the_secrets_of_a_job(read: Any, wrong: dict[str, str]) -> None:
    who = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.password": "hush",
        "kafka.proxy.url": "http://u:hush@h:1",
    }
    jaas = {"kafka.sasl.jaas.config": 'PlainLoginModule required username="a" password="hush";'}
    with pytest.raises(ConfigurationError) as refused:
        read({**LEAST, **who, **jaas, **wrong})
    assert "hush" not in told_by(refused.value)


def test_the_properties_of_fetches() -> None:
    found = options(kafka__isolation__level="READ_committed", kafka__check__crcs="false", kafka__fetch__max__wait__ms="7").kafka
    assert (found.isolation, found.check_crcs, found.fetch_wait_ms) == (IsolationLevel.READ_COMMITTED, False, 7)
    assert options(kafka__max__partition__fetch__bytes="5000").kafka.fetch_bytes == 5000
    assert options(kafka__max__partition__fetch__bytes="5000", kafka__fetch__max__bytes="300").kafka.fetch_bytes == 300
    assert options(kafka__connections__max__idle__ms="0").kafka.idle_ms == 0


def test_who_brings_a_key_store_of_javas_with_its_password_is_told_what_replaces_both() -> None:
    for store in ("truststore", "keystore"):
        with pytest.raises(ConfigurationError, match=f"keytool.*set kafka.ssl.{store}.type=PEM") as refused:
            options(**{f"kafka__ssl__{store}__password": "secret", f"kafka__ssl__{store}__location": "/store.jks"})
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("security.protocol", "TLS", "must be one of 'PLAINTEXT', 'SSL'"),
        ("isolation.level", "committed", "must be 'read_uncommitted' or 'read_committed'"),
        ("ssl.truststore.location", "/store.jks", "set kafka.ssl.truststore.type=PEM"),
        ("ssl.keystore.location", "/store.jks", "set kafka.ssl.keystore.type=PEM"),
        ("ssl.truststore.password", "x", "has no password; leave it out"),
        ("ssl.keystore.key", PEM, "set kafka.ssl.keystore.type=PEM"),
        ("ssl.truststore.certificates", PEM, "set kafka.ssl.truststore.type=PEM"),
        ("ssl.endpoint.identification.algorithm", "", "the broker's name is checked"),
        ("request.timeout.ms", "soon", "must be a whole number"),
        ("request.timeout.ms", "0", "must be 1 or more"),
        ("fetch.max.bytes", "0", "must be 1 or more"),
        ("connections.max.idle.ms", "-1", "must be 0 or more"),
        ("ssl.context", "x", "unknown property"),
        ("auto.create.topics", "true", "unknown property"),
    ],
)
def test_a_property_that_cannot_be_had_is_refused_with_what_to_do(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^kafka.{name}") as refused:
        parse({**LEAST, f"kafka.{name}": text})
    assert words in str(refused.value)


CONSUMER = """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.servers check.crcs client.dns.lookup client.id
    client.rack config.providers connections.max.idle.ms default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    interceptor.classes isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers
    send.buffer.bytes session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type value.deserializer sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope share.acquire.mode
"""
"""The names of Java's ConsumerConfig, Kafka 4.2."""
PRODUCER = """
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
    enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
"""
"""Those of ProducerConfig that are not among them."""


@pytest.mark.parametrize("parsed", [parse, parse_sink])
def test_every_property_of_java_is_taken_warned_of_or_refused_with_what_to_do(parsed: Any) -> None:
    """One set of options may serve a read and a write, and one that Java takes is no slip of the pen."""
    for name in [*CONSUMER.split(), *PRODUCER.split()]:
        said = ""
        try:
            parsed({"kafka.bootstrap.servers": "h:1", **({"subscribe": "t"} if parsed is parse else {}), f"kafka.{name}": "x"})
        except ConfigurationError as error:
            said = str(error)
        assert "unknown property" not in said, name
        assert "did you mean" not in said, name


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("ssl.ca.location", "/ca.pem", "ssl_cafile", "/ca.pem"),
        ("enable.ssl.certificate.verification", "true", "tls_verify", True),
        ("socket.keepalive.enable", "true", "keepalive", True),
        ("topic.metadata.refresh.interval.ms", "60000", "metadata_max_age_ms", 60000),
        ("ssl.cipher.suites", "ECDHE+AESGCM", "ssl_ciphers", "ECDHE+AESGCM"),
    ],
)
def test_a_property_of_librdkafka_is_an_option_of_ours(name: str, text: str, option: str, value: Any) -> None:
    found = options(**{"kafka__security__protocol": "SSL", f"kafka.{name}": text}).kafka.client
    assert found[option] == value


@pytest.mark.parametrize(
    "name", ["schema.registry.url", "basic.auth.credentials.source", "value.subject.name.strategy", "statistics.interval.ms"]
)
def test_what_means_nothing_here_is_warned_of(name: str) -> None:
    (warning,) = options(**{f"kafka.{name}": "5"}).warnings
    assert warning.startswith(f"kafka.{name} has no effect: ")


def test_the_scheme_of_an_address_must_not_contradict_the_protocol() -> None:
    assert options(**{"kafka.bootstrap.servers": "PLAINTEXT://h:1"}).kafka.hosts == "PLAINTEXT://h:1"
    said = refusal(**{"kafka.bootstrap.servers": "SASL_SSL://h:1"})
    assert (
        "kafka.bootstrap.servers: 'SASL_SSL://h:1' with kafka.security.protocol='PLAINTEXT': set kafka.security.protocol='SASL_SSL'" in said
    )
    assert "separate addresses by commas, as 'h:1,k:1'" in refusal(**{"kafka.bootstrap.servers": "h:1 k:1"})


def test_what_writes_alone_is_named_in_a_read() -> None:
    assert options(kafka__acks="all").warnings == ("kafka.acks has no effect: it is a property of producers, and this reads",)


@pytest.mark.parametrize("text", ["TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.3, TLSv1.2, TLSv1.1"])
def test_a_list_of_versions_of_tls_that_has_what_is_offered_passes(text: str) -> None:
    assert options(kafka__security__protocol="SSL", kafka__ssl__enabled__protocols=text).warnings == ()
    assert "gkafka offers TLS 1.2 and 1.3" in refusal(kafka__security__protocol="SSL", kafka__ssl__enabled__protocols="TLSv1.3")


def test_one_option_in_two_spellings_is_refused() -> None:
    assert "given twice" in refusal(kafka__client__id="a", kafka__client_id="b")


def test_the_options_never_show_a_pass_phrase() -> None:
    assert "hunter2" not in repr(options(kafka__security__protocol="SSL", kafka__ssl__key__password="hunter2"))


# -- the module --------------------------------------------------------------------------------------------------------
def test_the_documentation_has_every_option() -> None:
    assert options_table() in (ROOT / "docs" / "spark.md").read_text()
    assert len(OPTIONS) == options_table().count("\n") - 1


def test_the_pure_modules_import_no_pyspark() -> None:
    code = """
import sys
from gkafka.spark import admission, kafkaproperties, offsets, options, planner, values
heavy = {'pyspark', 'pyarrow', 'numpy', 'gkafka.client'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_packages_is_lazy() -> None:
    code = """
import sys
import gkafka.spark, pyspark_gkafka
heavy = {'pyspark', 'pyarrow', 'numpy', 'gevent', 'asyncio', 'ssl', 'gkafka.client', 'gkafka.cluster', 'gkafka.spark.options'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert pyspark_gkafka.DefaultSource is gkafka.spark.GKafkaDataSource
assert not hasattr(pyspark_gkafka, 'Other') and not hasattr(gkafka.spark, 'Other')
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- streams -----------------------------------------------------------------------------------------------------------
def stream(**more: str) -> SourceOptions:
    return parse_stream({**LEAST, **more})


def test_a_stream_begins_at_the_latest_offsets_unless_told() -> None:
    assert stream().start == Latest()
    assert stream(startingOffsets="earliest").start == Earliest()
    assert stream(startingOffsets='{"t":{"0":-1}}').start == Specific({("t", 0): -1})
    assert stream(startingOffsets="earliest", startingOffsetsByTimestamp='{"t":{"0":6}}').start == AtTimestamps({("t", 0): 6}, False)
    assert stream(**ALL_STARTS).start == AtTimestamp(5, False)


def test_the_defaults_of_a_stream_are_the_jvm_connectors() -> None:
    found = stream().stream
    assert (found.max_offsets, found.min_offsets, found.max_delay_ms) == (None, None, 15 * 60 * 1000)
    assert (found.commit_group, found.commit_interval_ms, found.offset_cache_ms) == (None, 5000, 100)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("endingOffsets", "ending offset not valid in streaming queries: leave endingOffsets out"),
        ("endingOffsetsByTimestamp", "ending timestamp not valid in streaming queries: leave endingOffsetsByTimestamp out"),
        ("endingTimestamp", "ending timestamp not valid in streaming queries: leave endingTimestamp out"),
    ],
)
def test_a_stream_has_no_end(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        stream(**{name: "latest"})


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("maxOffsetsPerTrigger", "10", "max_offsets", 10),
        ("minOffsetsPerTrigger", "10", "min_offsets", 10),
        ("maxTriggerDelay", "90s", "max_delay_ms", 90_000),
        ("maxTriggerDelay", " 2 H ", "max_delay_ms", 7_200_000),
        ("maxTriggerDelay", "5min", "max_delay_ms", 300_000),
        ("maxTriggerDelay", "250", "max_delay_ms", 250),
        ("maxTriggerDelay", "1d", "max_delay_ms", 86_400_000),
        ("commitGroup", " g ", "commit_group", "g"),
        ("commitIntervalMs", "0", "commit_interval_ms", 0),
        ("offsetCacheMs", "0", "offset_cache_ms", 0),
    ],
)
def test_an_option_of_a_stream_is_taken(name: str, text: str, attribute: str, value: Any) -> None:
    assert getattr(stream(**{name: text}).stream, attribute) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger must be positive: 0 was given"),
        ("maxOffsetsPerTrigger", "many", "maxOffsetsPerTrigger='many': must be a whole number"),
        ("minOffsetsPerTrigger", "-1", "minOffsetsPerTrigger must be positive"),
        ("maxTriggerDelay", "soon", "maxTriggerDelay='soon': must be a time such as 15m"),
        ("maxTriggerDelay", "5 years", "maxTriggerDelay='5 years': must be a time such as 15m"),
        ("maxTriggerDelay", "-5m", "maxTriggerDelay='-5m': must be a time such as 15m"),
        ("maxTriggerDelay", "999999999999999999d", "must be less than 2\\*\\*63 ms"),
        ("commitGroup", " ", "commitGroup=' ': must not be empty"),
        ("commitIntervalMs", "-1", "commitIntervalMs='-1': must be 0 or more"),
        ("offsetCacheMs", "x", "offsetCacheMs='x': must be a whole number"),
    ],
)
def test_an_option_of_a_stream_is_refused_by_name(name: str, text: str, words: str) -> None:
    for parsed in (parse_stream, parse, parse_either):
        with pytest.raises(ConfigurationError, match=words):
            parsed({**LEAST, name: text})


def test_what_either_kind_of_read_takes_passes_where_it_is_not_known_which_it_is() -> None:
    for given in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"startingOffsets": '{"t":{"0":-1}}'}):
        assert parse_either({**LEAST, **given})
    for given in ({"startingOffsets": "nonsense"}, {"endingOffsets": "[]"}, {"subscribe": ""}):
        with pytest.raises(ConfigurationError):
            parse_either({**LEAST, **given})


def test_a_group_that_is_given_for_access_alone_points_to_the_one_for_progress() -> None:
    assert "commitGroup names a group" in stream(**{"kafka.group.id": "g"}).warnings[0]
    assert stream(commitGroup="g").warnings == ()


def test_what_stands_before_an_at_sign_among_the_hosts_is_in_no_error() -> None:
    told = refusal(kafka__bootstrap__servers="u:HUNTER2@h:9092")
    assert told.startswith("kafka.bootstrap.servers: hosts: '...@h:9092' is not host:port")
    assert "HUNTER2" not in told


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ssl_truststore_location", "/k.jks", "reads PEM, not Java key stores"),
        ("sasl_login_callback_handler_class", "com.example.Mine", "gkafka loads no Java class"),
        ("sasl_jaas_config", "x.PlainLoginModule required password=x1y2", "must end with a semicolon"),
        ("enable_auto_commit", "true", "Kafka option 'enable.auto.commit' is not supported"),
    ],
)
def test_a_property_with_underscores_is_checked_as_that_with_dots(name: str, value: str, says: str) -> None:
    told = refusal(**{f"kafka.{name}": value})
    assert says in told
    assert "x1y2" not in told
