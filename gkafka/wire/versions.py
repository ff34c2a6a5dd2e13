"""What one broker speaks, and which version a request to it takes.

Brokers from 0.10.0 on say it themselves (ApiVersions, KIP-35). For older ones, which close the connection on a request they do not know,
`broker_version` picks a row of the table below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gkafka.exceptions import ConfigurationError, UnsupportedVersion
from gkafka.wire.schema import Api, Message, VersionRange

if TYPE_CHECKING:
    from gkafka.wire.apiversions import ApiVersionsResponse

__all__ = ["NamedRelease", "Versions", "newest_release_before"]

# The newest version of each API that a Kafka release serves; "-" where it does not have the API, or has it as a preview (KIP-848 before 3.9).
# Sources: kafka.api and Protocol.java of 0.8.2.2 to 1.1.1, schemaVersions() of 2.0 to 2.3, the JSON definitions from 2.4 on, at each tag.
_TABLE = """
            Prod Fetch ListOf Meta OfComm OfFetch FindCo Join Heartb Leave Sync DescrG ListG ApiVer Create Delete InitPid  AddP  AddO  EndT TxOff  CGHb CGDe LeadEp SaslHs SaslAu
    key        0     1      2    3      8       9     10   11     12    13   14     15    16     18     19     20      22    24    25    26    28    68   69     23     17     36
    0.8.2      0     0      0    0      1       1      0    -      -     -    -      -     -      -      -      -       -     -     -     -     -     -    -      -      -      -
    0.9.0      1     1      0    0      2       1      0    0      0     0    0      0     0      -      -      -       -     -     -     -     -     -    -      -      -      -
    0.10.0     2     2      0    1      2       1      0    0      0     0    0      0     0      0      -      -       -     -     -     -     -     -    -      -      0      -
    0.10.1     2     3      1    2      2       1      0    1      0     0    0      0     0      0      0      0       -     -     -     -     -     -    -      -      0      -
    0.10.2     2     3      1    2      2       2      0    1      0     0    0      0     0      0      1      0       -     -     -     -     -     -    -      -      0      -
    0.11.0     3     5      2    4      3       3      1    2      1     1    1      1     1      1      2      1       0     0     0     0     0     -    -      0      0      -
    1.0        5     6      2    5      3       3      1    2      1     1    1      1     1      1      2      1       0     0     0     0     0     -    -      0      1      0
    1.1        5     7      2    5      3       3      1    2      1     1    1      1     1      1      2      1       0     0     0     0     0     -    -      0      1      0
    2.0        6     8      3    6      4       4      2    3      2     2    2      2     2      2      3      2       1     1     1     1     1     -    -      1      1      0
    2.1        7    10      4    7      6       5      2    3      2     2    2      2     2      2      3      3       1     1     1     1     2     -    -      2      1      0
    2.2        7    10      5    7      6       5      2    4      2     2    2      2     2      2      3      3       1     1     1     1     2     -    -      2      1      1
    2.3        7    11      5    8      7       5      2    5      3     2    3      3     2      2      3      3       1     1     1     1     2     -    -      3      1      1
    2.4        8    11      5    9      8       6      3    6      4     4    4      5     3      3      5      4       2     1     1     1     2     -    -      3      1      1
    2.5        8    11      5    9      8       7      3    7      4     4    5      5     3      3      5      4       3     1     1     1     3     -    -      3      1      2
    2.6        8    11      5    9      8       7      3    7      4     4    5      5     4      3      5      4       3     1     1     1     3     -    -      3      1      2
    2.7        8    12      5    9      8       7      3    7      4     4    5      5     4      3      6      5       4     2     2     2     3     -    -      3      1      2
    2.8        9    12      6   11      8       7      3    7      4     4    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.0        9    12      7   11      8       8      4    7      4     4    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.1        9    13      7   12      8       8      4    7      4     4    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.2        9    13      7   12      8       8      4    9      4     5    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.3        9    13      7   12      8       8      4    9      4     5    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.4        9    13      7   12      8       8      4    9      4     5    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.5        9    15      8   12      8       8      4    9      4     5    5      5     4      3      7      6       4     3     3     3     3     -    -      4      1      2
    3.6        9    15      8   12      8       8      4    9      4     5    5      5     4      3      7      6       4     4     3     3     3     -    -      4      1      2
    3.7       10    16      8   12      9       9      4    9      4     5    5      5     4      3      7      6       4     4     3     3     3     -    -      4      1      2
    3.8       11    16      8   12      9       9      5    9      4     5    5      5     5      3      7      6       5     5     4     4     4     -    -      4      1      2
    3.9       11    17      9   12      9       9      6    9      4     5    5      5     5      4      7      6       5     5     4     4     4     0    0      4      1      2
    4.0       12    17     10   13      9       9      6    9      4     5    5      6     5      4      7      6       5     5     4     5     5     1    1      4      1      2
    4.1       13    18     10   13      9       9      6    9      4     5    5      6     5      4      7      6       5     5     4     5     5     1    1      4      1      2
    4.2       13    18     11   13     10      10      6    9      4     5    5      6     5      4      7      6       5     5     4     5     5     1    1      4      1      2
