"""Programs that fork, each a process of its own."""

from __future__ import annotations

from tests.public.programs import run_program

__all__ = ["script"]

PREAMBLE = """
    import os, sys, time
    from tests.kit.clock import now
    from tests.public.aids import Held
    from gkafka import KafkaClient
    from gkafka.exceptions import ForkedClientError, KafkaException
    from gkafka.testing import MockCluster

    def in_child(fn):
        # What fn() says in a forked child.
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                text = fn()
            except BaseException as exc:
                text = f"failed: {exc!r}"
            os.write(w, text.encode())
            os._exit(0)
        # One write, one read: in a patched process os.close() is late.
        return os.read(r, 65536).decode()

    def untold(calls):
        # Of these calls by name: what does not raise a ForkedClientError that says what to do at once, and what comes of it.
        found = []
        for name, call in calls.items():
            begun = now()
            try:
                call()
                found.append(f"{name}: nothing")
            except ForkedClientError as exc:
                if now() - begun > 30:
                    found.append(f"{name}: late")
                if str(os.getppid()) not in str(exc) or "after the fork" not in str(exc):
                    found.append(f"{name}: {exc}")
            except BaseException as exc:
                found.append(f"{name}: {exc!r}")
        return found
"""


def script(body: str, handler: str, patched: bool = False, *, hooks: bool = True, alone: bool = False, timeout: float = 110) -> list[str]:
    """The lines that a program prints. HANDLER, in_child and untold are there for its body.

    hooks False: no register_at_fork hook of gkafka runs, as under uWSGI. alone: in an interpreter that has imported nothing before.
    """
    head = "" if hooks else "    import os\n    os.register_at_fork = lambda **hooks: None\n"
    program = head + PREAMBLE + f"    HANDLER = {handler!r}\n" + body
    return run_program(program, patched=patched, alone=alone or not hooks, timeout=timeout).splitlines()
