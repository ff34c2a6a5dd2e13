"""What the reference promises in prose, by number: a claim in our words, and the tests that show it or why there is none yet.

A line is `number | claim | how`. how is test ids, `file.py::function` below tests/, or `waived: NAME: reason`, where NAME is what is not
built yet: tests/promises/test_promises.py fails as soon as it can be imported. `waived: -: reason` is for good. A group of numbers that
wait for the same thing stands below one `[waived: ...]` line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["NOT_LIVE", "PROMISES", "REAL", "Promise"]


class Promise(NamedTuple):
    """tests: "file.py::function" below tests/. missing: a module or a class that is not built yet, "-" for none. reason: of a waiver."""

    claim: str
    tests: tuple[str, ...]
    missing: str
    reason: str


CLIENTS = "promises/test_documented_clients.py::"
CONSUMERS = "promises/test_documented_consumers.py::"
PRODUCERS = "promises/test_documented_producers.py::"
CALLS = "promises/test_broker_calls.py::"
DOCUMENTED = "public/test_documented_producer.py::"
SIMPLE = "live/test_simple_consumer.py::"
MANAGED = "live/test_managed_consumer.py::"
BALANCED = "live/test_balanced_consumer.py::"
PROTOCOLS = "public/test_membership_protocols.py::"
CONNECTIONS = "promises/test_documented_connections.py::"
REQUESTS = "protocol/test_requests.py::"
RESPONSES = "protocol/test_responses.py::"
MESSAGES = "protocol/test_messages.py::"
LEGACY_SIMPLE = "kafka/test_legacy_simple.py::"
LEGACY_CONSUMER = "kafka/test_legacy_consumer.py::"
LEGACY_PROCESSES = "kafka/test_legacy_processes.py::"
LEGACY_LIVE = "live/test_kafka_legacy.py::"
LEGACY_PRODUCER = "kafka/test_legacy_producer.py::"
UTILS = "protocol/test_utils.py::"
READING = "kafka/test_consumer.py::"
READOPTIONS = "kafka/test_consumer_options.py::"
READGROUPS = "kafka/test_consumer_groups.py::"
READPLACES = "kafka/test_consumer_positions.py::"
READLIVE = "live/test_kafka_consumer.py::"
SENDING = "kafka/test_producer.py::"
SENDLIVE = "live/test_kafka_producer.py::"
OPTIONLIVE = "live/test_kafka_options.py::"
THREELIVE = "live/test_kafka_three_nodes.py::"
TOOLS = "cli/test_app.py::"

SHORT = {
    "CLIENTS ": CLIENTS,
    "CONSUMERS ": CONSUMERS,
    "PRODUCERS ": PRODUCERS,
    "CALLS ": CALLS,
    "DOCUMENTED ": DOCUMENTED,
    "SIMPLE ": SIMPLE,
    "MANAGED ": MANAGED,
    "BALANCED ": BALANCED,
    "PROTOCOLS ": PROTOCOLS,
    "CONNECTIONS ": CONNECTIONS,
    "REQUESTS ": REQUESTS,
    "RESPONSES ": RESPONSES,
    "MESSAGES ": MESSAGES,
    "LEGACY_SIMPLE ": LEGACY_SIMPLE,
    "LEGACY_CONSUMER ": LEGACY_CONSUMER,
    "LEGACY_PROCESSES ": LEGACY_PROCESSES,
    "LEGACY_LIVE ": LEGACY_LIVE,
    "LEGACY_PRODUCER ": LEGACY_PRODUCER,
    "UTILS ": UTILS,
    "READING ": READING,
    "READOPTIONS ": READOPTIONS,
    "READGROUPS ": READGROUPS,
    "READPLACES ": READPLACES,
    "READLIVE ": READLIVE,
    "SENDING ": SENDING,
    "SENDLIVE ": SENDLIVE,
    "OPTIONLIVE ": OPTIONLIVE,
    "THREELIVE ": THREELIVE,
    "TOOLS ": TOOLS,
}

TABLE = """
1 | a client of a running broker works with no further call | CLIENTS test_four_messages_come_back_in_order, live/test_client.py::test_topics_are_a_dict_of_what_the_cluster_has
2 | client.topics is a dictionary of the cluster's topics | CLIENTS test_four_messages_come_back_in_order, live/test_client.py::test_topics_are_a_dict_of_what_the_cluster_has
3 | repr of a topic: module and class, id, name | CLIENTS test_a_topic_shows_its_class_its_id_and_its_name
4 | leaving a producer's block sends what is pending and stops it | CLIENTS test_leaving_a_producers_block_sends_what_is_pending_and_stops, live/test_client.py::test_leaving_the_producers_block_sends_what_is_pending
5 | four messages come back by iteration as offsets 0 to 3 | CLIENTS test_four_messages_come_back_in_order, SIMPLE test_iteration_yields_messages_in_order_and_ends_when_nothing_comes
6 | two SimpleConsumers each receive every message | CLIENTS test_two_consumers_each_receive_everything, SIMPLE test_two_consumers_of_one_group_each_receive_every_message
9 | kafka-tools --help prints the interface | TOOLS test_behaviour_9_help_prints_the_full_interface, TOOLS test_behaviour_9_a_command_is_installed
10 | the command shows offsets, lag and topics | live/test_kafka_tools.py::test_behaviour_10_offsets_lag_and_topics_by_pykafkas_names, cli/test_commands.py::test_behaviour_10_offsets_lag_and_topics_are_looked_at_by_pykafkas_names
11 | no compiled extension is needed | CLIENTS test_it_runs_without_any_compiled_part
12 | auto_offset_reset and reset_offset_on_start set the start | CONSUMERS test_where_a_group_starts, SIMPLE test_a_new_group_starts_at_auto_offset_reset_whatever_reset_offset_on_start_says, SIMPLE test_reset_offset_on_start_outweighs_the_commit
13 | without a commit the start is auto_offset_reset | SIMPLE test_a_new_group_starts_at_auto_offset_reset_whatever_reset_offset_on_start_says, CONSUMERS test_where_a_group_starts
14 | with a commit the start is right after it | SIMPLE test_a_group_with_a_commit_goes_on_right_after_it, CONSUMERS test_where_a_group_starts
15 | reset_offset_on_start outweighs the commit | SIMPLE test_reset_offset_on_start_outweighs_the_commit, CONSUMERS test_where_a_group_starts
16 | each partition starts by its own commit | SIMPLE test_each_partition_of_a_group_starts_by_its_own_commit
17 | a new group with LATEST starts at the end | CONSUMERS test_where_a_group_starts, SIMPLE test_a_new_group_starts_at_auto_offset_reset_whatever_reset_offset_on_start_says
18 | after consume and commit_offsets a second consumer goes on there | CONSUMERS test_where_a_group_starts, SIMPLE test_a_group_with_a_commit_goes_on_right_after_it
19 | EARLIEST with reset_offset_on_start starts at the beginning in spite of commits | CONSUMERS test_where_a_group_starts, SIMPLE test_reset_offset_on_start_outweighs_the_commit
20 | group and topic names are text or bytes | CONSUMERS test_names_are_text_or_bytes, SIMPLE test_names_are_taken_as_bytes_and_as_text
21 | a SimpleConsumer owns all partitions of its topic | CONSUMERS test_partitions_take_turns, SIMPLE test_it_reads_every_partition_whole_and_in_order
22 | no partition keeps the others waiting | CONSUMERS test_partitions_take_turns, SIMPLE test_no_partition_is_starved_by_another
23 | its offsets go through the commit and fetch API | SIMPLE test_a_commit_is_the_next_offset_to_read_as_other_clients_understand_it
28 | use_rdkafka asks for the compiled implementation | CLIENTS test_use_rdkafka_asks_for_the_compiled_part
29 | without it that is an ImportError and everything else works | CLIENTS test_use_rdkafka_asks_for_the_compiled_part, CLIENTS test_it_runs_without_any_compiled_part
31 | works with Kafka 0.8.2 and newer | live/test_roundtrip.py::test_another_client_reads_what_gkafka_wrote_and_so_does_gkafka
32 | one source tree serves every version | live/test_roundtrip.py::test_gkafka_reads_what_another_client_wrote
34 | auto commit needs a group and commits what was consumed | CONSUMERS test_auto_commit_needs_a_group, CONSUMERS test_auto_commit_commits_what_was_consumed, SIMPLE test_messages_that_were_fetched_but_not_consumed_are_not_committed
35 | without auto commit its interval means nothing | CONSUMERS test_without_auto_commit_the_interval_means_nothing
36 | fetch_message_max_bytes is asked of each partition | CONSUMERS test_a_fetch_asks_for_what_the_settings_say
37 | num_consumer_fetchers is the number of fetch workers | CONSUMERS test_there_are_as_many_fetch_workers_as_it_says
38 | queued_max_messages bounds what is buffered | SIMPLE test_the_queue_is_bounded_and_nothing_is_lost_by_it, core/test_fetcher.py::test_a_partition_whose_queue_is_full_is_left_out_and_the_fetch_beside_it_does_not_park
39 | fetch_min_bytes is what the broker waits for | CONSUMERS test_a_fetch_asks_for_what_the_settings_say
40 | fetch_wait_max_ms is how long it waits | CONSUMERS test_a_fetch_asks_for_what_the_settings_say
41 | offsets_channel_backoff_ms is the pause before offset requests are tried again | CONSUMERS test_a_commit_is_tried_as_often_as_it_is_told_with_a_pause
42 | offsets_commit_max_retries bounds the tries of a commit | CONSUMERS test_a_commit_is_tried_as_often_as_it_is_told_with_a_pause
43 | an offset out of range is reset by auto_offset_reset | SIMPLE test_a_position_out_of_range_is_reset_by_auto_offset_reset
44 | consume gives None after consumer_timeout_ms | CONSUMERS test_consume_ends_at_its_timeout_and_does_not_wait_without_block, SIMPLE test_consume_gives_none_after_consumer_timeout_ms
49 | a reset at the start is committed at once | CONSUMERS test_a_reset_at_the_start_is_committed_at_once
50 | iteration ends when the consumer times out | CONSUMERS test_consume_ends_at_its_timeout_and_does_not_wait_without_block, SIMPLE test_iteration_yields_messages_in_order_and_ends_when_nothing_comes
52 | consume(block=False) returns at once | CONSUMERS test_consume_ends_at_its_timeout_and_does_not_wait_without_block, SIMPLE test_consume_without_blocking_gives_none_at_once
53 | held_offsets maps partition ids to held offsets | CONSUMERS test_what_a_consumer_says_of_itself, SIMPLE test_held_offsets_are_those_of_the_messages_consumed_last
54 | reset_offsets takes pairs of a partition and an offset | CONSUMERS test_offsets_are_reset_by_time_or_to_a_number, SIMPLE test_reset_offsets_moves_the_position
64 | what a worker met is raised in the caller | CONSUMERS test_what_a_worker_met_is_raised_where_messages_are_consumed
65 | Broker.connect opens the broker's connection | CLIENTS test_a_brokers_two_connections_are_opened_apart, CONNECTIONS test_behaviours_65_66_68_a_brokers_handlers_send_on_its_two_connections
66 | connect_offsets_channel opens another one | CLIENTS test_a_brokers_two_connections_are_opened_apart
67 | connected tells whether it is active | CLIENTS test_a_brokers_two_connections_are_opened_apart, CLIENTS test_a_connection_that_the_broker_closed_is_not_connected
68 | group offsets go over the offsets channel, the rest does not | CALLS test_committed_offsets_are_fetched_on_the_offsets_channel, CLIENTS test_a_brokers_two_connections_are_opened_apart
69 | fetch_messages waits up to timeout for min_bytes | CALLS test_a_fetch_waits_for_min_bytes_as_long_as_it_is_told
70 | group offsets are committed and fetched by a broker's calls | CALLS test_committed_offsets_are_fetched_on_the_offsets_channel, live/test_broker_calls.py::test_offsets_of_a_group_by_single_requests
71 | produce, metadata and offset requests return the parsed answer | CALLS test_messages_that_are_produced_are_fetched, CALLS test_the_limits_of_a_log_are_told, CALLS test_metadata_is_asked_for_some_topics_or_all, live/test_broker_calls.py::test_records_and_offsets_by_single_requests
72 | a Broker is made from metadata, with a default buffer of 64 KiB | CLIENTS test_a_broker_is_made_from_metadata
73 | a Broker has a source address, and a timeout for each channel | CLIENTS test_a_broker_connects_from_its_source_address, CLIENTS test_each_channel_has_a_timeout_of_its_own
74 | answers larger than buffer_size are received whole | CALLS test_answers_of_any_size_are_received_whole_whatever_the_buffer
75 | a broker's id, host and port are read-only | CLIENTS test_where_a_broker_is_cannot_be_changed
76 | hosts is a comma-separated list; ZooKeeper has a parameter of its own | public/test_clients.py::test_hosts_as_users_write_them
77 | ignore_rdkafka is accepted | CLIENTS test_ignore_rdkafka_is_accepted_and_changes_nothing
78 | internal topics are hidden unless asked for | live/test_client.py::test_internal_topics_are_hidden_unless_asked_for, public/test_clients.py::test_internal_topics_are_shown_to_whoever_asks
79 | source_address is where sockets come from | public/test_clients.py::test_sockets_come_from_the_source_address, live/test_client.py::test_source_address_is_where_connections_come_from
80 | update_cluster refreshes what is known and adds what is new | CLIENTS test_an_update_brings_what_is_new, public/test_clients.py::test_update_cluster_learns_of_new_topics_partitions_and_leaders, live/test_client.py::test_a_topic_that_was_made_later_is_found_by_an_update, live/test_offsets.py::test_partitions_that_are_added_are_seen_after_an_update
81 | a Cluster has dictionaries of brokers and topics, and a handler | CLIENTS test_a_cluster_has_brokers_topics_and_a_handler, live/test_client.py::test_brokers_come_from_the_metadata
82 | get_offset_manager finds the group's broker | CLIENTS test_the_offset_manager_is_the_groups_coordinator, live/test_client.py::test_the_offset_manager_of_a_group_is_a_broker
83 | hosts are asked in turn until one answers | public/test_clients.py::test_hosts_of_all_brokers_are_tried_until_one_answers, live/test_client.py::test_one_living_host_of_several_is_enough
84 | OffsetType and CompressionType have Kafka's numbers | CLIENTS test_the_constants_have_kafkas_numbers
85 | a message has its documented names | records/test_read_messages.py::test_a_message_has_the_documented_names
89 | KafkaException is the base of all, ProtocolClientError of those with a code | CLIENTS test_an_error_code_is_raised_under_its_documented_name, CLIENTS test_errors_without_a_code_are_kafka_exceptions_too
90 | code 15 is ConsumerCoordinatorNotAvailable | CLIENTS test_an_error_code_is_raised_under_its_documented_name
91 | a stopped consumer raises ConsumerStoppedException | CONSUMERS test_a_stopped_consumer_says_so_and_can_be_started_again
92 | NoPartitionsForConsumerException is a ConsumerStoppedException | CLIENTS test_errors_without_a_code_are_kafka_exceptions_too
93 | codes 2 and 4 are InvalidMessageError and InvalidMessageSize | CLIENTS test_an_error_code_is_raised_under_its_documented_name
94 | code 5 is LeaderNotAvailable | CLIENTS test_an_error_code_is_raised_under_its_documented_name
95 | code 6 is NotLeaderForPartition | CLIENTS test_an_error_code_is_raised_under_its_documented_name
96 | code 10 is MessageSizeTooLarge | PRODUCERS test_a_sync_producer_returns_when_the_message_is_there, live/test_wrong_things.py::test_a_record_over_the_brokers_limit_fails_alone
97 | a message set without one whole message raises NoMessagesConsumedError | MESSAGES test_behaviours_97_171_a_set_that_was_cut_loses_its_tail_and_says_so_when_nothing_is_left, CLIENTS test_errors_without_a_code_are_kafka_exceptions_too
98 | code 16 is NotCoordinatorForConsumer | CLIENTS test_an_error_code_is_raised_under_its_documented_name
99 | code 12 is OffsetMetadataTooLarge | CLIENTS test_a_commit_with_too_much_metadata_is_an_answer_with_code_12, OPTIONLIVE test_default_offset_commit_callback_is_told_of_commits
100 | code 1 is OffsetOutOfRangeError | CLIENTS test_an_error_code_is_raised_under_its_documented_name, core/test_fetcher.py::test_without_a_policy_an_offset_out_of_range_is_an_error_that_halts, OPTIONLIVE test_auto_offset_reset_of_any_other_value_raises
101 | a look-up that keeps failing raises OffsetRequestFailedError | CONSUMERS test_a_look_up_that_keeps_failing_is_an_offset_request_failed
102 | code 14 is OffsetsLoadInProgress | CLIENTS test_an_error_code_is_raised_under_its_documented_name, core/test_offsets.py::test_errors_of_a_coordinator_that_moves_are_retried
103 | PartitionOwnedError keeps its partition | CLIENTS test_errors_without_a_code_are_kafka_exceptions_too
104 | ProduceFailureError is one of ours | CLIENTS test_errors_without_a_code_are_kafka_exceptions_too
105 | a full queue raises ProducerQueueFullError | PRODUCERS test_a_full_queue_is_an_error_or_a_wait
106 | a stopped producer raises ProducerStoppedException | CLIENTS test_leaving_a_producers_block_sends_what_is_pending_and_stops
107 | code 7 is RequestTimedOut | CLIENTS test_an_error_code_is_raised_under_its_documented_name
108 | a lost socket raises SocketDisconnectedError | net/test_channel.py::test_a_broker_that_goes_away_fails_what_is_in_flight
109 | codes -1 and 3 are UnknownError and UnknownTopicOrPartition | CLIENTS test_an_error_code_is_raised_under_its_documented_name, public/test_clients.py::test_an_unknown_topic_is_told_by_name, live/test_wrong_things.py::test_an_unknown_topic_is_named_by_the_error_of_a_producer
112 | spawn makes a worker; the base class does not | handlers/test_contract.py::test_a_worker_gets_its_arguments_and_its_name, handlers/test_contract.py::test_spawn_of_the_base_class_is_not_implemented
113 | a ThreadingHandler works on threads | CLIENTS test_a_threading_handler_works_on_threads
114 | a handler's events and locks | handlers/test_contract.py::test_an_event_wakes_everyone_who_waits, handlers/test_contract.py::test_a_lock_excludes
115 | a handler's queues, bounded and not | handlers/test_contract.py::test_a_full_queue_raises_full_and_an_empty_one_empty, handlers/test_contract.py::test_a_queue_without_a_size_is_unbounded
116 | join waits until each item is done | handlers/test_contract.py::test_join_waits_until_every_item_is_done
117 | QueueEmptyError is the queue module's Empty | CLIENTS test_a_threading_handler_works_on_threads
121 | a Partition has id, leader, replicas, isr and topic | PRODUCERS test_what_a_partition_says_of_itself, live/test_offsets.py::test_a_partition_knows_its_leader_and_replicas
122 | a partition's earliest and latest offset | PRODUCERS test_the_ends_of_partitions, live/test_offsets.py::test_earliest_and_latest_offsets_of_each_partition
123 | offsets of a partition by time (brokers since 0.10.1 tell the first at or after it, not those before) | PRODUCERS test_offsets_by_time, live/test_offsets.py::test_a_timestamp_gives_the_first_record_that_is_not_older
124 | Partition.update takes fresh metadata | PRODUCERS test_a_partition_takes_fresh_metadata
125 | random_partitioner takes any partition, and is the default | PRODUCERS test_the_random_partitioner_takes_any, CLIENTS test_messages_without_a_key_are_spread_evenly, DOCUMENTED test_a_partition_without_a_leader_gets_nothing_at_random
126 | BasePartitioner is a callable to derive from | PRODUCERS test_a_partitioner_is_a_callable_of_ones_own
127 | HashingPartitioner: same key and partitions, same partition | PRODUCERS test_the_hashing_partitioner_is_stable_for_a_key_and_its_partitions
128 | HashingPartitioner promises nothing once partitions change | waived: -: a statement that nothing is promised
129 | the default hash may differ between runs | PRODUCERS test_the_hashing_partitioner_is_stable_for_a_key_and_its_partitions
130 | brokers do not wait for each other (here by a connection for each and one worker, not by a worker for each) | core/test_sender.py::test_one_request_holds_at_most_one_batch_of_a_partition_and_all_partitions_of_the_broker, live/test_failover.py::test_partitions_of_the_other_brokers_do_not_wait_for_a_frozen_one
131 | workers come from the cluster's handler | PRODUCERS test_a_producer_is_a_context_that_is_started_already
132 | a producer is a context that is started already | PRODUCERS test_a_producer_is_a_context_that_is_started_already, live/test_client.py::test_leaving_the_producers_block_sends_what_is_pending
133 | compression compresses what is sent | PRODUCERS test_messages_are_compressed, live/test_roundtrip.py::test_another_client_reads_what_gkafka_wrote_and_so_does_gkafka
134 | max_retries and retry_backoff_ms | PRODUCERS test_a_batch_is_tried_again_as_often_as_it_is_told, DOCUMENTED test_max_retries_is_how_often_a_batch_is_tried
135 | required_acks -1, 0 and 1; no broker since 0.9 takes 2 | PRODUCERS test_acknowledgements_and_their_timeout_are_asked_of_the_broker, PRODUCERS test_a_number_of_acknowledgements_that_no_broker_takes_is_refused, live/test_roundtrip.py::test_every_kind_of_acknowledgement_delivers
136 | ack_timeout_ms is sent to the broker | PRODUCERS test_acknowledgements_and_their_timeout_are_asked_of_the_broker, DOCUMENTED test_ack_timeout_ms_is_the_brokers_time_and_not_the_clients
137 | max_queued_messages bounds what waits | PRODUCERS test_a_full_queue_is_an_error_or_a_wait, DOCUMENTED test_never_more_than_max_queued_messages_wait_whoever_produces
138 | min_queued_messages are sent whatever the linger | PRODUCERS test_enough_messages_do_not_linger, DOCUMENTED test_min_queued_messages_counts_what_is_not_sent_yet
139 | linger_ms is the longest wait for more messages | PRODUCERS test_few_messages_linger_as_long_as_they_may, PRODUCERS test_the_default_linger_is_five_seconds
140 | a full queue makes produce wait or raise | PRODUCERS test_a_full_queue_is_an_error_or_a_wait
141 | sync=True returns when the message was sent | PRODUCERS test_a_sync_producer_returns_when_the_message_is_there, DOCUMENTED test_a_sync_message_without_an_outcome_in_pending_timeout_ms_is_told, live/test_client.py::test_a_sync_producer_returns_when_the_message_is_there
142 | None is a null payload | PRODUCERS test_none_is_a_null_payload, live/test_roundtrip.py::test_another_client_reads_what_gkafka_wrote_and_so_does_gkafka
143 | the partitioner gets the partition key | PRODUCERS test_a_partitioner_is_a_callable_of_ones_own
144 | what a producer's worker met is raised in the caller | PRODUCERS test_what_could_not_be_delivered_is_raised_to_the_caller, DOCUMENTED test_what_ended_the_worker_is_raised_by_the_producer, DOCUMENTED test_what_a_report_tells_is_not_raised_once_more_at_the_end
145 | messages that were queued when a leader moved are sent to the new one | PRODUCERS test_messages_that_were_queued_when_the_leader_moved_are_not_lost, core/test_sender.py::test_whatever_gets_lost_every_batch_arrives_once_and_in_order, live/test_failover.py::test_nothing_acknowledged_is_lost_doubled_or_reordered_when_the_leader_is_killed
146 | queues of a broker that is gone lose nothing | PRODUCERS test_messages_that_were_queued_when_the_leader_moved_are_not_lost, PRODUCERS test_a_connection_that_breaks_loses_nothing, DOCUMENTED test_owned_brokers_tell_what_waits_for_each_broker, live/test_failover.py::test_nothing_acknowledged_is_lost_doubled_or_reordered_when_the_leader_is_killed
147 | _wait_all waits for every message | PRODUCERS test_waiting_for_all_waits_for_all
167 | a fetched message knows its partition | CONSUMERS test_what_a_consumer_says_of_itself, SIMPLE test_a_fetched_message_knows_its_partition
172 | a group does not make a SimpleConsumer balance | SIMPLE test_two_consumers_of_one_group_each_receive_every_message
173 | partitions= restricts what is consumed | CONSUMERS test_some_partitions_only, SIMPLE test_it_reads_only_the_partitions_it_was_given
174 | queued_max_messages bounds what is buffered | SIMPLE test_the_queue_is_bounded_and_nothing_is_lost_by_it
175 | consumer_timeout_ms ends consume and iteration | CONSUMERS test_consume_ends_at_its_timeout_and_does_not_wait_without_block, SIMPLE test_consume_gives_none_after_consumer_timeout_ms, SIMPLE test_iteration_yields_messages_in_order_and_ends_when_nothing_comes
176 | auto_start=False asks nothing of Kafka | CONSUMERS test_without_auto_start_nothing_is_asked, SIMPLE test_without_auto_start_nothing_is_read_until_start
177 | start fetches offsets and begins to work | CONSUMERS test_without_auto_start_nothing_is_asked, CONSUMERS test_auto_commit_commits_what_was_consumed, SIMPLE test_without_auto_start_nothing_is_read_until_start
178 | stop ends the workers, and so does deletion | CONSUMERS test_a_stopped_consumer_says_so_and_can_be_started_again, CONSUMERS test_a_consumer_that_is_deleted_stops_fetching
179 | one fetch request for each broker | core/test_fetcher.py::test_each_leader_is_asked_once_for_all_its_partitions
180 | fetch_offsets returns pairs of partition id and answer | CONSUMERS test_committed_offsets_are_fetched_by_partition
181 | commit_offsets commits this consumer's partitions | CONSUMERS test_names_are_text_or_bytes, SIMPLE test_a_commit_is_the_next_offset_to_read_as_other_clients_understand_it
182 | held_offsets, partitions and topic | CONSUMERS test_what_a_consumer_says_of_itself, SIMPLE test_held_offsets_are_those_of_the_messages_consumed_last
183 | reset_offsets takes a time or an offset | CONSUMERS test_offsets_are_reset_by_time_or_to_a_number, SIMPLE test_reset_offsets_moves_the_position
184 | what is no time is the next offset itself | CONSUMERS test_offsets_are_reset_by_time_or_to_a_number, SIMPLE test_reset_offsets_moves_the_position
185 | _auto_commit commits once the interval has passed | CONSUMERS test_auto_commit_waits_for_its_interval
186 | without a group no offset manager is looked for | CONSUMERS test_a_consumer_without_a_group_looks_for_no_coordinator
187 | a consumer follows a leader that moved | CONSUMERS test_a_consumer_follows_a_leader_that_moved, live/test_failover.py::test_a_consumer_goes_on_after_its_leader_was_killed
188 | offsets of a topic's partitions by time | PRODUCERS test_offsets_by_time, live/test_offsets.py::test_earliest_and_latest_offsets_of_each_partition
189 | earliest and latest offsets of each partition | PRODUCERS test_the_ends_of_partitions, live/test_offsets.py::test_earliest_and_latest_offsets_of_each_partition
190 | get_producer and get_sync_producer pass their keywords | PRODUCERS test_keywords_go_through_to_producers_and_consumers
192 | a topic's partitions, name and update | PRODUCERS test_what_a_partition_says_of_itself, CLIENTS test_an_update_brings_what_is_new, PRODUCERS test_keywords_go_through_to_producers_and_consumers, live/test_offsets.py::test_a_partition_knows_its_leader_and_replicas
202 | the only connection_id of a client shares the broker's own request handler | waived: -: differs on purpose: a join waits on the broker, and metadata would wait behind it; each connection_id has a connection of its own (203)
203 | group requests of one connection_id do not hold up another's | CALLS test_a_join_that_waits_holds_up_no_other_connection_id, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
204 | join_group joins, with an empty id for a new member | CALLS test_a_new_member_takes_the_id_that_it_is_given, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
205 | sync_group hands in the leader's assignments | CALLS test_a_leader_hands_in_assignments_and_a_follower_none, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
206 | a follower hands in none | CALLS test_a_leader_hands_in_assignments_and_a_follower_none, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
207 | heartbeat is for a generation | CALLS test_a_member_beats_and_leaves, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
208 | leave_group leaves | CALLS test_a_member_beats_and_leaves, live/test_broker_calls.py::test_two_members_of_a_group_by_single_requests
209 | topics are held weakly | CLIENTS test_topics_are_held_weakly
210 | producers and consumers need no reference to the topic | CLIENTS test_producers_and_consumers_need_no_reference_to_their_topic
213 | a SimpleConsumer needs no ZooKeeper | SIMPLE test_it_reads_every_partition_whole_and_in_order
216 | a Producer needs no ZooKeeper and spreads messages evenly | CLIENTS test_messages_without_a_key_are_spread_evenly
217 | use_greenlets=True works on greenlets | CLIENTS test_use_greenlets_chooses_greenlets
218 | ssl_config makes TLS connections | CLIENTS test_ssl_config_makes_tls_connections, live/test_sasl.py::test_pykafkas_ssl_config_goes_with_sasl
219 | broker_version is what brokers are taken for that cannot be asked | core/test_connection.py::test_a_version_below_0_10_is_taken_at_its_word, live/test_roundtrip.py::test_a_broker_without_apiversions_is_found_out_without_being_told
220 | exclude_internal_topics, source_address and the timeouts as in the older page | public/test_clients.py::test_sockets_come_from_the_source_address, CLIENTS test_each_channel_has_a_timeout_of_its_own, live/test_client.py::test_internal_topics_are_hidden_unless_asked_for, live/test_client.py::test_source_address_is_where_connections_come_from

