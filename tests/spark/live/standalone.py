"""A standalone Spark cluster on the loopback: a master and workers, each a JVM of its own, from the jars of the pyspark that is installed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from signal import SIGTERM
from types import TracebackType
from unittest.mock import patch

import pyspark

from tests.live.jvm import Jvm, StartError, free_ports, wait_for

__all__ = ["StandaloneSpark"]

HOME = Path(pyspark.__file__).parent
START_S = 120.0
TRIES = 3


class StandaloneSpark:
    """One core and 1 GiB for each worker. A context manager.

    environment: of the workers, and so of the executors and of their Python, beside the caller's without its PYTHONPATH.
    """

    def __init__(self, folder: Path, *, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.url = ""
        self._folder, self._count, self._environment = folder, workers, dict(environment or {})
        self._jvms: list[Jvm] = []

    def __enter__(self) -> StandaloneSpark:
        for attempt in range(1, TRIES + 1):
            try:
                self._start()
                break
            except BaseException as error:
                self.stop()
                if not isinstance(error, StartError) or not error.clash or attempt == TRIES:
                    raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """The workers first: they end their executors."""
        for jvm in reversed(self._jvms):
            jvm.kill(SIGTERM)
            jvm.forget()
        self._jvms = []

    @property
    def logs(self) -> str:
        """What the processes said last, for a test that failed."""
        files = [*self._folder.glob("*/log.txt"), *self._folder.rglob("stderr")]
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-1500:]}" for file in sorted(files))

    def _start(self) -> None:
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        master = self._jvm("master", "org.apache.spark.deploy.master.Master", "--port", str(port))
        wait_for(master, lambda: _listens(port), what="listening", timeout=START_S)
        for number in range(1, self._count + 1):
            own = ["--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"worker-{number}" / "work")]
            self._jvm(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *own, self.url)

    def _jvm(self, name: str, main: str, *given: str) -> Jvm:
        classpath = [HOME / "jars" / "*"]
        command = [main, "--host", "127.0.0.1", "--webui-port", "0", *given]
        jvm = Jvm(f"Spark's {name}", self._folder / name, classpath, command)
        self._jvms.append(jvm)
        settings = {
            "SPARK_HOME": str(HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": "",
            **self._environment,
        }
        with patch.dict(os.environ, settings):
            jvm.start()
        return jvm


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
