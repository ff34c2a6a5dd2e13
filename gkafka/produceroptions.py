"""Which options of a producer do not go together. What one option alone may be says `gkafka.config`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gkafka.config import ACKS
from gkafka.exceptions import ConfigurationError
from gkafka.logs import get_logger
from gkafka.records import compression
from gkafka.transactions import check_transactional

if TYPE_CHECKING:
    from gkafka.config import ProducerConfig

__all__ = ["check_options"]

log = get_logger(__name__)


def check_options(config: ProducerConfig) -> None:
    """Raise ConfigurationError for options that contradict each other, UnsupportedCodec for a codec that is not installed."""
    # Compress nothing: a missing package, or a level that the codec does not have, is found now
    # and not with the first batch.
    compression.compress(compression.codec_id(config.compression), b"", config.compression_level)
    check_transactional(config)
    _check_idempotence(config)
    _check_times_and_sizes(config)


def _check_idempotence(config: ProducerConfig) -> None:
    waits_for_all = ACKS[config.acks] == -1
    if config.enable_idempotence and not waits_for_all:
        raise ConfigurationError(f"enable_idempotence=True needs acks='all', not acks={config.acks!r}")
    if config.enable_idempotence and config.max_in_flight > 5:
        raise ConfigurationError(f"max_in_flight={config.max_in_flight}: must be 5 or less with enable_idempotence=True (KIP-98)")
    if config.enable_idempotence is None and not waits_for_all:
        log.info("acks=%s: sending without idempotence, retries may duplicate or reorder records", config.acks)
    if config.enable_idempotence is None and waits_for_all and config.max_in_flight > 5:
        raise ConfigurationError(f"max_in_flight={config.max_in_flight}: must be 5 or less, or give enable_idempotence=False (KIP-98)")


def _check_times_and_sizes(config: ProducerConfig) -> None:
    if config.delivery_timeout_ms < config.linger_ms:
        raise ConfigurationError(f"delivery_timeout_ms={config.delivery_timeout_ms}: must be at least linger_ms={config.linger_ms}")
    if config.max_request_bytes > config.buffer_bytes or config.batch_bytes > config.buffer_bytes:
        raise ConfigurationError(
            f"buffer_bytes={config.buffer_bytes}: must hold a batch (batch_bytes={config.batch_bytes}) and a request (max_request_bytes={config.max_request_bytes})"
        )
