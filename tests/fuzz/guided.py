"""One target by atheris, which is guided by coverage: `python -m tests.fuzz.guided batches-python -max_total_time=60`.

What follows the target's name goes to libFuzzer. The inputs that it finds worth keeping stay in tests/fuzz/.atheris; a crash is written to the
working directory. Needs the package atheris, which is in no requirements of ours.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["gkafka"]):
    from tests.fuzz.targets import CORPUS, TARGETS, corpus, survives


def main(name: str, rest: list[str]) -> None:
    """It does not come back."""
    target = TARGETS[name]
    folder = CORPUS.parent / ".atheris" / name
    folder.mkdir(parents=True, exist_ok=True)
    seeds = [*target.seeds(), *corpus(name)]
    for data in seeds:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def one(data: bytes) -> None:
        survives(target, data)

    def mutate(data: bytes, most: int, seed: int) -> Any:
        chance = random.Random(seed)
        changed = target.mutate(data, chance, seeds) if chance.random() < 0.5 else atheris.Mutate(data, len(data))
        return changed[:most]

    atheris.Setup([sys.argv[0], *rest, str(folder)], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
