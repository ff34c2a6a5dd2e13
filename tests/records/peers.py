"""Other clients' builders of batches."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python 3.0 loads its schemas by a deprecated way
    from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBatch
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioSet
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBatch
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonSet

__all__ = ["AioBatch", "AioSet", "KafkaPythonBatch", "KafkaPythonSet"]
