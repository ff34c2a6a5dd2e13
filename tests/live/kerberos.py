"""A Kerberos of the test's own: a key server (KDC) of MIT's on the loopback, and a real Kafka that takes its tickets.

Needs krb5kdc, kdb5_util, kadmin.local and kinit, and the package gssapi: INSTALL says how to get them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tests.kit.clock import now
from tests.live.jvm import GUARDIAN, StartError, free_ports
from tests.live.kafka import KafkaCluster

__all__ = ["INSTALL", "REALM", "KerberosKafka", "KeyServer", "missing"]

REALM = "GKAFKA.TEST"
INSTALL = "apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc && make venv"
TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")
PATHS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
START_S = 60.0


def missing() -> list[str]:
    """What of all this is not installed."""
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=PATHS) is None]
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        lacking.append(f"package gssapi: {error}")
    return lacking


class KeyServer:
    """One realm with its database in a folder. env: what makes a program, or this process, ask it. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._settings = folder / "krb5.conf"
        self.env = {"KRB5_CONFIG": str(self._settings), "KRB5_KDC_PROFILE": str(folder / "kdc.conf"), "KRB5RCACHETYPE": "none"}
        self._settings.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        (folder / "kdc.conf").write_text(
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n"
            f"  kdc_listen = 127.0.0.1:{self.port}\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n  max_life = 10h\n }}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Path:
        """The krb5.conf, which Java reads, too."""
        return self._settings

    def __enter__(self) -> KeyServer:
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-the-test")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens."""
        log = self.folder / "kdc.log"
        log.unlink(missing_ok=True)
        with log.open("ab") as output:
            command = [_tool("krb5kdc"), "-n", "-r", REALM, "-P", str(self.folder / "kdc.pid")]
            self._process = subprocess.Popen(command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        GUARDIAN.process(self._process.pid, str(self.folder))
        began = now()
        while "commencing operation" not in log.read_text():
            if self._process.poll() is not None or now() - began > START_S:
                self.stop()
                raise StartError(f"krb5kdc does not serve. From its log:\n{log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            GUARDIAN.ended(process.pid)

    def keytab(self, principal: str) -> Path:
        """Makes a principal with a random key; the file that holds it."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def ticket(self, principal: str, keytab: Path, lifetime: str = "1h") -> Path:
        """A credential cache with a ticket, as `kinit` makes one."""
        path = self.folder / f"cache-{principal}-{lifetime}"
        self.run("kinit", "-k", "-t", str(keytab), "-c", str(path), "-l", lifetime, principal)
        return path

    def expired(self, principal: str, keytab: Path) -> Path:
        """A credential cache whose ticket is over."""
        path = self.ticket(principal, keytab, "1s")
        began = now()
        while subprocess.run([_tool("klist"), "-s", "-c", str(path)], env=self._environment(), check=False).returncode == 0:
            assert now() - began < START_S
            time.sleep(0.05)
        return path

    def run(self, name: str, *arguments: str) -> str:
        done = subprocess.run([_tool(name), *arguments], env=self._environment(), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.env}


class KerberosKafka:
    """A broker with a listener KERBEROS, SASL_PLAINTEXT with GSSAPI alone, whose sessions last session_ms."""

    def __init__(self, keys: KeyServer, stack: ExitStack, session_ms: int) -> None:
        principal = "kafka/127.0.0.1"
        login = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true "
            f'keyTab="{keys.keytab(principal)}" principal="{principal}@{REALM}";'
        )
        listener = "listener.name.kerberos"
        self.cluster = stack.enter_context(
            KafkaCluster(
                "4.2.0",
                listeners={"KERBEROS": "SASL_PLAINTEXT"},
                properties={
                    f"{listener}.sasl.enabled.mechanisms": "GSSAPI",
                    f"{listener}.gssapi.sasl.jaas.config": login,
                    f"{listener}.gssapi.connections.max.reauth.ms": session_ms,
                    f"{listener}.sasl.kerberos.service.name": "kafka",
                },
                flags=[f"-Djava.security.krb5.conf={keys.settings}"],
            )
        )
        (node,) = self.cluster.nodes
        self.port = node.listeners["KERBEROS"]


def _tool(name: str) -> str:
    path = shutil.which(name, path=PATHS)
    assert path is not None, f"{name} is not installed: {INSTALL}"
    return path
