"""ApiVersions: which versions of which APIs a broker speaks."""

from __future__ import annotations

from gkafka.wire.schema import Message, Struct, array, boolean, int16, int32, int64, message, string

__all__ = ["ApiVersion", "ApiVersionsRequest", "ApiVersionsResponse", "FinalizedFeatureKey", "SupportedFeatureKey"]


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    """The first request on a connection. KIP-35; KIP-511 who asks (v3); KAFKA-17011 features whose minimum is 0 (v4)."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    """The APIs and their ranges. KIP-35; KIP-219 throttle (v2); KIP-511; KIP-584 features (v3); KIP-866 ZooKeeper migration.

    Its header is version 0 at every version: the asker does not know yet whether the broker is flexible (KIP-511).
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", ignorable=True, tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", ignorable=True, tag=2)
    zk_migration_ready: bool = boolean("3+", ignorable=True, tag=3)
