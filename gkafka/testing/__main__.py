"""`python -m gkafka.testing kafka FOLDER`: see gkafka.testing.localkafka."""

from __future__ import annotations

import sys

from gkafka.testing.localkafka import main

sys.exit(main())
