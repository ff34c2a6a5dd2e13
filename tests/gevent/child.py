"""Runs one scenario: python -m tests.gevent.child MODE MODULE:FUNCTION ARGUMENTS TIMEOUT FILE. The file gets the result, as JSON."""

import sys

if sys.argv[1].startswith("patched"):
    from gevent import monkey

    import tests.handlers.noplugins  # noqa: F401  # for what it does

if sys.argv[1] == "patched":
    monkey.patch_all()
elif sys.argv[1] == "patched late":
    import ssl
    import warnings

    import gkafka

    early_context = ssl.create_default_context()
    assert gkafka.KafkaClient
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gevent: "Monkey-patching ssl after ssl has already been imported may lead to errors"
        monkey.patch_all()

import faulthandler
import gc
import importlib
import json
from pathlib import Path
from typing import Any


def main(mode: str, where: str, arguments: str, timeout: str, file: str) -> None:
    faulthandler.dump_traceback_later(float(timeout), exit=True)
    from tests.gevent import harness

    harness.mode = mode
    module, _, name = where.partition(":")
    scenario: Any = importlib.import_module(module)
    for part in name.split("."):
        scenario = getattr(scenario, part)
    gc.collect()
    gc.freeze()  # what was imported is no garbage, and no stall of gkafka's
    Path(file).write_text(json.dumps(scenario(*json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
