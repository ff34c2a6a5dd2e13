"""Making batches ready to be sent: for which version of Produce, and what to do if that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from gkafka.common import CompressionType
from gkafka.exceptions import KafkaException, ProduceFailureError, SocketDisconnectedError, UnsupportedCodec, UnsupportedVersion
from gkafka.logs import get_logger
from gkafka.wire.produce import ProduceRequest, holds_zstd, numbers_in, oldest_holding, record_format

if TYPE_CHECKING:
    from gkafka.broker import Broker
    from gkafka.cluster import Cluster
    from gkafka.core.sender import Sender
    from gkafka.net.channel import Channel
    from gkafka.records import Batch

__all__ = ["Sealer"]

log = get_logger(__name__)

OFFLOAD_BYTES = {1: 16 << 10, 2: 256 << 10, 3: 256 << 10, 4: 128 << 10}
"""Codec -> batch size from which compressing it takes more than ~0.5 ms, so that it leaves the hub
(gzip, snappy, lz4, zstd)."""


class Sealer:
    """Seals the batches of one producer. codec, level: of their compression."""

    def __init__(self, cluster: Cluster, sender: Sender, codec: int, level: int | None) -> None:
        self._cluster, self._handler, self._sender = cluster, cluster.handler, sender
        self._codec, self._level = codec, level

    def version(self, channel: Channel, broker: Broker, newest: int | None) -> int:
        """Return the newest Produce that the broker takes, `newest` at most.

        While its connection opens: by what the broker last said, or else by what the broker that told
        the metadata takes.
        """
        versions = channel.versions or broker.told_versions or self._cluster.versions
        version: int = versions.pick(ProduceRequest.API, max_version=newest) if versions is not None else ProduceRequest.API.stable.high
        return version

    def told_since(self, version: int, channel: Channel, broker: Broker) -> KafkaException | None:
        """Return the error to retry with if the broker has said what it speaks since that version
        was chosen, as its connection opened."""
        try:
            if self.version(channel, broker, self._sender.newest_produce) == version:
                return None
        except KafkaException as exc:
            return exc
        text = f"broker {broker.id} has said what it speaks since these records were made ready for v{version} of Produce"
        return SocketDisconnectedError(text, broker=broker.id, api="Produce")

    def seal(self, batches: Iterable[Batch], version: int) -> tuple[int, list[tuple[Batch, KafkaException]]]:
        """Return the bytes of the batches that are ready now, and the others with their errors.

        Each of those fails alone. Raises what a signal handler raised.
        """
        size, failed = 0, []
        for batch in batches:
            try:
                self._seal(batch, version)
                size += batch.size
            except Exception as exc:
                failed.append((batch, self._failure(batch, exc)))
        return size, failed

    def doubt(self, version: int, channel: Channel, broker: Broker, failed: list[tuple[Batch, KafkaException]]) -> KafkaException | None:
        """Return the error to retry the whole request with if the broker may be newer than it was
        taken for, or has said so since that version was chosen."""
        if not any(isinstance(error, UnsupportedVersion | UnsupportedCodec) for _, error in failed):
            return None
        if channel.versions is None and broker.told_versions is None:
            # Its connection opens, and the version is that of the broker that told the metadata: of
            # another release, in a rolling upgrade.
            return SocketDisconnectedError(f"broker {broker.id} has not said yet what it speaks", broker=broker.id, api="Produce")
        return channel.doubt("record headers, or this codec") or self.told_since(version, channel, broker)

    def _seal(self, batch: Batch, version: int) -> None:
        if self._codec == CompressionType.ZSTD and not holds_zstd(version):
            raise UnsupportedCodec("compression='zstd' needs brokers of Kafka 2.1 or newer (KIP-110): choose lz4, snappy or gzip")
        magic = record_format(version)
        flight = batch.extra
        producer_id, epoch = flight.producer if flight.sequence >= 0 else (-1, -1)
        if batch.sealed:
            if flight.sequence >= 0 and oldest_holding(batch.wire)[0]:
                numbers = (producer_id, epoch, flight.sequence)
                if numbers != numbers_in(batch.wire):  # a retry has those that it was sent with
                    batch.restamp(*numbers)
            return
        transactional = self._sender.transaction is not None
        seal: Callable[[], None]
        if magic < 2:
            seal = partial(batch.seal_legacy, magic, self._codec, self._level)
        else:
            seal = partial(
                batch.seal,
                self._codec,
                self._level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=flight.sequence,
                transactional=transactional,
            )
        if self._handler.cooperative and batch.size >= OFFLOAD_BYTES.get(self._codec, 1 << 62):
            self._handler.offload(seal)  # compressing takes long: away from the hub (records.compression drops the interpreter's lock)
        else:
            seal()

    def _failure(self, batch: Batch, error: Exception) -> KafkaException:
        interruption = self._handler.interruption(error)
        if interruption is not None:
            raise interruption
        if isinstance(error, KafkaException):
            return error
        log.error("sealing %r failed", batch, exc_info=error)
        failure = ProduceFailureError(
            f"{batch.topic}-{batch.partition}: {batch.count} record(s) could not be made ready to send"
            f" (compression={CompressionType(self._codec).name.lower()}): {type(error).__name__}: {error}; the producer goes on: produce them"
            " again, with another compression= if it is the codec",
            topic=batch.topic,
            partition=batch.partition,
        )
        failure.__cause__ = error.with_traceback(None)  # its frames hold the batch
        return failure
