"""Runs one scenario: python -m tests.gevent.child MODE MODULE:FUNCTION ARGUMENTS TIMEOUT. The last line it prints is the result, as JSON."""

import sys

if sys.argv[1] == "patched":
    from gevent import monkey

    monkey.patch_all()

import faulthandler
import gc
import importlib
import json
from typing import Any


def main(mode: str, where: str, arguments: str, timeout: str) -> None:
    faulthandler.dump_traceback_later(float(timeout), exit=True)
    from tests.gevent import harness

    harness.mode = mode
    module, _, name = where.partition(":")
    scenario: Any = importlib.import_module(module)
    for part in name.split("."):
        scenario = getattr(scenario, part)
    gc.collect()
    gc.freeze()  # what was imported is no garbage, and no stall of gkafka's
    print(json.dumps(scenario(*json.loads(arguments))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
