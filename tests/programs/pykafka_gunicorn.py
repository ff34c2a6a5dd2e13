# topic: partitions=2
# expect: 2 workers, a partition each
# expect: 40 handled, each once: True
# expect: by one worker per partition: True
# expect: the server has ended: 0
# committed: 0=20 1=20
"""A web application under gunicorn, each of whose two workers has a member of one group, beside its requests."""

import json
import os
import sys
import threading

from gunicorn.app.base import BaseApplication
from pykafka import KafkaClient
from pykafka.common import OffsetType

HOSTS, TOPIC, GROUP = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
reports, report = os.pipe()


class Member(threading.Thread):
    """What a worker runs beside its requests."""

    def __init__(self):
        threading.Thread.__init__(self, daemon=True)
        self.client = KafkaClient(hosts=HOSTS)
        self.consumer = self.client.topics[TOPIC].get_balanced_consumer(
            consumer_group=GROUP, managed=True, auto_commit_enable=True, auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=200
        )
        self.going = True

    def run(self):
        owned = None
        while self.going:
            if owned != (owned := sorted(self.consumer.partitions)):
                self.tell(owns=owned)
            message = self.consumer.consume()
            if message is not None:
                self.tell(partition=message.partition_id, value=int(message.value))

    def tell(self, **what):
        os.write(report, json.dumps({"worker": os.getpid(), **what}).encode() + b"\n")

    def stop(self):
        self.going = False
        self.join(30)
        self.consumer.stop()


class Server(BaseApplication):
    def load_config(self):
        settings = {"bind": "127.0.0.1:0", "workers": 2, "timeout": 60, "graceful_timeout": 50, "loglevel": "critical"}
        hooks = {"post_worker_init": begin, "worker_exit": end}
        for name, value in {**settings, **hooks}.items():
            self.cfg.set(name, value)

    def load(self):
        return application


def application(environ, start_response):
    start_response("200 OK", [])
    return [b"it runs"]


def begin(worker):
    worker.member = Member()
    worker.member.start()


def end(server, worker):
    if hasattr(worker, "member"):
        worker.member.stop()


def serve():
    try:
        Server().run()
    except SystemExit as ended:
        os._exit(ended.code or 0)


master = os.fork()
if not master:
    os.close(reports)
    serve()

os.close(report)
owned, handled = {}, []
with os.fdopen(reports) as lines:
    while sorted(owned.values()) != [[0], [1]]:
        told = json.loads(lines.readline())
        owned[told["worker"]] = told["owns"]
    print(f"{len(owned)} workers, a partition each")
    client = KafkaClient(hosts=HOSTS)
    with client.topics[TOPIC].get_sync_producer(partitioner=lambda all, key: sorted(all, key=lambda one: one.id)[int(key) % 2]) as producer:
        for number in range(40):
            producer.produce(b"%d" % number, partition_key=b"%d" % number)
    while len(handled) < 40:
        told = json.loads(lines.readline())
        if "value" in told:
            handled.append((told["partition"], told["worker"], told["value"]))
    os.kill(master, 15)
    handled += [told for told in map(json.loads, lines) if "value" in told]

print(f"{len(handled)} handled, each once: {sorted(value for _, _, value in handled) == list(range(40))}")
print("by one worker per partition:", len({(partition, worker) for partition, worker, _ in handled}) == 2)
print("the server has ended:", os.waitstatus_to_exitcode(os.waitpid(master, 0)[1]))