7 | get_balanced_consumer takes several ZooKeeper nodes and a chroot | BALANCED test_behaviour_7_a_chroot_that_is_missing_is_made
8 | as many members as partitions balance by themselves | BALANCED test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves
24 | the first member owns all partitions | BALANCED test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves
25 | a second member takes half of them | BALANCED test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves
26 | one member more than partitions is idle | BALANCED test_contradiction_2_a_member_more_than_partitions_is_idle
27 | partitions of a member that left are taken over | BALANCED test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves
30 | balancing is the same with the compiled implementation | BALANCED test_what_is_committed_is_where_the_next_member_begins
33 | it holds one SimpleConsumer and gives it its partitions | BALANCED test_b27_a_partition_that_stays_goes_on_where_it_stood_though_nothing_is_committed
45 | rebalance_max_retries and rebalance_backoff_ms | BALANCED test_a_member_of_pykafkas_gets_its_share_and_gives_it_back
46 | zookeeper_connection_timeout_ms bounds the connecting | BALANCED test_a_zookeeper_that_is_away_is_told_in_its_time
47 | a KazooClient that is given is used | BALANCED test_behaviour_47_a_kazoo_client_that_is_given_stays_open
48 | auto_start=False asks nothing of ZooKeeper | BALANCED test_auto_start_false_asks_nothing_of_zookeeper
51 | commit_offsets commits its partitions | BALANCED test_what_is_committed_is_where_the_next_member_begins
55 | start joins, stop leaves | BALANCED test_the_znodes_are_pykafkas
56 | it registers itself, and members beyond the partitions are idle | BALANCED test_contradiction_2_a_member_more_than_partitions_is_idle
57 | a change in ZooKeeper triggers a rebalance | BALANCED test_behaviour_33_57_members_divide_a_topic_and_take_over_from_who_leaves
58 | a watch that fires rebalances | BALANCED test_a_member_of_pykafkas_gets_its_share_and_gives_it_back
59 | each member computes the same split | PROTOCOLS test_behaviour_59_a_range_is_a_run_of_neighbours_in_the_order_of_leaders, PROTOCOLS test_all_partitions_have_one_owner_and_nobody_has_two_more_than_another
60 | participants are sorted | BALANCED test_b27_a_partition_that_stays_goes_on_where_it_stood_though_nothing_is_committed
61 | held partitions are compared with ZooKeeper regularly | BALANCED test_b54_a_partition_that_was_taken_away_is_not_consumed_further
62 | the old inner consumer is stopped before a new one is made | BALANCED test_b27_a_partition_that_stays_goes_on_where_it_stood_though_nothing_is_committed
63 | a watch does not keep the consumer alive | BALANCED test_a_consumer_that_is_dropped_gives_its_partitions_back
191 | get_balanced_consumer passes its keywords | BALANCED test_auto_start_false_asks_nothing_of_zookeeper, PROTOCOLS test_bad_keywords_are_refused_before_zookeeper_hears_of_them
214 | it keeps in ZooKeeper who owns what | BALANCED test_the_znodes_are_pykafkas

