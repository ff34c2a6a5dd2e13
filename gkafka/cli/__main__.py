"""`python -m gkafka.cli`: the same as `kafka-tools`."""

from __future__ import annotations

import sys

from gkafka.cli.kafka_tools import main

sys.exit(main())
