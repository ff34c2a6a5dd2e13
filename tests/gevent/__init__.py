"""The acceptance tests of greenlets, by number: a hub that never stalls, and a client that survives kills, forks, signals and other threads.

Each number runs as a user would start it: in a process of its own, with gevent unpatched and patched, and where it says so on OS threads
(`harness.in_child`). What measures stalls, or needs real Kafka, is in `live/`, which runs alone.

Some numbers are tested where their room is: 14 in `tests/public/test_killed.py`, 20 in `tests/handlers/test_selection.py`, 28 in
`tests/handlers/test_contract.py`; `test_13_kills.py`, `test_24_callbacks.py` and `test_28_contract.py` play such suites in a patched process. 19 is
LATE in tests 1 to 5 and 8, and `test_19_patched_after_construction.py`.

Of 26, exits in each state are in `tests/public/test_exit.py` and what is dropped or closed in `tests/public/test_leaks.py`; of 15, what a child is told
by each call is in `tests/public/test_forks.py`; of 25, shots at each line are in `tests/public/test_interrupted_greenlets.py`. 16 to 18 and 33 run README's
recipes (`live/recipes.py`). 30 takes a minute, and ten minutes in `make soak`.
"""
