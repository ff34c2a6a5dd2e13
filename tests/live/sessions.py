"""Sessions of ZooKeeper, ended as ZooKeeper ends them."""

from __future__ import annotations

from kazoo.client import KazooClient

__all__ = ["end_session"]


def end_session(hosts: str, client_id: tuple[int, bytes]) -> bool:
    """Take a session over, by its id and password, and close it. False: its owner may have had it back before that, call it once more."""
    twin = KazooClient(hosts, client_id=client_id)
    twin.start()
    found = twin.client_id[0]
    twin.stop()
    twin.close()
    return bool(found != client_id[0])