215 | it balances by the broker's group coordinator | MANAGED test_behaviour_215_members_divide_a_topic_and_take_over_from_who_leaves

211 | brokers are found by hosts or by ZooKeeper | live/test_zookeeper_hosts.py::test_behaviours_211_212_brokers_are_found_in_zookeeper_whatever_hosts_says
212 | zookeeper_hosts outweighs hosts | live/test_zookeeper_hosts.py::test_behaviours_211_212_brokers_are_found_in_zookeeper_whatever_hosts_says

86 | connect, disconnect, reconnect and connected | CONNECTIONS test_behaviour_86_connect_disconnect_reconnect_and_connected
87 | request sends, response waits | CONNECTIONS test_behaviour_87_requests_are_sent_and_answers_come_in_their_order, live/test_documented_connection.py::test_behaviour_87_documented_requests_on_a_socket
88 | a connection that is deleted closes its socket | CONNECTIONS test_behaviour_88_a_connection_that_is_deleted_closes_its_socket
110 | get waits for the answer or raises | CONNECTIONS test_behaviours_110_111_get_waits_for_the_answer_and_parses_it, CONNECTIONS test_get_waits_no_longer_than_its_timeout
111 | set_response and set_error release get | CONNECTIONS test_behaviours_110_111_get_raises_what_was_set
118 | request queues and returns a future | CONNECTIONS test_behaviour_118_a_request_is_queued_and_gives_a_future
119 | start and stop | CONNECTIONS test_behaviour_119_stop_sends_what_is_queued_and_ends_the_worker
120 | Shared and Task are named tuples | CONNECTIONS test_behaviour_120_shared_and_task_are_named_tuples

