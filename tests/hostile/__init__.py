"""Peers that mean harm, or speak nonsense: brokers, other members of a group, other producers, ZooKeeper. See SECURITY.md."""
