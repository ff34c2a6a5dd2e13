"""The Python twin of `gkafka.records._speed`: the same names, results and errors, without a compiler."""

from __future__ import annotations

from gkafka.records._pure_columns import *  # noqa: F403
from gkafka.records._pure_crc import *  # noqa: F403
from gkafka.records._pure_encode import *  # noqa: F403
from gkafka.records._pure_lane import *  # noqa: F403
from gkafka.records._pure_read import *  # noqa: F403
from gkafka.records._pure_run import *  # noqa: F403
from gkafka.records._pure_sums import *  # noqa: F403
from gkafka.records._pure_write import *  # noqa: F403