148 | requests have API_KEY, len and get_bytes | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it, REQUESTS test_behaviour_148_the_base_class_serializes_nothing
149 | the header of a request | REQUESTS test_behaviour_149_the_header_has_size_key_version_correlation_id_and_client_id
150 | Response.raise_error raises by the code | RESPONSES test_behaviour_150_raise_error_raises_the_codes_exception
151 | MetadataRequest | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it, REQUESTS test_behaviour_151_no_topics_are_all_topics
152 | MetadataResponse | RESPONSES test_behaviour_152_metadata
153 | ProduceRequest | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it
154 | add_message, messages and message_count | REQUESTS test_behaviour_154_a_produce_request_counts_and_lists_its_messages
155 | ProduceResponse | RESPONSES test_behaviour_155_produce
156 | OffsetRequest and OffsetResponse | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it, RESPONSES test_behaviour_156_offsets
157 | PartitionOffsetRequest | REQUESTS test_behaviours_157_162_165_requests_for_partitions_are_tuples_with_names, CALLS test_the_limits_of_a_log_are_told
158 | OffsetCommitRequest | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it
159 | OffsetCommitResponse | RESPONSES test_behaviour_159_offset_commit
160 | FetchRequest | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it
161 | FetchResponse flattens nested message sets | MESSAGES test_behaviours_161_171_another_clients_sets_are_read, MESSAGES test_behaviour_161_batches_of_format_2_are_messages_too
162 | PartitionFetchRequest | REQUESTS test_behaviours_157_162_165_requests_for_partitions_are_tuples_with_names
163 | OffsetFetchRequest and OffsetFetchResponse | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it, RESPONSES test_behaviour_163_offset_fetch
164 | ConsumerMetadataRequest and ConsumerMetadataResponse | REQUESTS test_behaviours_148_151_153_156_158_160_163_164_a_request_is_written_as_pykafka_writes_it, RESPONSES test_behaviour_164_consumer_metadata
165 | PartitionOffsetCommitRequest and PartitionOffsetFetchRequest | REQUESTS test_behaviours_157_162_165_requests_for_partitions_are_tuples_with_names
166 | Message and its bytes | MESSAGES test_behaviours_166_168_a_message_is_written_as_pykafka_writes_it_and_read_again
168 | pack_into writes like struct.pack_into | MESSAGES test_behaviour_168_without_room_it_is_an_error_as_in_struct, MESSAGES test_behaviours_166_168_a_message_is_written_as_pykafka_writes_it_and_read_again
169 | a MessageSet has no count in front | MESSAGES test_behaviour_169_a_set_is_its_messages_behind_offset_and_size
170 | a compressed MessageSet is one Message | MESSAGES test_behaviour_170_a_compressed_set_is_one_message_with_the_others_as_its_value
171 | MessageSet.decode | MESSAGES test_behaviours_161_171_another_clients_sets_are_read, MESSAGES test_behaviours_97_171_a_set_that_was_cut_loses_its_tail_and_says_so_when_nothing_is_left

