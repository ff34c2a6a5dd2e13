"""No option is swallowed: for each one a test is named here that would fail if the option did nothing.

The table is checked both ways: an option that is not in it fails, and so does a line whose option or test is not there, or
whose test does not so much as mention the option.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gkafka.client import KafkaClient
from gkafka.config import ClientConfig, ConsumerConfig, NativeConsumerConfig, ProducerConfig
from gkafka.producer import Producer
from gkafka.simpleconsumer import SimpleConsumer

ROOT = Path(__file__).resolve().parent

CLIENTS, PRODUCING, CONSUMING = "public/test_clients.py", "public/test_producing.py", "public/test_consuming.py"
COMMITS, EFFECTS, FLUSHING = "public/test_positions_and_commits.py", "public/test_option_effects.py", "public/test_flushing.py"
RETRIES, DAMAGE, TLS, CHANNELS = "public/test_retries.py", "public/test_damage.py", "net/test_tls.py", "public/test_channels.py"
DOCUMENTED = "public/test_documented_producer.py"
NATIVE = "public/test_native_consumer.py"
SHARED, MEMBERS = "live/test_group_consumer.py", "public/test_group_consumer.py"
TRANSACTIONS, CUT = "public/test_transactions.py", "public/test_truncation.py"
PROMISED = "promises/test_documented_clients.py"
SASL, OIDC = "public/test_sasl.py", "net/test_oidc.py"

OBSERVED: dict[str, dict[str, tuple[str, str]]] = {
    "KafkaClient": {
        "hosts": (CLIENTS, "test_hosts_of_all_brokers_are_tried_until_one_answers"),
        "zookeeper_hosts": ("live/test_zookeeper_hosts.py", "test_behaviours_211_212_brokers_are_found_in_zookeeper_whatever_hosts_says"),
        "socket_timeout_ms": (EFFECTS, "test_socket_timeout_ms_is_how_long_an_answer_may_take"),
        "offsets_channel_socket_timeout_ms": (COMMITS, "test_offsets_channel_socket_timeout_ms_bounds_a_commit"),
        "use_greenlets": (PROMISED, "test_use_greenlets_chooses_greenlets"),
        "exclude_internal_topics": (CLIENTS, "test_internal_topics_are_shown_to_whoever_asks"),
        "source_address": (CLIENTS, "test_sockets_come_from_the_source_address"),
        "ssl_config": (PROMISED, "test_ssl_config_makes_tls_connections"),
        "broker_version": (RETRIES, "test_brokers_of_every_age_are_written_to_and_read_from"),
        "ignore_rdkafka": (PROMISED, "test_ignore_rdkafka_is_accepted_and_changes_nothing"),
        "handler": (CLIENTS, "test_two_clients_share_a_handler_and_the_end_of_one_is_not_the_end_of_the_other"),
    },
    "ClientConfig": {
        "client_id": (CHANNELS, "test_clients_name_themselves"),
        "socket_timeout_ms": (EFFECTS, "test_socket_timeout_ms_is_how_long_an_answer_may_take"),
        "offsets_channel_socket_timeout_ms": (EFFECTS, "test_offsets_channel_socket_timeout_ms_is_not_that_of_the_other_connections"),
        "connect_timeout_ms": (CLIENTS, "test_a_server_that_accepts_and_stays_silent_costs_the_connect_timeout_and_no_more"),
        "reconnect_backoff_ms": (EFFECTS, "test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms"),
        "reconnect_backoff_max_ms": (EFFECTS, "test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms"),
        "metadata_max_age_ms": (CLIENTS, "test_metadata_is_asked_anew_when_it_is_old"),
        "metadata_max_idle_ms": ("public/test_topics_that_go.py", "test_metadata_max_idle_ms_forgets_topics_that_nobody_writes_to"),
        "api_timeout_ms": (CLIENTS, "test_api_timeout_ms_bounds_calls_that_are_given_no_timeout"),
        "max_response_bytes": (DAMAGE, "test_a_record_over_max_response_bytes_is_told_and_can_be_passed"),
        "max_in_flight_per_connection": (
            "net/test_channel.py",
            "test_max_in_flight_per_connection_bounds_what_is_under_way_and_keeps_the_order",
        ),
        "keepalive": ("net/test_stream.py", "test_a_stream_has_nodelay_and_keepalive"),
        "keepalive_idle_s": ("net/test_stream.py", "test_a_stream_has_nodelay_and_keepalive"),
        "source_address": ("net/test_stream.py", "test_options_and_source_address_are_set_before_connecting"),
        "socket_options": ("net/test_stream.py", "test_socket_options_are_set_before_connecting"),
        "broker_version": ("net/test_channel.py", "test_a_told_old_version_is_spoken_at_once"),
        "max_broker_version": ("net/test_channel.py", "test_max_broker_version_bounds_what_is_spoken"),
        "security_protocol": (TLS, "test_a_users_context_is_used_unchanged"),
        "ssl_context": (TLS, "test_a_users_context_is_used_unchanged"),
        "ssl_cafile": (TLS, "test_a_renewed_file_is_taken_up_by_the_next_connection"),
        "ssl_certfile": (TLS, "test_a_client_certificate_with_a_pass_phrase_is_shown"),
        "ssl_keyfile": (TLS, "test_a_client_certificate_with_a_pass_phrase_is_shown"),
        "ssl_password": (TLS, "test_a_client_certificate_with_a_pass_phrase_is_shown"),
        "ssl_crlfile": (TLS, "test_ssl_crlfile_says_who_was_revoked"),
        "ssl_ciphers": (TLS, "test_ssl_ciphers_are_those_that_are_offered"),
        "ssl_check_hostname": (TLS, "test_without_the_host_names_check_the_name_is_still_asked_for_and_one_warning_says_so"),
        "tls_verify": (TLS, "test_without_verification_anything_goes_and_one_warning_says_so"),
        "allow_unverified_tls": ("public/test_bad_input.py", "test_of_checks_that_are_turned_off_with_one_word"),
        "proxy_url": ("net/test_proxy.py", "test_a_client_does_everything_through_its_proxy"),
        "sasl_mechanism": (SASL, "test_a_client_that_says_who_it_is_produces_and_consumes"),
        "sasl_username": (SASL, "test_sasl_username_and_sasl_password_have_the_names_that_other_clients_give_them"),
        "sasl_password": (SASL, "test_sasl_password_may_be_asked_for_by_each_connection"),
        "sasl_oauth_token_provider": (SASL, "test_each_renewal_has_a_token_of_its_own"),
        "sasl_oauth_extensions": (SASL, "test_sasl_oauth_extensions_and_those_of_a_provider_go_with_the_token"),
        "sasl_oauth_token_endpoint_url": (OIDC, "test_the_endpoint_is_asked_as_rfc_6749_says"),
        "sasl_oauth_client_id": (OIDC, "test_the_endpoint_is_asked_as_rfc_6749_says"),
        "sasl_oauth_client_secret": (OIDC, "test_the_endpoint_is_asked_as_rfc_6749_says"),
        "sasl_oauth_scope": (OIDC, "test_the_endpoint_is_asked_as_rfc_6749_says"),
        "sasl_oauth_audience": (OIDC, "test_an_audience_and_further_fields_are_in_the_form"),
        "sasl_oauth_form_fields": (OIDC, "test_an_audience_and_further_fields_are_in_the_form"),
        "sasl_oauth_client_auth": (OIDC, "test_the_clients_secret_is_in_the_form_where_the_endpoint_wants_it_there"),
        "sasl_oauth_cafile": (OIDC, "test_the_endpoint_is_asked_as_rfc_6749_says"),
        "sasl_oauth_proxy_url": (OIDC, "test_an_endpoint_that_only_a_proxy_reaches"),
        "sasl_oauth_allow_http": (OIDC, "test_http_to_another_machine_takes_a_second_word"),
        "sasl_retry_timeout_ms": ("public/test_refused_for_a_moment.py", "test_a_refusal_that_lasts_is_told_as_what_it_is"),
        "sasl_kerberos_service_name": (
            "net/test_credentials.py",
            "test_sasl_kerberos_service_name_and_the_host_make_the_brokers_principal",
        ),
        "sasl_kerberos_domain_name": ("net/test_credentials.py", "test_sasl_kerberos_service_name_and_the_host_make_the_brokers_principal"),
        "sasl_aws_region": ("net/test_credentials.py", "test_sasl_aws_region_is_what_the_signer_signs_for"),
        **dict.fromkeys(
            ("sasl_aws_profile", "sasl_aws_role_arn", "sasl_aws_role_session_name"),
            ("net/test_credentials.py", "test_sasl_aws_profile_and_sasl_aws_role_arn_are_handed_to_the_signer"),
        ),
        "allow_plaintext_credentials": (SASL, "test_options_that_make_no_sense_together_are_told_before_anything_connects"),
        "hub_stall_meter": ("handlers/test_stall_meter.py", "test_a_client_measures_its_hub_if_it_is_told_to"),
        "auto_create_topics": (CLIENTS, "test_asking_for_a_topic_creates_it_where_the_broker_and_the_option_allow_that"),
    },
    "ProducerConfig": {
        "acks": (PRODUCING, "test_records_arrive_with_every_kind_of_acknowledgement"),
        "enable_idempotence": (RETRIES, "test_idempotence_that_was_asked_for_is_refused_where_it_cannot_be"),
        "linger_ms": (EFFECTS, "test_linger_ms_is_how_long_a_lone_record_waits"),
        "batch_bytes": (EFFECTS, "test_batch_bytes_is_when_a_batch_is_sent_before_its_linger"),
        "buffer_bytes": (FLUSHING, "test_a_full_buffer_blocks_and_then_raises_and_what_was_accepted_is_kept"),
        "max_block_ms": (FLUSHING, "test_a_full_buffer_blocks_and_then_raises_and_what_was_accepted_is_kept"),
        "delivery_timeout_ms": (RETRIES, "test_delivery_timeout_ms_ends_the_retries"),
        "request_timeout_ms": (RETRIES, "test_a_request_that_gets_no_answer_is_sent_again_on_a_new_connection"),
        "ack_timeout_ms": (DOCUMENTED, "test_ack_timeout_ms_is_the_brokers_time_and_not_the_clients"),
        "retries": (RETRIES, "test_retries_are_bounded_by_the_option"),
        "retry_backoff_ms": (RETRIES, "test_retries_pause_as_the_options_say"),
        "retry_backoff_max_ms": (EFFECTS, "test_retry_backoff_max_ms_ends_the_doubling"),
        "max_request_bytes": (EFFECTS, "test_max_request_bytes_bounds_a_request"),
        "max_in_flight": (CHANNELS, "test_requests_on_a_connection_are_pipelined"),
        "compression": (PRODUCING, "test_every_codec"),
        "compression_level": (PRODUCING, "test_a_compression_level_is_obeyed"),
        "partitioner": (PRODUCING, "test_crc32_chooses_partitions_as_librdkafka_does"),
        "key_serializer": (PRODUCING, "test_serializers_are_applied_and_what_they_raise_is_told"),
        "value_serializer": (PRODUCING, "test_serializers_are_applied_and_what_they_raise_is_told"),
        "on_fork": ("public/test_forks_recreate.py", "test_pykafkas_producer_goes_on_too"),
        "exit_timeout_ms": ("public/test_exit.py", "test_exit_timeout_ms_of_zero_waits_for_nothing"),
        "interceptors": ("public/test_interceptors.py", "test_interceptors_are_called_in_their_order"),
        "transactional_id": (TRANSACTIONS, "test_transactional_id_names_the_producer_to_the_coordinator"),
        "transaction_timeout_ms": (TRANSACTIONS, "test_transaction_timeout_ms_is_how_long_a_transaction_may_be_open"),
        "on_delivery": (PRODUCING, "test_on_delivery_is_called_for_each_record"),
    },
    "ConsumerConfig": {
        "fetch_message_max_bytes": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "fetch_max_bytes": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "fetch_min_bytes": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "fetch_wait_max_ms": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "fetch_error_backoff_ms": (CONSUMING, "test_fetch_error_backoff_ms_is_the_pause"),
        "queued_max_bytes": (CUT, "test_queued_max_bytes_bounds_what_all_partitions_hold_together"),
        "consume_max_bytes": ("public/test_bounds.py", "test_a_call_hands_out_no_more_than_consume_max_bytes"),
        "client_rack": (CUT, "test_client_rack_has_a_follower_nearby_serve"),
        "queued_max_messages": (CONSUMING, "test_a_partition_with_queued_max_messages_is_not_fetched"),
        "num_consumer_fetchers": (CONSUMING, "test_more_fetchers_read_the_same"),
        "isolation_level": (CONSUMING, "test_records_of_aborted_transactions_are_hidden_unless_asked_for"),
        "check_crcs": (DAMAGE, "test_check_crcs_off_means_what_it_says"),
        "request_timeout_ms": (EFFECTS, "test_request_timeout_ms_of_a_consumer_is_how_long_a_fetch_may_take_beyond_its_wait"),
        "stall_warning_ms": ("public/test_explaining.py", "test_stall_warning_ms_tells_once_of_a_partition_that_has_stood_still"),
    },
    "NativeConsumerConfig": {
        "auto_offset_reset": (NATIVE, "test_auto_offset_reset_is_where_it_starts"),
        "auto_commit": (NATIVE, "test_a_group_goes_on_where_it_has_committed"),
        "auto_commit_interval_ms": (NATIVE, "test_auto_commit_commits_what_the_application_has_finished_and_no_more"),
        "consume_timeout_ms": (NATIVE, "test_consume_waits_consume_timeout_ms_or_what_the_call_says"),
        "key_deserializer": (NATIVE, "test_key_deserializer_and_value_deserializer_make_what_is_there"),
        "value_deserializer": (NATIVE, "test_key_deserializer_and_value_deserializer_make_what_is_there"),
        "on_deserialize_error": (NATIVE, "test_on_deserialize_error_skip_passes_it_with_a_warning"),
        "dead_letter": (NATIVE, "test_a_dead_letter_topic_has_the_record_before_it_is_passed"),
        "session_timeout_ms": (MEMBERS, "test_session_timeout_ms_is_how_long_a_silent_coordinator_is_trusted"),
        "heartbeat_interval_ms": (MEMBERS, "test_heartbeat_interval_ms_is_the_time_between_two_heartbeats"),
        "max_poll_interval_ms": (SHARED, "test_an_application_that_is_silent_leaves_until_it_asks_again_and_cannot_commit_meanwhile"),
        "assignors": (SHARED, "test_a_group_with_confluents_and_kafka_pythons_members"),
        "group_protocol": (SHARED, "test_group_protocol_consumer_has_the_coordinator_divide_as_group_remote_assignor_says"),
        "group_remote_assignor": (SHARED, "test_group_protocol_consumer_has_the_coordinator_divide_as_group_remote_assignor_says"),
        "group_instance_id": (SHARED, "test_a_static_member_comes_back_to_its_partitions_and_its_double_is_fenced"),
        "on_assigned": (SHARED, "test_listeners_may_seek_pause_commit_and_stop"),
        "on_revoked": (SHARED, "test_listeners_may_seek_pause_commit_and_stop"),
        "on_lost": (SHARED, "test_an_application_that_is_silent_leaves_until_it_asks_again_and_cannot_commit_meanwhile"),
    },
    "Producer": {
        "partitioner": (PRODUCING, "test_pykafkas_partitioners"),
        "compression": (PRODUCING, "test_pykafkas_keywords_reach_the_wire"),
        "max_retries": (DOCUMENTED, "test_max_retries_is_how_often_a_batch_is_tried"),
        "retry_backoff_ms": (PRODUCING, "test_retries_of_pykafkas_producer_are_bounded"),
        "required_acks": (PRODUCING, "test_pykafkas_keywords_reach_the_wire"),
        "ack_timeout_ms": (DOCUMENTED, "test_ack_timeout_ms_is_the_brokers_time_and_not_the_clients"),
        "max_queued_messages": (PRODUCING, "test_a_full_queue_blocks_or_raises"),
        "min_queued_messages": (PRODUCING, "test_min_queued_messages_end_the_linger"),
        "queue_empty_timeout_ms": (DOCUMENTED, "test_queue_empty_timeout_ms_is_how_long_an_idle_worker_rests"),
        "linger_ms": (PRODUCING, "test_min_queued_messages_end_the_linger"),
        "block_on_queue_full": (PRODUCING, "test_a_full_queue_blocks_or_raises"),
        "max_request_size": (PRODUCING, "test_pykafkas_keywords_reach_the_wire"),
        "sync": (PRODUCING, "test_a_sync_producer_returns_when_the_message_is_acknowledged"),
        "delivery_reports": (PRODUCING, "test_delivery_reports_come_for_each_message"),
        "pending_timeout_ms": (PRODUCING, "test_a_stopped_producer_gives_up_after_pending_timeout_ms"),
        "auto_start": (PRODUCING, "test_a_producer_that_is_not_started_takes_nothing"),
        "serializer": (PRODUCING, "test_pykafkas_keywords_reach_the_wire"),
    },
    "SimpleConsumer": {
        "consumer_group": (COMMITS, "test_group_and_topic_names_may_be_bytes"),
        "partitions": (CONSUMING, "test_only_the_partitions_asked_for"),
        "fetch_message_max_bytes": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "num_consumer_fetchers": (CONSUMING, "test_more_fetchers_read_the_same"),
        "auto_commit_enable": (COMMITS, "test_auto_commit_commits_what_was_consumed"),
        "auto_commit_interval_ms": (COMMITS, "test_auto_commit_waits_for_its_interval"),
        "queued_max_messages": (CONSUMING, "test_a_partition_with_queued_max_messages_is_not_fetched"),
        "fetch_min_bytes": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "fetch_error_backoff_ms": (CONSUMING, "test_fetch_error_backoff_ms_is_the_pause"),
        "fetch_wait_max_ms": (CONSUMING, "test_fetch_min_bytes_and_fetch_wait_max_ms_reach_the_broker"),
        "offsets_channel_backoff_ms": (COMMITS, "test_offsets_channel_backoff_ms_is_the_pause_between_tries"),
        "offsets_commit_max_retries": (COMMITS, "test_commits_give_up_after_offsets_commit_max_retries"),
        "auto_offset_reset": (COMMITS, "test_a_new_group_starts_at_the_policy"),
        "consumer_timeout_ms": (CONSUMING, "test_consume_gives_none_after_consumer_timeout_ms"),
        "auto_start": (CONSUMING, "test_a_consumer_that_is_not_started_asks_nothing"),
        "reset_offset_on_start": (COMMITS, "test_reset_offset_on_start_outweighs_the_commit_and_is_committed"),
        "compacted_topic": (COMMITS, "test_compacted_topics_are_read_and_committed_like_others"),
        "generation_id": (COMMITS, "test_a_members_generation_and_id_go_with_its_commits"),
        "consumer_id": (COMMITS, "test_a_members_generation_and_id_go_with_its_commits"),
        "deserializer": (CONSUMING, "test_a_deserializer_makes_values_and_keys"),
        "reset_offset_on_fetch": (COMMITS, "test_fetch_offsets_goes_on_from_what_is_committed"),
    },
}

MADE_FROM = {"cluster", "topic"}
"""Parameters that are no options: what a producer or consumer is made from."""


def options() -> dict[str, set[str]]:
    """Every option there is: the fields of the dataclasses and the documented keywords."""
    found = {cls.__name__: {f.name for f in dataclasses.fields(cls)} for cls in (ClientConfig, ProducerConfig, ConsumerConfig)}
    found["NativeConsumerConfig"] = {f.name for f in dataclasses.fields(NativeConsumerConfig)} - found["ConsumerConfig"]
    for cls in (KafkaClient, Producer, SimpleConsumer):
        parameters = inspect.signature(cls.__init__).parameters.values()
        named = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
        found[cls.__name__] = named - {"self"} - MADE_FROM
    return found


@cache
def sources_of(path: str) -> dict[str, str]:
    """Test name -> its source, decorators included; fixtures and helpers of the file are not."""
    source = (ROOT / path).read_text()
    lines = source.splitlines()
    return {
        node.name: "\n".join(lines[min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


SHOWN_OTHERWISE = {
    ("KafkaClient", "hosts"),  # given as the first argument
    ("Producer", "sync"),  # get_sync_producer()
    ("SimpleConsumer", "consumer_group"),
    ("SimpleConsumer", "partitions"),
}
"""Options whose test need not spell the name."""


def test_every_option_is_observed_and_every_line_is_about_an_option() -> None:
    for name, there in options().items():
        listed = set(OBSERVED[name])
        assert there - listed == set(), f"{name}: no test observes these; write one that fails if the option does nothing, and name it here"
        assert listed - there == set(), f"{name}: these options are not there"
    assert set(OBSERVED) == set(options())


@pytest.mark.parametrize("config", [ClientConfig, ProducerConfig, ConsumerConfig, NativeConsumerConfig])
def test_options_are_written_once_compared_by_value_and_changed_by_making_others(config: type[Any]) -> None:
    """What the dataclasses have of `Options`: one function for all of them, not one written and compiled for each."""
    assert not {"__init__", "__repr__", "__eq__", "__hash__"} & set(vars(config))
    first = dataclasses.fields(config)[0].name
    one, other = config(), config(**{first: "another"})
    assert (one == config(), hash(one) == hash(config()), one == other, one == 5) == (True, True, False, False)
    assert dataclasses.replace(one, **{first: "another"}) == copy.copy(other) == pickle.loads(pickle.dumps(other)) == other
    assert f"{config.__name__}({first}='another', " in repr(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, first, "another")
    with pytest.raises(TypeError, match=r"has no option 'linger'"):
        config(linger=5)


def test_what_is_secret_is_in_no_repr_of_options() -> None:
    assert "pass" not in repr(ClientConfig(sasl_password="pass", sasl_username="u")).replace("password", "").replace("passphrase", "")


@pytest.mark.parametrize(("owner", "option"), [(owner, option) for owner, table in OBSERVED.items() for option in table])
def test_the_test_that_observes_an_option_is_there_and_speaks_of_it(owner: str, option: str) -> None:
    path, name = OBSERVED[owner][option]
    tests = sources_of(path)
    assert name in tests, f"{path} has no {name}"
    if (owner, option) not in SHOWN_OTHERWISE:
        assert option in tests[name], f"{path}: {name} does not mention {option}"
