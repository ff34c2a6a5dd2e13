"""The acceptance tests of greenlets, by number: a hub that never stalls, and a client that survives kills, forks, signals and other threads.

Each number runs as a user would start it: in a process of its own, with gevent unpatched and patched, and where it says so on OS threads
(`harness.in_child`). What measures stalls, or needs real Kafka, is in `live/`, which runs alone.
"""
