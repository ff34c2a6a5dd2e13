"""The acceptance tests of greenlets, by number: a hub that never stalls, and a client that survives kills, forks, signals and other threads.

Each number runs as a user would start it: in a process of its own, with gevent unpatched and patched, and where it says so on OS threads
(`harness.in_child`). What needs real Kafka, or the broker that is as fast as the wire, is in `live/`. U, P, L, T: unpatched, patched, patched after gkafka was
imported, on OS threads.

"Free hub": nothing makes the hub's thread sleep but the poll of its own loop. Linux counts it, on a busy machine as on any (`harness.HubWatch`). How long the hub is kept from
turning, what an idle client costs and what the collector takes is measured by `benchmarks/stalls.py` (`make stalls`), rates by `benchmarks/run.py --only greenlets`.

| number | what it shows | where, and in which forms |
|---|---|---|
| 1 | 2,000 greenlets send 3 records each and wait: free hub, each record has its place, nothing is left to the collector | `live/test_01_sync_sends.py` U P L; one that waits consists of fewer objects than with gevent's own AsyncResult: `live/test_01_collected.py` U P |
| 2 | 10,000 greenlets, a record each: each told its own record's offset (real Kafka); 2,000: free hub | `live/test_02_own_delivery.py` U P L |
| 3 | 100,000 `produce()` in a loop: free hub, and a look whether others are due every 64 records | `live/test_03_tight_loop.py` U P L |
| 4 | brokers down: 13 calls end, not before their 2 s: free hub | `live/test_04_broker_down.py` U P L |
| 5 | waiting for records, also while the group joins and rebalances: free hub | `live/test_05_poll.py` U P L |
| 6 | 100,000 records of 1 KB in large fetches: free hub, and a look whether others are due at each call | `live/test_06_consume.py` U P |
| 7 | batches of 1 MB in each codec, there and back: compressed outside of the hub's thread, free hub where they are read | `live/test_07_codecs.py` U P; the rate beside compression in the hub: `benchmarks/run.py --only greenlets` |
| 8 | a slow TLS broker, contexts of all three kinds: free hub | `live/test_08_tls.py` U P L |
| 9 | a resolver that does not answer is asked outside of the hub's thread, with a deadline; a thread pool that is all taken | `live/test_09_resolver.py` U P |
| 10 | peers that never answer, stand still, or never accept: calls end, free hub | `live/test_10_silent_brokers.py` U P |
| 11 | readers of 20 brokers and 50 partitions: free hub; 3,000 partitions are assigned in steps | `live/test_11_many_brokers.py` U P |
| 12 | idle: each greenlet asks for pauses of half a second and more | `test_12_idle.py` U P |
| 13 | 2,000 sends cut off at random, and polls: log, counts, memory, positions | `live/test_13_kills.py` U P (real Kafka); `tests/public/test_killed.py` U, and P by `test_13_kills.py` |
| 14 | a `flush()` or `close()` that was killed is finished by the next | `tests/public/test_killed.py` U, and P by `test_13_kills.py` |
| 15 | a fork, both sides send 300, by os.fork, multiprocessing, Popen, gevent.os.fork and as gipc does, refused and with on_fork="recreate" | `live/test_15_forks.py` U P T; what each call tells a child: `tests/public/test_forks.py` |
| 16, 17 | gunicorn and uWSGI by the lines of docs/recipes.md, SIGTERM with records pending; the master's client is refused in its workers | `live/test_16_gunicorn.py`, `live/test_17_uwsgi.py` |
| 18 | celery: 1,500 tasks in 500 greenlets; processes | `live/test_18_celery.py` |
| 19 | patched after the import: tests 1 to 5 and 8 in form L; patched after construction: an error | `test_19_patched_after_construction.py` |
| 20 | which handler is chosen, what importing does | `tests/handlers/test_selection.py` |
| 21 | other OS threads produce: delivered or refused by name | `live/test_21_foreign_threads.py` U P |
| 22 | two hubs, 10,000 records each; eight threads on one client | `live/test_21_foreign_threads.py` U P, T |
| 23 | brokers down for 10 s, all greenlets wait in gkafka: no LoopExit, and on when they return | `live/test_23_brokers_return.py` U P |
| 24 | listeners and callbacks that raise, wait, call in; callbacks that compute for more than a session keep the membership | `live/test_24_listeners.py` U P; callbacks: `tests/public/test_callbacks.py` U T, and P by `test_24_callbacks.py` |
| 25 | SIGINT and SIGTERM, idle, consuming and busy; a second SIGINT | `live/test_25_signals.py` U P T; shots at each line: `tests/public/test_interrupted_greenlets.py`, `test_interrupted_consumers.py` |
| 26 | exits without close; 25 clients dropped | `live/test_26_exit.py` U P T; in each state: `tests/public/test_exit.py`, `test_leaks.py` |
| 27 | no lock is held when a greenlet switches out | `test_27_no_lock_held.py` U P |
| 28 | the handlers' contract | `tests/handlers/test_contract.py`, `test_greenlets.py`, `tests/net/test_stream.py` U T, and P by `test_28_contract.py` |
| 29 | kazoo's handler is of the client's kind; ZooKeeper stalls nobody | `live/test_29_kazoo.py` U P T |
| 30 | a thousand writers, four members, restarts and kills | `live/test_30_soak.py`: 32 seconds U, in `make test`; **ten minutes U and P: `make soak`** |
| 31 | the application computes for less and for more than a session | `live/test_31_cpu_bound.py` U P: a session of 8 s; **of 45 s with 10 s and 60 s of work: `make soak`** |
| 32 | no GIL: refused with what to do; other interpreters keep the contract | `test_32_without_the_gil.py`; `live/test_32_interpreters.py`: the contract; **all of tests/handlers: `make soak`** |
| 33 | Spark's workers: threads, delivered when the task ends | `live/test_33_spark.py` |
| 34 | no greenlet keeps its turn: 1 to 11 by what they watch, in figures `benchmarks/stalls.py` | `test_stalls.py` holds how that judges |

Numbers without a mode are played by programs that choose for themselves. Recipes of docs/recipes.md without a number: `live/test_recipes.py`.

What `make test` leaves out, and who plays it; all else above is in `make test`. `test_forms.py` holds this table against what pytest collects.

| test | mark | forms left out |
|---|---|---|
| `live/test_01_sync_sends.py` | thorough | P L: U stands for them |
| `live/test_01_collected.py` | thorough | U: P stands for it |
| `live/test_02_own_delivery.py` | thorough | P L of 10,000 greenlets: U stands for them |
| `live/test_07_codecs.py` | thorough | of each codec U or P |
| `live/test_16_gunicorn.py` | thorough | each line with the handler that its master does not need; SIGTERM among requests |
| `live/test_17_uwsgi.py` | thorough | SIGINT among requests |
| `live/test_18_celery.py` | thorough | 5,000 tasks; 1,500 are in `make test` |
| `live/test_24_listeners.py` | thorough | 60 callbacks of half a second of CPU; 24 are in `make test` |
| `test_19_patched_after_construction.py` | thorough | each patch with and without a rest before it; `patch_all()` alone at the end of the program |
| `live/test_25_signals.py` | thorough | 12 of 18 combinations of signal, state and mode: 6 have each signal in each state and mode |
| `live/test_26_exit.py` | thorough | 100 clients dropped; 25 are in `make test` |
| `live/test_30_soak.py` | soak | ten minutes, U and P |
| `live/test_31_cpu_bound.py` | soak | a session of 45 s, 10 s and 60 s of work |
| `live/test_32_interpreters.py` | thorough | the contract on all interpreters but the first |
| `live/test_32_interpreters.py` | soak | all of tests/handlers |
| `live/test_33_spark.py` | thorough | all of it: a recipe of `live/test_recipes.py` is the same in one more Spark |
"""
