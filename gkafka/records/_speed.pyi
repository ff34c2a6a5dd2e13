"""The compiled implementation has the types of its Python twin."""

from gkafka.records._pure import *  # noqa: F403
from gkafka.records._pure import decode_columns as decode_columns