"""
# The same of the APIs of administration (`gkafka.wire.adminapis`): key, name, and the releases that brought a newer version.
_ADMIN_TABLE = """
    21  DeleteRecords                 0.11.0:0  2.0:1  2.6:2
    27  WriteTxnMarkers               0.11.0:0  2.8:1  4.2:2
    29  DescribeAcls                  0.11.0:0  2.0:1  2.5:2  3.3:3
    30  CreateAcls                    0.11.0:0  2.0:1  2.5:2  3.3:3
    31  DeleteAcls                    0.11.0:0  2.0:1  2.5:2  3.3:3
    32  DescribeConfigs               0.11.0:0  1.1:1  2.0:2  2.6:3  2.8:4
    33  AlterConfigs                  0.11.0:0  2.0:1  2.8:2
    34  AlterReplicaLogDirs           1.0:0     2.0:1  2.8:2
    35  DescribeLogDirs               1.0:0     2.0:1  2.6:2  3.2:3  3.3:4
    37  CreatePartitions              1.0:0     2.0:1  2.5:2  2.7:3
    42  DeleteGroups                  1.1:0     2.0:1  2.4:2
    43  ElectLeaders                  2.2:0     2.4:2
    44  IncrementalAlterConfigs       2.3:0     2.4:1
    45  AlterPartitionReassignments   2.4:0     4.1:1
    46  ListPartitionReassignments    2.4:0
    47  OffsetDelete                  2.4:0
    48  DescribeClientQuotas          2.6:0     2.8:1
    49  AlterClientQuotas             2.6:0     2.8:1
    50  DescribeUserScramCredentials  2.7:0
    51  AlterUserScramCredentials     2.7:0
    55  DescribeQuorum                3.3:1     3.9:2
    57  UpdateFeatures                2.7:0     3.3:1  4.0:2
    60  DescribeCluster               2.8:0     3.7:1  4.0:2
    61  DescribeProducers             2.8:0
    65  DescribeTransactions          3.0:0
    66  ListTransactions              3.0:0     3.8:1  4.1:2
    75  DescribeTopicPartitions       3.8:0
