"""The acceptance tests of greenlets, by number: a hub that never stalls, and a client that survives kills, forks, signals and other threads.

Each number runs as a user would start it: in a process of its own, with gevent unpatched and patched, and where it says so on OS threads
(`harness.in_child`). What measures stalls, or needs real Kafka, is in `live/`, which runs alone. U, P, L, T: unpatched, patched, patched after gkafka was
imported, on OS threads. A stall is judged with the garbage collector off; what the collector adds, with gkafka and without, is `live/test_01_collected.py`.

| number | what it shows | where, and in which forms |
|---|---|---|
| 1 | 5,000 greenlets send 10 records each and wait: no stall above 20 ms, each record has its place, nothing is left to the collector, 20,000 records for a second of CPU | `live/test_01_sync_sends.py` U P L; the rate by the clock and p99: `benchmarks/run.py --only greenlets`; with the collector: `live/test_01_collected.py` U P |
| 2 | 10,000 greenlets, a record each: no stall above 20 ms, a second of CPU for all, each told its own record's offset (real Kafka) | `live/test_02_own_delivery.py` U P L |
| 3 | 100,000 `produce()` in a loop: no stall above 10 ms, 100 turns of others in each second | `live/test_03_tight_loop.py` U P L |
| 4 | brokers down: 13 calls return at their 3 s, within 0.2 s | `live/test_04_broker_down.py` U P L |
| 5 | a poll of 5 s, also while the group joins and rebalances | `live/test_05_poll.py` U P L |
| 6 | 500,000 records of 1 KB in large fetches, 60,000 for a second of CPU | `live/test_06_consume.py` U P |
| 7 | batches of 1 MB in each codec, there and back | `live/test_07_codecs.py` U P; the rate beside compression in the hub: `benchmarks/run.py --only greenlets` |
| 8 | a slow TLS broker, contexts of all three kinds | `live/test_08_tls.py` U P L |
| 9 | a resolver that takes 2 s; a thread pool that is all taken | `live/test_09_resolver.py` U P |
| 10 | peers that never answer, stand still, or never accept | `live/test_10_silent_brokers.py` U P |
| 11 | readers of 20 brokers and 50 partitions: no stall above 25 ms | `live/test_11_many_brokers.py` U P |
| 12 | idle for 10 s: 0.5 % of a core, 20 wake-ups a second | `live/test_12_idle.py` U P T |
| 13 | 2,000 sends cut off at random, and polls: log, counts, memory, positions | `live/test_13_kills.py` U P (real Kafka); `tests/public/test_killed.py` U, and P by `test_13_kills.py` |
| 14 | a `flush()` or `close()` that was killed is finished by the next | `tests/public/test_killed.py` U, and P by `test_13_kills.py` |
| 15 | a fork, both sides send 300, by os.fork, multiprocessing, Popen, gevent.os.fork and as gipc does, refused and with on_fork="recreate" | `live/test_15_forks.py` U P T; what each call tells a child: `tests/public/test_forks.py` |
| 16, 17 | gunicorn and uWSGI by README's lines, SIGTERM with records pending; the master's client is refused in its workers | `live/test_16_gunicorn.py`, `live/test_17_uwsgi.py` |
| 18 | celery: 5,000 tasks in 500 greenlets; processes | `live/test_18_celery.py` |
| 19 | patched after the import: tests 1 to 5 and 8 in form L; patched after construction: an error | `test_19_patched_after_construction.py` |
| 20 | which handler is chosen, what importing does | `tests/handlers/test_selection.py` |
| 21 | other OS threads produce: delivered or refused by name | `live/test_21_foreign_threads.py` U P |
| 22 | two hubs, 10,000 records each; eight threads on one client | `live/test_21_foreign_threads.py` U P, T |
| 23 | brokers down for 30 s, all greenlets wait in gkafka: no LoopExit, and on within the backoff | `live/test_23_brokers_return.py` U P |
| 24 | listeners and callbacks that raise, wait, call in; 100 callbacks of 0.2 s of CPU keep the membership | `live/test_24_listeners.py` U P; callbacks: `tests/public/test_callbacks.py` U T, and P by `test_24_callbacks.py` |
| 25 | SIGINT and SIGTERM, idle, consuming and busy; a second SIGINT | `live/test_25_signals.py` U P T; shots at each line: `tests/public/test_interrupted_greenlets.py`, `test_interrupted_consumers.py` |
| 26 | exits without close; 100 clients dropped | `live/test_26_exit.py` U P T; in each state: `tests/public/test_exit.py`, `test_leaks.py` |
| 27 | no lock is held when a greenlet switches out | `test_27_no_lock_held.py` U P |
| 28 | the handlers' contract | `tests/handlers/test_contract.py`, `test_greenlets.py`, `tests/net/test_stream.py` U T, and P by `test_28_contract.py` |
| 29 | kazoo's handler is of the client's kind; ZooKeeper stalls nobody | `live/test_29_kazoo.py` U P T |
| 30 | a thousand writers, four members, restarts and kills | `live/test_30_soak.py`: a minute U, in `make test`; **ten minutes U and P: `make soak`** |
| 31 | the application computes for less and for more than a session | `live/test_31_cpu_bound.py` U P: a session of 6 s; **of 45 s with 10 s and 60 s of work: `make soak`** |
| 32 | no GIL: refused with what to do; other interpreters keep the contract | `test_32_without_the_gil.py`; `live/test_32_interpreters.py`: the contract; **all of tests/handlers: `make soak`** |
| 33 | Spark's workers: threads, delivered when the task ends | `live/test_33_spark.py` |
| 34 | while 1 to 8 run, no greenlet keeps its turn for 20 ms | `live/test_34_switches.py` U P: every scenario of 1 to 8 |

Numbers without a mode are played by programs that choose for themselves. Recipes of README without a number: `live/test_recipes.py`.

What `make test` leaves out, and who plays it; all else above is in `make test`. `test_forms.py` holds this table against what pytest collects.

| test | mark | forms left out |
|---|---|---|
| `live/test_01_sync_sends.py` | thorough | P L: U stands for them |
| `live/test_01_collected.py` | thorough | U: P stands for it |
| `live/test_24_listeners.py` | thorough | 100 callbacks of 0.2 s of CPU; 40 are in `make test` |
| `live/test_30_soak.py` | soak | ten minutes, U and P |
| `live/test_31_cpu_bound.py` | soak | a session of 45 s, 10 s and 60 s of work |
| `live/test_32_interpreters.py` | thorough | the contract on all interpreters but the first |
| `live/test_32_interpreters.py` | soak | all of tests/handlers |
| `live/test_33_spark.py` | thorough | all of it: a recipe of `live/test_recipes.py` is the same in one more Spark |
"""
