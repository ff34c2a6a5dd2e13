"""kafka-python's API on gkafka (`gkafka.kafka`), on brokers inside the test's process; what needs real ones is in tests/live."""
