"""gkafka: a concurrent Apache Kafka client for Python, on OS threads or on greenlets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gkafka.balancedconsumer import BalancedConsumer
    from gkafka.broker import Broker
    from gkafka.client import KafkaClient
    from gkafka.cluster import Cluster
    from gkafka.connection import SslConfig
    from gkafka.interceptors import ProducerInterceptor
    from gkafka.managedbalancedconsumer import ManagedBalancedConsumer
    from gkafka.membershipprotocol import RangeProtocol, RoundRobinProtocol
    from gkafka.partition import Partition
    from gkafka.producer import Producer
    from gkafka.simpleconsumer import SimpleConsumer
    from gkafka.topic import Topic

__version__ = "0.1.0"
__all__ = [
    "BalancedConsumer",
    "Broker",
    "Cluster",
    "KafkaClient",
    "ManagedBalancedConsumer",
    "Partition",
    "Producer",
    "ProducerInterceptor",
    "RangeProtocol",
    "RoundRobinProtocol",
    "SimpleConsumer",
    "SslConfig",
    "Topic",
]

_HOMES = {
    "BalancedConsumer": "balancedconsumer",
    "Broker": "broker",
    "Cluster": "cluster",
    "KafkaClient": "client",
    "ManagedBalancedConsumer": "managedbalancedconsumer",
    "Partition": "partition",
    "Producer": "producer",
    "ProducerInterceptor": "interceptors",
    "RangeProtocol": "membershipprotocol",
    "RoundRobinProtocol": "membershipprotocol",
    "SimpleConsumer": "simpleconsumer",
    "SslConfig": "connection",
    "Topic": "topic",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import gkafka` costs little and imports none of the optional packages.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gkafka' has no attribute {name!r}")
    import importlib

    try:
        module = importlib.import_module(f"gkafka.{home}")
    except AttributeError as exc:
        # Python would take it for this module's own and say no more than "cannot import name".
        raise ImportError(f"gkafka.{home} does not load: {exc}") from exc
    if name == "KafkaClient":
        module.load_all()
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
