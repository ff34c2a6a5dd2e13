"""The texts of a broker's errors."""

from __future__ import annotations

import pickle

from gkafka.exceptions import BrokerError, OffsetOutOfRangeError, error_for


def test_a_text_names_api_place_and_broker_as_far_as_they_are_known() -> None:
    assert str(error_for(1, "Gone.", topic="t", partition=3, offset=7, broker="h:1", api="Fetch")).startswith(
        "Fetch t-3 offset 7 on broker h:1: error 1: Gone; "
    )
    assert str(error_for(5, topic="t", api="Metadata")).startswith("Metadata t: error 5: There is no leader")
    assert str(error_for(5)).startswith("error 5: There is no leader")
    assert str(error_for(999, "New.", api="Fetch")) == "Fetch: error 999: New."


def test_every_text_is_one_line_and_ends_as_a_sentence() -> None:
    for code, cls in BrokerError.by_code.items():
        for text in (str(cls()), str(error_for(code, topic="t"))):
            assert f"error {code}: " in text
            assert "\n" not in text
            assert "  " not in text


def test_an_error_of_the_users_own_words_keeps_them() -> None:
    assert str(OffsetOutOfRangeError("mine", topic="t")) == "mine"


def test_a_text_survives_pickling() -> None:
    error = error_for(3, topic="t", partition=1, api="OffsetCommit")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.topic, copy.partition, copy.api) == ("t", 1, "OffsetCommit")