193 | gzip there and back | UTILS test_behaviour_193_gzip_there_and_back
194 | snappy there and back, framed and not | UTILS test_behaviours_194_197_snappy_there_and_back_framed_and_not
195 | the xerial framing | UTILS test_behaviours_195_196_xerial_framing_is_a_header_and_blocks_of_so_many_uncompressed_bytes
196 | xerial_blocksize counts uncompressed bytes | UTILS test_behaviours_195_196_xerial_framing_is_a_header_and_blocks_of_so_many_uncompressed_bytes
197 | the framing is detected | UTILS test_behaviours_194_197_snappy_there_and_back_framed_and_not
198 | handle_partition_responses | UTILS test_behaviour_198_each_groups_handler_is_called_with_its_partitions, UTILS test_behaviour_198_a_response_is_sorted_by_the_codes_of_its_partitions
199 | raise_error | UTILS test_behaviour_199_raise_error_raises_it
200 | recvall_into | UTILS test_behaviour_200_exactly_so_many_bytes_are_received_in_place, UTILS test_behaviour_200_a_socket_that_ends_before_is_disconnected
201 | unpack_from | UTILS test_behaviour_201_formats

232 | send is asynchronous | SENDING test_send_returns_a_future_at_once, SENDLIVE test_send_returns_at_once_and_its_future_tells_where_the_record_is
233 | future.get gives the metadata or raises | SENDING test_get_gives_the_metadata_or_raises, SENDLIVE test_send_returns_at_once_and_its_future_tells_where_the_record_is, SENDLIVE test_what_the_broker_refuses_is_raised_by_get_and_told_to_errbacks
234 | flush puts everything on the network | SENDING test_flush_ends_when_everything_has_its_outcome, SENDLIVE test_flush_ends_when_everything_has_its_outcome
235 | the same key goes to the same partition | SENDING test_a_key_chooses_the_partition_as_javas_client_does, SENDLIVE test_a_key_chooses_the_partition_that_other_clients_choose
236 | serializers give bytes | SENDING test_serializers_make_the_bytes, SENDLIVE test_serializers_make_the_bytes
237 | compression_type and retries | SENDING test_whole_batches_are_compressed, SENDING test_nothing_is_tried_again_unless_retries_says_so, SENDLIVE test_whole_batches_are_compressed, THREELIVE test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so
238 | a producer may be shared by threads | SENDING test_one_producer_serves_many_workers, SENDLIVE test_one_producer_serves_many_workers
239 | gzip needs no package, lz4 and snappy do | SENDING test_whole_batches_are_compressed, SENDLIVE test_whole_batches_are_compressed
240 | check_version names the broker's version | SENDING test_check_version_names_the_brokers_release, SENDLIVE test_check_version_names_the_brokers_release, READLIVE test_check_version_names_older_releases
302 | one producer for all threads | SENDING test_one_producer_serves_many_workers, SENDLIVE test_one_producer_serves_many_workers
303 | send returns at once, batches by partition | SENDING test_send_returns_a_future_at_once, SENDLIVE test_send_returns_at_once_and_its_future_tells_where_the_record_is
304 | acks=0 gives offset -1 | SENDING test_acks_are_what_was_asked_for, SENDING test_with_acks_0_retries_have_no_effect, THREELIVE test_acks_are_what_the_broker_waits_for, SENDLIVE test_with_acks_0_what_the_broker_refuses_is_not_told_and_not_tried_again
305 | acks=1 | SENDING test_acks_are_what_was_asked_for, THREELIVE test_acks_are_what_the_broker_waits_for
306 | acks='all' | SENDING test_acks_are_what_was_asked_for, THREELIVE test_acks_are_what_the_broker_waits_for
307 | retries | SENDING test_nothing_is_tried_again_unless_retries_says_so, SENDING test_a_lost_answer_is_written_twice_with_retries_alone, THREELIVE test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so, SENDLIVE test_a_request_without_an_answer_fails_or_is_sent_again_and_may_be_there_twice
308 | retries may reorder | SENDING test_requests_are_pipelined_up_to_max_in_flight, THREELIVE test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so
309 | batch_size | SENDING test_batch_size_bounds_a_batch_and_0_means_none, SENDLIVE test_batch_size_bounds_a_batch_and_0_means_none
310 | linger_ms | SENDING test_a_buffer_goes_at_once_or_lingers, SENDLIVE test_a_buffer_goes_at_once_or_lingers
311 | records that come close together share a batch | SENDING test_records_that_come_close_together_share_a_batch, SENDLIVE test_records_that_come_close_together_share_a_batch
312 | buffer_memory blocks send | SENDING test_send_blocks_when_buffer_memory_is_taken, SENDLIVE test_send_blocks_while_buffer_memory_is_taken
313 | compression_type | SENDING test_whole_batches_are_compressed, SENDLIVE test_whole_batches_are_compressed
314 | client_id is unique for each producer | SENDING test_each_producer_has_a_name_of_its_own, SENDLIVE test_each_producer_has_a_name_of_its_own

