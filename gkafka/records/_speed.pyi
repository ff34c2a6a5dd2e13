"""The compiled implementation has the types of its Python twin."""

from gkafka.records._pure import *
from gkafka.records._pure import decode_columns as decode_columns
