# cython: language_level=3, embedsignature=True
"""OwnedLock, compiled; `mutexes.py` has its twin. Some twenty are taken and given back for each request: here that is a half of the time."""

from cpython.exc cimport PyErr_CheckSignals

from time import monotonic

cdef extern from "pythread.h" nogil:
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait)
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int may_be_interrupted)
    void PyThread_release_lock(PyThread_type_lock lock)
    unsigned long PyThread_get_thread_ident()
    int PY_LOCK_ACQUIRED, PY_LOCK_INTR

LONGEST_S = 1e6
"""What C's microseconds hold."""


cdef class OwnedLock:
    """See the twin."""

    cdef PyThread_type_lock _lock
    cdef unsigned long _owner  # 0: nobody. Only its holder finds its own number there
    cdef object __weakref__

    def __cinit__(self):
        self._owner = 0
        self._lock = PyThread_allocate_lock()
        if self._lock is NULL:
            raise MemoryError("no memory for a lock")

    def __dealloc__(self):
        if self._lock is not NULL:
            if self._owner:
                PyThread_release_lock(self._lock)
            PyThread_free_lock(self._lock)

    def __enter__(self):
        cdef unsigned long me = PyThread_get_thread_ident()
        if self._owner == me:
            self._refuse()
        if PyThread_acquire_lock(self._lock, 0):
            self._owner = me
            return True
        try:
            return self._wait()
        except BaseException:  # a signal handler's, in there, when it was just taken
            if self._owner == me:
                self._give_back()
            raise

    def __exit__(self, kind, error, trace):
        self._give_back()

    cdef int _give_back(self) except -1:
        if self._owner != PyThread_get_thread_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._owner = 0
        PyThread_release_lock(self._lock)
        return 0

    def release(self):
        self._give_back()

    def take(self, double seconds=0.0):
        cdef long long left = 0
        cdef int got
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef double until
        if PyThread_acquire_lock(self._lock, 0):
            self._owner = me
            return True
        if seconds <= 0:
            return False
        until = monotonic() + min(seconds, LONGEST_S)
        while True:
            left = <long long> (max(0.0, until - monotonic()) * 1e6)
            with nogil:
                got = PyThread_acquire_lock_timed(self._lock, left, 1)
                if got == PY_LOCK_ACQUIRED:
                    self._owner = me
            if got == PY_LOCK_ACQUIRED:
                return True
            if got != PY_LOCK_INTR:
                return False
            PyErr_CheckSignals()

    def is_mine(self):
        return self._owner == PyThread_get_thread_ident()