221 | best with brokers of 0.9 and newer, works from 0.8.0 on | READOPTIONS test_api_version_is_taken_at_its_word_or_found_out, READPLACES test_brokers_that_cannot_look_up_by_time_raise_unsupported_version_error, READLIVE test_brokers_before_the_group_apis_are_read_by_hand
222 | groups need brokers of 0.9 | READLIVE test_brokers_before_the_group_apis_are_read_by_hand
223 | the documented imports | READING test_the_documented_imports_are_there_below_gkafka
224 | iteration yields named tuples of raw bytes | READING test_iteration_yields_named_tuples_of_raw_bytes, READING test_a_record_behaves_as_a_namedtuple, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
225 | group_id joins a group and commits | READGROUPS test_group_id_joins_and_shares, READGROUPS test_a_group_commits_what_its_member_consumed_and_the_next_one_goes_on, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one
226 | assign consumes these partitions only | READING test_assign_consumes_these_partitions_only, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
227 | deserializers of values and keys | READING test_values_and_keys_go_through_the_deserializers, READING test_a_deserializer_may_be_an_object_that_is_told_the_topic_and_closed, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
228 | earliest without auto commit | READGROUPS test_enable_auto_commit_commits_in_the_background_and_at_the_end, READLIVE test_commits_are_seen_by_others_and_theirs_by_us
229 | consumer_timeout_ms ends iteration | READING test_consumer_timeout_ms_ends_iteration_and_it_may_begin_again, READING test_consumer_timeout_ms_is_for_each_record_not_for_all, READING test_by_default_iteration_waits_for_ever, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
230 | subscribe by pattern | READING test_a_pattern_consumes_every_topic_that_matches_now_and_later, READGROUPS test_a_group_follows_topics_that_come_and_match, READLIVE test_a_pattern_follows_topics_that_are_made_and_deleted, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
231 | two members share the partitions | READGROUPS test_group_id_joins_and_shares, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one
241 | the low-level legacy classes are kept | LEGACY_SIMPLE test_the_classes_are_kept_in_the_newer_package, LEGACY_PRODUCER test_messages_go_to_the_partitions_in_turn
242 | bootstrap_servers as text or a list | READOPTIONS test_bootstrap_servers_is_a_string_or_a_list_of_which_one_is_enough
243 | client_id goes with each request | READOPTIONS test_client_id_goes_with_each_request_and_to_the_group, OPTIONLIVE test_client_id_is_what_the_group_knows_of_a_member
244 | without group_id no commits | READGROUPS test_group_id_joins_and_shares, READGROUPS test_commits_need_a_group, READOPTIONS test_without_group_id_there_is_no_group_and_no_commit, OPTIONLIVE test_without_group_id_there_is_no_group_and_no_commit
245 | fetch_min_bytes and fetch_max_wait_ms | READOPTIONS test_options_of_fetches_arrive_at_the_broker, READOPTIONS test_fetch_min_bytes_is_waited_for_no_longer_than_fetch_max_wait_ms, OPTIONLIVE test_fetch_min_bytes_is_waited_for_no_longer_than_fetch_max_wait_ms
246 | fetch_max_bytes lets a larger first message through | READOPTIONS test_options_of_fetches_arrive_at_the_broker, READOPTIONS test_a_first_message_over_every_limit_is_returned, OPTIONLIVE test_a_first_message_over_every_limit_is_returned
247 | max_partition_fetch_bytes | READOPTIONS test_options_of_fetches_arrive_at_the_broker, READOPTIONS test_a_first_message_over_every_limit_is_returned, OPTIONLIVE test_a_first_message_over_every_limit_is_returned
248 | brokers are fetched from in parallel | READOPTIONS test_brokers_are_fetched_from_in_parallel, THREELIVE test_brokers_are_fetched_from_in_parallel
249 | request_timeout_ms | READOPTIONS test_request_timeout_ms_bounds_an_answer_and_a_call, OPTIONLIVE test_request_timeout_ms_bounds_a_call_that_is_not_answered
250 | retry_backoff_ms | READOPTIONS test_retry_backoff_ms_is_the_pause_after_an_error, THREELIVE test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so
251 | reconnect_backoff_ms | READOPTIONS test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms
252 | reconnect_backoff_max_ms | READOPTIONS test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms
253 | max_in_flight_requests_per_connection | READOPTIONS test_max_in_flight_requests_per_connection_bounds_what_a_connection_has_under_way, THREELIVE test_a_refusal_that_may_pass_is_tried_again_only_where_retries_says_so
254 | auto_offset_reset earliest, latest or an error | READOPTIONS test_auto_offset_reset_says_where_to_go_from_an_offset_that_is_out_of_range, READOPTIONS test_auto_offset_reset_of_any_other_value_raises, OPTIONLIVE test_auto_offset_reset_says_where_to_go_from_an_offset_that_is_out_of_range, OPTIONLIVE test_auto_offset_reset_of_any_other_value_raises
255 | auto commit in the background | READGROUPS test_enable_auto_commit_commits_in_the_background_and_at_the_end, READGROUPS test_auto_commit_interval_ms_is_the_time_between_commits, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on
256 | default_offset_commit_callback | READGROUPS test_default_offset_commit_callback_is_told_of_commits, OPTIONLIVE test_default_offset_commit_callback_is_told_of_commits
257 | check_crcs | READOPTIONS test_check_crcs_finds_what_is_damaged, OPTIONLIVE test_check_crcs_finds_what_is_damaged_on_the_brokers_disk
258 | metadata_max_age_ms | READOPTIONS test_metadata_max_age_ms_finds_new_partitions, OPTIONLIVE test_metadata_max_age_ms_finds_new_partitions
259 | partition_assignment_strategy | READGROUPS test_options_of_members_arrive_at_the_coordinator, READGROUPS test_partition_assignment_strategy_is_what_the_member_offers, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one
260 | max_poll_records | READOPTIONS test_max_poll_records_bounds_one_poll, OPTIONLIVE test_max_poll_records_bounds_one_poll
261 | max_poll_interval_ms | READGROUPS test_options_of_members_arrive_at_the_coordinator, READGROUPS test_max_poll_interval_ms_without_a_poll_costs_the_membership, OPTIONLIVE test_max_poll_interval_ms_without_a_poll_costs_the_membership
262 | session_timeout_ms | READGROUPS test_options_of_members_arrive_at_the_coordinator, OPTIONLIVE test_session_timeout_ms_has_to_be_in_the_brokers_range, READLIVE test_a_group_that_a_kafka_python_process_leads_goes_on_when_members_leave_and_die
263 | heartbeat_interval_ms | READGROUPS test_heartbeat_interval_ms_is_the_time_between_heartbeats, READGROUPS test_heartbeat_interval_ms_has_to_be_lower_than_session_timeout_ms, OPTIONLIVE test_heartbeat_interval_ms_is_how_soon_a_member_hears_of_another
264 | socket buffer sizes and options | READOPTIONS test_socket_options_and_the_sizes_of_buffers_are_those_of_the_sockets
265 | double-compressed messages may be left as they are | kafka/test_consumer_double_compression.py::test_double_compressed_messages_are_left_as_one_blob, kafka/test_consumer_double_compression.py::test_double_compressed_messages_are_skipped_with_a_warning, kafka/test_consumer_double_compression.py::test_plain_messages_beside_a_double_compressed_one_keep_their_offsets, kafka/test_consumer_double_compression.py::test_the_brokers_time_is_that_of_what_was_left_compressed, kafka/test_consumer_double_compression.py::test_a_damaged_message_is_told_and_not_skipped, READLIVE test_a_message_that_is_compressed_twice_is_left_as_a_blob_or_skipped
266 | security_protocol | kafka/test_consumer_tls.py::test_security_protocol_ssl_encrypts_and_checks_the_certificate, kafka/test_consumer_tls.py::test_tls_to_a_broker_without_it_is_told, live/test_tls.py::test_kafka_pythons_ssl_options
267 | ssl_context outweighs the other ssl settings | kafka/test_consumer_tls.py::test_ssl_context_makes_the_other_ssl_options_void
268 | the ssl files and the check of host names | kafka/test_consumer_tls.py::test_security_protocol_ssl_encrypts_and_checks_the_certificate, kafka/test_consumer_tls.py::test_ssl_check_hostname_compares_the_name, kafka/test_consumer_tls.py::test_ssl_certfile_keyfile_and_password_are_the_clients_certificate, live/test_tls.py::test_kafka_pythons_ssl_options
269 | ssl_crlfile | kafka/test_consumer_tls.py::test_ssl_crlfile_refuses_what_was_revoked
270 | api_version may be given or found out | READOPTIONS test_api_version_is_taken_at_its_word_or_found_out, READLIVE test_brokers_before_the_group_apis_are_read_by_hand
271 | api_version_auto_timeout_ms | READOPTIONS test_api_version_auto_timeout_ms_bounds_the_constructor
272 | metrics and the selector | kafka/test_metric_reporters.py::test_metrics_num_samples_windows_are_what_rates_are_of, kafka/test_metric_reporters.py::test_reporters_are_told_of_metrics_as_they_come_and_go, kafka/test_selector.py::test_a_selector_of_the_applications_own_does_the_waiting
273 | internal topics only by name | READOPTIONS test_internal_topics_match_no_pattern_unless_they_may, READLIVE test_internal_topics_are_read_by_name_only
274 | SASL PLAIN | kafka/test_consumer_sasl.py::test_sasl_mechanism_and_the_name_and_password_let_in, kafka/test_consumer_sasl.py::test_sasl_oauth_token_provider_gives_the_token, kafka/test_consumer_sasl.py::test_allow_plaintext_credentials_is_the_word_that_a_password_in_clear_text_takes, kafka/test_consumer_sasl.py::test_sasl_options_that_could_have_no_effect_are_refused, live/test_sasl.py::test_kafka_pythons_sasl_options
275 | failures of servers are handled without a word | READOPTIONS test_a_broker_that_fails_and_partitions_that_move_are_followed, READOPTIONS test_metadata_max_age_ms_finds_new_partitions, READLIVE test_a_pattern_follows_topics_that_are_made_and_deleted
276 | assign and subscribe exclude each other | READING test_assign_and_subscribe_exclude_each_other_until_unsubscribe, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
277 | assign replaces, without a group | READING test_assign_replaces_and_needs_no_group
278 | assignment | READING test_assign_consumes_these_partitions_only, READING test_without_a_group_a_subscription_reads_all_partitions, READGROUPS test_group_id_joins_and_shares, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on
279 | beginning_offsets and end_offsets leave the position alone | READPLACES test_beginning_and_end_offsets_leave_the_position_alone, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
280 | what they raise | READOPTIONS test_request_timeout_ms_bounds_an_answer_and_a_call, READPLACES test_look_ups_that_get_no_answer_raise_kafka_timeout_error, READPLACES test_brokers_that_cannot_look_up_by_time_raise_unsupported_version_error, OPTIONLIVE test_request_timeout_ms_bounds_a_call_that_is_not_answered, READLIVE test_brokers_before_the_group_apis_are_read_by_hand
281 | close commits what is pending | READGROUPS test_enable_auto_commit_commits_in_the_background_and_at_the_end, READGROUPS test_close_without_autocommit_leaves_what_is_pending, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on
282 | commit waits for success | READGROUPS test_commit_commits_what_was_consumed_and_waits, READGROUPS test_commit_raises_what_cannot_be_mended, READLIVE test_commits_are_seen_by_others_and_theirs_by_us
283 | the next message is what is committed | READGROUPS test_a_group_commits_what_its_member_consumed_and_the_next_one_goes_on, READGROUPS test_commit_commits_what_was_consumed_and_waits, READLIVE test_commits_are_seen_by_others_and_theirs_by_us, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
284 | commits are kept in Kafka and used at every start | READGROUPS test_a_group_commits_what_its_member_consumed_and_the_next_one_goes_on, READGROUPS test_an_assigned_partition_starts_where_its_group_has_committed, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on, READLIVE test_commits_are_seen_by_others_and_theirs_by_us, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one
285 | commit_async | READGROUPS test_commit_async_does_not_block_and_tells_the_callback_and_the_future, READGROUPS test_commits_in_the_background_are_made_in_the_order_of_the_calls_and_before_close, READGROUPS test_a_callback_of_a_commit_may_commit_and_close, READGROUPS test_a_callback_of_a_commit_that_raises_is_logged, READLIVE test_commits_are_seen_by_others_and_theirs_by_us, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
286 | committed | READGROUPS test_committed_is_the_offset_or_none, READLIVE test_commits_are_seen_by_others_and_theirs_by_us, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
287 | highwater | READPLACES test_highwater_is_none_before_a_fetch_and_then_the_next_offset_produced, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
288 | metrics | READPLACES test_metrics_are_numbers_by_group_and_name
289 | offsets_for_times | READPLACES test_offsets_for_times_is_the_first_record_at_or_after_each_time, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
290 | None where no message is that new | READPLACES test_offsets_for_times_is_the_first_record_at_or_after_each_time, READPLACES test_a_negative_timestamp_is_a_value_error, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
291 | partitions_for_topic and topics | READPLACES test_partitions_for_topic_and_topics_are_sets, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
292 | pause, resume and paused | READING test_paused_partitions_are_not_handed_out_until_they_are_resumed, READGROUPS test_paused_partitions_cost_no_rebalance, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
293 | poll | READING test_poll_returns_records_by_partition_in_order, READING test_poll_without_a_timeout_returns_at_once, READING test_poll_waits_no_longer_than_its_timeout_and_no_longer_than_needed, kafka/test_consumer_input.py::test_poll_refuses_a_timeout_that_is_none, kafka/test_consumer_input.py::test_poll_refuses_a_number_of_records_that_is_none, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
294 | poll goes on from the last consumed offset | READING test_poll_goes_on_where_the_last_one_ended, READGROUPS test_an_assigned_partition_starts_where_its_group_has_committed, OPTIONLIVE test_poll_goes_on_from_the_last_record_the_last_seek_or_the_last_commit
295 | position | READPLACES test_position_is_the_offset_of_the_next_record, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
296 | seek | READPLACES test_seek_says_where_to_go_on_and_the_last_one_wins, READPLACES test_seek_to_what_is_no_offset_is_an_assertion_error, READPLACES test_seeks_of_what_is_not_assigned_are_assertion_errors, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
297 | seek_to_beginning and seek_to_end | READPLACES test_seek_to_beginning_and_to_end_take_some_or_all_that_are_assigned, READPLACES test_seeks_of_what_is_not_assigned_are_assertion_errors, READLIVE test_look_ups_by_time_and_of_both_ends, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
298 | subscribe checks its arguments | kafka/test_consumer_input.py::test_subscribe_checks_its_arguments, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives
299 | what triggers a rebalance | READGROUPS test_group_id_joins_and_shares, READGROUPS test_subscribe_replaces_and_unsubscribe_clears, READGROUPS test_a_group_follows_topics_that_come_and_match, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on, READLIVE test_a_pattern_follows_topics_that_are_made_and_deleted, READLIVE test_a_group_shared_with_a_kafka_python_process_rebalances_and_commits_as_one
300 | the listener hears of revoked and then of assigned partitions | READGROUPS test_a_listener_hears_of_revoked_partitions_and_then_of_assigned_ones, READGROUPS test_a_listener_may_commit_and_seek, READLIVE test_two_members_share_and_commit_and_whoever_is_left_goes_on
301 | subscription and unsubscribe | READING test_without_a_group_a_subscription_reads_all_partitions, READING test_a_pattern_consumes_every_topic_that_matches_now_and_later, READGROUPS test_subscribe_replaces_and_unsubscribe_clears, READLIVE test_a_pattern_follows_topics_that_are_made_and_deleted, live/test_kafka_differential.py::test_a_script_of_consumer_calls_gives_what_kafka_python_gives

