"""The fixtures of the public suite: threads and greenlets, brokers in this process."""

from tests.public.conftest import client, connect, run

__all__ = ["client", "connect", "run"]