"""
# KIP-896: what Kafka 4 no longer serves. Its ApiVersions answer names Produce 0-2 all the same, for librdkafka's sake (KAFKA-18659).
_OLDEST_OF_KAFKA_4 = {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 11: 2, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1}

# What a connection is opened with: SaslHandshake, ApiVersions, SaslAuthenticate.
_OPENING = frozenset((17, 18, 36))
# By which releases are told apart: those that every broker of a release has, however it is configured.
_EVERYDAY = frozenset((*range(4), *range(8, 17), 18, 19, 20, *range(22, 27), 28))

Release = tuple[int, ...]


class NamedRelease(str):
    """A release of Kafka, as "2.8", with the name of the option that says it, for texts of errors and of logs."""

    __slots__ = ("option",)
    option: str

    def __new__(cls, release: str, option: str) -> NamedRelease:
        made = super().__new__(cls, release)
        made.option = option
        return made

    def __getnewargs__(self) -> Any:
        return str.__str__(self), self.option


class Versions:
    """The versions that one broker speaks.

    ranges: API key -> (oldest, newest). broker: who it is, for error texts. features: what is switched on in its cluster (KIP-584), name ->
    level; empty for brokers that do not say.
    """

    __slots__ = ("_how", "_limit", "_picked", "broker", "features", "ranges")

    def __init__(
        self, ranges: Mapping[int, tuple[int, int]], broker: str = "the broker", features: Mapping[str, int] | None = None
    ) -> None:
        self.ranges = dict(ranges)
        self.broker = broker
        self.features = dict(features or {})
        self._limit = self._how = ""
        self._picked: dict[tuple[int, int | None, bool], int] = {}

    def __repr__(self) -> str:
        return f"<Versions of {self.broker}: {len(self.ranges)} APIs>"

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, broker: str = "the broker") -> Versions:
        """What a broker said of itself. Ranges that make no sense (negative, or upside down) count as not said."""
        said = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
        features = {f.name: f.max_version_level for f in response.finalized_features}
        return cls({key: (low, high) for key, (low, high) in said.items() if 0 <= low <= high}, broker, features)

    @classmethod
    def for_broker(cls, broker_version: str, option: str = "broker_version") -> Versions:
        """What a release of Kafka speaks.

        broker_version: "0.8.2", "0.8.2.2", "0.9.0" ... "4.2"; the part that is left out is the oldest there is ("0.10" is 0.10.0).
        option: where it stands. Raises ConfigurationError on anything else.
        """
        release = _release(broker_version, option)
        ranges = {key: (_OLDEST_OF_KAFKA_4.get(key, 0) if release[0] >= 4 else 0, newest) for key, newest in _ROWS[release].items()}
        return cls(ranges, f"Kafka {broker_version}")

    def assumed_of(self, broker: str, how: str) -> Versions:
        """These, of a broker that has not said so itself. how: who says so, for error texts."""
        self.broker, self._how = broker, f" ({how})"
        return self

    def at_most(self, broker_version: str) -> Versions:
        """The same without what a release of Kafka does not have yet: one broker's part in what a client says that all of its brokers speak.

        How a client says what it speaks, and who it is, is not bounded: nothing that it can do hangs on that.
        """
        newest = {**_ROWS[_release(broker_version)], **{key: high for key, (_, high) in self.ranges.items() if key in _OPENING}}
        is_of_kafka_4 = self.ranges.get(1, (0, 0))[0] >= _OLDEST_OF_KAFKA_4[1]
        lowest = {0: _OLDEST_OF_KAFKA_4[0]} if is_of_kafka_4 else {}
        bounded = {key: (max(low, lowest.get(key, 0)), min(high, newest[key])) for key, (low, high) in self.ranges.items() if key in newest}
        versions = Versions(bounded, self.broker, self.features)
        option = broker_version.option if isinstance(broker_version, NamedRelease) else "max_broker_version"
        versions._limit = f"{option}={str.__str__(broker_version)!r}"
        return versions

    @property
    def release(self) -> tuple[int, ...]:
        """The newest release of Kafka that speaks no more than this, as (2, 8): told by the APIs that all clients use."""
        return max((release for release, row in _ROWS.items() if self._covers(row)), default=min(_ROWS))

    def _covers(self, row: Mapping[int, int]) -> bool:
        return all(self.ranges.get(key, (0, -1))[1] >= newest for key, newest in row.items() if key in _EVERYDAY)

    def supports(self, api: Api, version: int) -> bool:
        """Whether both sides have this version."""
        low, high = self.ranges.get(api.key, (0, -1))
        return low <= version <= high and version in api.versions

    def pick(self, api: Api, *, max_version: int | None = None, unstable: bool = False) -> int:
        """The newest version that both sides have, `max_version` at most.

        unstable: take also versions that Kafka may still change, if the broker offers them.
        Raises UnsupportedVersion if there is none.
        """
        version = self._picked.get((api.key, max_version, unstable))
        if version is not None:
            return version
        ours = api.versions if unstable else api.stable
        newest = ours.high if max_version is None else min(ours.high, max_version)
        low, high = self.ranges.get(api.key, (0, -1))
        version = min(newest, high)
        if version < max(ours.low, low):
            raise UnsupportedVersion(self._no_common(api, VersionRange(ours.low, newest)), api=api.name, broker=self.broker)
        self._picked[api.key, max_version, unstable] = version
        return version

    def pick_for(self, message: Message, *, max_version: int | None = None) -> int:
        """The version for this request: `pick`, held back by what the request contains (topics without an id: not by id).

        Raises UnsupportedVersion, too, where that would be older than what the request contains.
        """
        newest = message.newest_version()
        version = self.pick(message.API, max_version=newest if max_version is None else min(newest, max_version))
        oldest, what = message.oldest_version()
        if version < oldest:
            raise UnsupportedVersion(self._too_old(message.API, version, oldest, what), api=message.API.name, broker=self.broker)
        return version

    def _too_old(self, api: Api, version: int, oldest: int, what: str) -> str:
        since = min((release for release, row in _ROWS.items() if row.get(api.key, -1) >= oldest), default=max(_ROWS))
        told = f"{what} takes {api.name} v{oldest}, which Kafka has since {'.'.join(map(str, since))}"
        if self._limit and self.ranges.get(api.key, (0, -1))[1] < oldest:
            return f"{told}; {self.broker}{self._how} is asked as one of {self._limit}: give a newer release, or leave it out"
        return f"{told}; {self.broker}{self._how} is asked by v{version}"

    def _no_common(self, api: Api, ours: VersionRange) -> str:
        low, high = self.ranges.get(api.key, (0, -1))
        if self._limit and high < max(ours.low, low):
            said = f"{self._limit} leaves nothing of {api.name} (API {api.key}) that {self.broker} and gkafka both speak"
            return f"{said}: give a newer release, or leave it out"
        if api.key not in self.ranges:
            return f"{self.broker}{self._how} does not have {api.name} (API {api.key}); gkafka speaks v{ours}"
        return f"{self.broker}{self._how} speaks {api.name} v{VersionRange(*self.ranges[api.key])}, gkafka can send v{ours}"


def newest_release_before(given: Release) -> tuple[str, bool]:
    """The newest release of the table that is no newer than this version, from 0.8.2 on; and whether the version is newer than all of the table."""
    newest, given = max(_ROWS), (*given, 0, 0)[:3]
    return ".".join(map(str, max(row for row in _ROWS if row <= given))), given[: len(newest)] > newest


def _parse_table() -> dict[Release, dict[int, int]]:
    _, keys, *rows = (line.split() for line in _TABLE.strip().splitlines())
    table: dict[Release, dict[int, int]] = {
        _numbers(release): {int(key): int(newest) for key, newest in zip(keys[1:], row, strict=True) if newest != "-"}
        for release, *row in rows
    }
    for key, _, *steps in (line.split() for line in _ADMIN_TABLE.strip().splitlines()):
        for since, _, newest in (step.partition(":") for step in steps):
            first = _numbers(since)
            for release, row in table.items():
                if release >= first:
                    row[int(key)] = int(newest)
    return table


def _numbers(text: str) -> Release:
    return tuple(map(int, text.split(".")))


_ROWS = _parse_table()


def _release(text: str, option: str = "") -> Release:
    """The row for a version as users write it. A release of Kafka 4 that is newer than the table counts as the newest row."""
    given = _numbers(text) if isinstance(text, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", text, re.ASCII) else ()
    newest = max(_ROWS)
    if given[:1] == newest[:1] and given > newest:
        return newest
    fitting = [row for row in _ROWS if given and row[: len(given)] == given[: len(row)]]
    if not fitting:
        known = ", ".join(".".join(map(str, row)) for row in _ROWS)
        raise ConfigurationError(f"{option}={text!r}: not a release that is known here; give one of {known}")
    return fitting[0]