315 | the base Consumer | LEGACY_SIMPLE test_the_base_knows_partitions_offsets_and_what_is_pending, LEGACY_LIVE test_a_simple_consumer
316 | commit of some partitions | LEGACY_SIMPLE test_commit_stores_the_given_partitions_or_all, LEGACY_LIVE test_a_simple_consumer
317 | pending | LEGACY_SIMPLE test_pending_counts_what_waits, LEGACY_LIVE test_a_simple_consumer
318 | auto commit by number and by time | LEGACY_SIMPLE test_auto_commit_by_number, LEGACY_SIMPLE test_auto_commit_by_time, LEGACY_LIVE test_a_simple_consumer
319 | one trigger resets the other | LEGACY_SIMPLE test_one_trigger_puts_the_other_off, LEGACY_LIVE test_one_trigger_puts_the_other_off
320 | group and client | LEGACY_SIMPLE test_the_client_is_connected_and_knows_its_topics, LEGACY_SIMPLE test_the_group_goes_on_where_it_has_committed, LEGACY_LIVE test_a_simple_consumer
321 | SimpleConsumer consumes all partitions or some | LEGACY_SIMPLE test_all_partitions_or_those_of_a_list, LEGACY_LIVE test_a_simple_consumer
322 | fetch_size_bytes | LEGACY_SIMPLE test_fetch_size_bytes_is_asked_for, LEGACY_LIVE test_the_buffer_doubles_up_to_its_limit
323 | buffer_size doubles up to its limit | LEGACY_SIMPLE test_the_buffer_doubles_up_to_its_limit, LEGACY_SIMPLE test_without_a_limit_every_message_comes, LEGACY_LIVE test_the_buffer_doubles_up_to_its_limit
324 | iter_timeout | LEGACY_SIMPLE test_iter_timeout_ends_the_iteration, LEGACY_SIMPLE test_without_iter_timeout_an_iteration_waits, LEGACY_LIVE test_a_simple_consumer
325 | get_messages | LEGACY_SIMPLE test_get_messages_waits_for_so_many_or_for_so_long, LEGACY_SIMPLE test_get_messages_with_timeout_none_waits_until_they_are_there, LEGACY_LIVE test_a_simple_consumer
326 | get_message | LEGACY_SIMPLE test_get_message_gives_one_or_none, LEGACY_LIVE test_a_simple_consumer
327 | provide_partition_info | LEGACY_SIMPLE test_messages_come_with_their_partition_when_that_is_asked_for, LEGACY_LIVE test_a_simple_consumer
328 | seek by whence | LEGACY_SIMPLE test_seek_by_whence, LEGACY_LIVE test_a_simple_consumer
329 | FetchContext | LEGACY_SIMPLE test_the_fetch_context_sets_values_and_restores_them, LEGACY_SIMPLE test_a_fetch_within_a_waiting_call_asks_for_a_first_byte
330 | MultiProcessConsumer | LEGACY_PROCESSES test_partitions_are_read_in_several_processes, LEGACY_LIVE test_several_processes
331 | num_procs and partitions_per_proc | LEGACY_PROCESSES test_how_the_partitions_are_divided, LEGACY_PROCESSES test_partitions_per_proc_goes_before_num_procs, LEGACY_LIVE test_several_processes
332 | its get_messages and stop | LEGACY_PROCESSES test_get_messages_waits_as_it_is_told, LEGACY_PROCESSES test_partitions_are_read_in_several_processes, LEGACY_LIVE test_several_processes
333 | without a group it is a tail | LEGACY_CONSUMER test_without_a_group_it_is_a_tail, LEGACY_LIVE test_a_kafka_consumer
334 | three ways to read | LEGACY_CONSUMER test_three_ways_to_read, LEGACY_LIVE test_a_kafka_consumer
335 | messages are named tuples | LEGACY_CONSUMER test_messages_are_named_tuples, LEGACY_CONSUMER test_the_deserializer_makes_the_value
336 | task_done marks | LEGACY_CONSUMER test_only_what_is_marked_is_committed, LEGACY_LIVE test_a_kafka_consumer
337 | commit stores what was marked | LEGACY_CONSUMER test_only_what_is_marked_is_committed, LEGACY_CONSUMER test_the_group_goes_on_where_it_has_committed, LEGACY_LIVE test_a_kafka_consumer
338 | auto commit of what was marked | LEGACY_CONSUMER test_marks_are_committed_by_number, LEGACY_CONSUMER test_marks_are_committed_by_time, LEGACY_CONSUMER test_without_auto_commit_marks_wait_for_commit, LEGACY_LIVE test_a_kafka_consumer
339 | the defaults | LEGACY_CONSUMER test_the_documented_defaults
340 | configure | LEGACY_CONSUMER test_configure_takes_the_same_settings
341 | smallest and largest | LEGACY_CONSUMER test_out_of_range_goes_by_auto_offset_reset, LEGACY_CONSUMER test_another_policy_raises, LEGACY_LIVE test_a_kafka_consumer
342 | fetch_messages | LEGACY_CONSUMER test_fetch_messages_gives_a_generator_over_all_partitions, LEGACY_CONSUMER test_it_follows_the_leader, LEGACY_LIVE test_a_kafka_consumer
343 | ConsumerTimeout | LEGACY_CONSUMER test_no_message_in_time_raises, LEGACY_CONSUMER test_without_a_timeout_next_waits, LEGACY_LIVE test_a_kafka_consumer
344 | get_partition_offsets | LEGACY_CONSUMER test_get_partition_offsets, LEGACY_LIVE test_get_partition_offsets
345 | offsets gives a copy | LEGACY_CONSUMER test_offsets_are_a_copy, LEGACY_LIVE test_a_kafka_consumer
346 | OffsetsStruct | LEGACY_CONSUMER test_the_struct_of_offsets
347 | forms of set_topic_partitions | LEGACY_CONSUMER test_forms_of_topics, LEGACY_LIVE test_a_kafka_consumer
348 | forms with offsets | LEGACY_CONSUMER test_forms_with_offsets, LEGACY_LIVE test_a_kafka_consumer
349 | forms may be mixed | LEGACY_CONSUMER test_forms_of_topics, LEGACY_CONSUMER test_forms_with_offsets, LEGACY_LIVE test_a_kafka_consumer
"""

_GROUP = re.compile(r"\[waived: (\S+): (.+)\]")


def _test_id(text: str) -> str:
    for short, long in SHORT.items():
        if text.startswith(short):
            return long + text.removeprefix(short)
    return text


def _parse(table: str) -> list[tuple[int, Promise]]:
    found: list[tuple[int, Promise]] = []
    missing, reason = "", ""
    for line in table.splitlines():
        group = _GROUP.fullmatch(line)
        if group is not None:
            missing, reason = group[1], group[2]
        elif line:
            number, claim, *how = line.split(" | ")
            own = re.fullmatch(r"waived: (\S+): (.+)", how[0]) if how else None
            tests = tuple(_test_id(one) for one in how[0].split(", ")) if how and own is None else ()
            waiver = (own[1], own[2]) if own is not None else ("", "") if tests else (missing, reason)
            found.append((int(number), Promise(claim, tests, *waiver)))
    return found


PROMISES: list[tuple[int, Promise]] = _parse(TABLE)


def _numbers(text: str) -> frozenset[int]:
    """Of "1-3, 7"."""
    found: set[int] = set()
    for part in text.replace("\n", " ").split(","):
        first, _, last = part.strip().partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


REAL = _numbers(
    """1-2, 4-8, 10, 12-19, 21-27, 30, 33-34, 36, 38-58, 60-62, 65-71, 73-74, 76, 78-83, 86-87, 90, 94-96, 98-100, 102-103,
    105, 107-109, 121-123, 130-142, 144-147, 172-184, 187-189, 192, 202-222, 224-240, 243-250, 253-258, 260-263, 265-266,
    268, 273-275, 278-287, 289-297, 299-328, 330-334, 336-338, 341-345, 347-349"""
)
"""What the reference promises of a running broker or ZooKeeper, and not of the client alone or of its statement."""

NOT_LIVE: dict[str, frozenset[int]] = {
    reason: _numbers(numbers)
    for reason, numbers in {
        "a broker that errs when it is asked to: a real one does not": "41, 42, 90, 94, 95, 98, 102, 107, 134",
        "what is asked of the broker is what is promised: its requests are read": "36, 39, 40, 49, 68, 69, 136, 179",
        "the connection itself is what is promised: it is counted, bounded, cut and opened again": "65, 66, 67, 73, 74, 76, 86, 108",
        "what the client does by itself, whoever the broker is": "103, 105, 131, 137, 138, 139, 140, 144, 147, 178, 180, 209, 210, 216, 217",
    }.items()
}
"""Why of some of these only brokers in the tests' process are asked: reason -> numbers. None of kafka-python's families."""
