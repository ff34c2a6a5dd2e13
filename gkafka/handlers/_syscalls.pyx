# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, embedsignature=True
"""What workers do to their sockets beside threads that compute: without a wait for the interpreter's lock in between, or with one that is known.

Python's own calls give the lock away and get it back, which takes as long as the other thread decodes. So the next request would be out, but its answer
not be received before that one has nothing more to do: receiving and decoding would take turns. Whoever wants the lock gets it after 5 ms, unless its holder
lets go before: `hand_over()` does so where somebody is known to want it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EEXIST, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t length, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen


cdef extern from "<sys/epoll.h>" nogil:
    union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int polled, int operation, int fd, epoll_event* event)
    int epoll_wait(int polled, epoll_event* events, int most, int timeout)
    int EPOLLIN, EPOLL_CTL_ADD, EPOLL_CLOEXEC

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int count, int flags)
    int EFD_NONBLOCK, EFD_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* buffer, size_t length)
    ssize_t write(int fd, const void* buffer, size_t length)
    int close(int fd)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from *:
    """
    static int gkafka_back = 0;
    #define gkafka_is_back() __atomic_add_fetch(&gkafka_back, 1, __ATOMIC_RELAXED)
    #define gkafka_goes_on() __atomic_sub_fetch(&gkafka_back, 1, __ATOMIC_RELAXED)
    #define gkafka_wanted() __atomic_load_n(&gkafka_back, __ATOMIC_RELAXED)
    """
    int gkafka_is_back() nogil
    int gkafka_goes_on() nogil
    int gkafka_wanted() nogil

cdef enum:
    MOST_BUFFERS = 1024  # IOV_MAX
    MOST_EVENTS = 64
    MOST_MS = 1000000
    SMALL_REQUEST = 4096  # bytes: so many are in the kernel sooner than another thread has the interpreter's lock
    MOST_YIELDS = 1000  # some 0.3 ms: a thread that is woken on another processor needs 0.05


cdef class Alarm:
    """What one thread sleeps on: an Event that is set by bytes for the connections it watches, too. ready: the descriptors of those that have something to
    say, since the last wait.

    waits: it was set while its thread slept, and that has not gone on yet.
    """

    cdef int polled, told
    cdef bint flag, sleeps, waits
    cdef readonly list ready
    cdef object __weakref__

    def __cinit__(self):
        self.polled = self.told = -1
        self.ready = []

    cdef int begin(self) except -1:
        """At its first use: who is made and never works has no descriptors."""
        cdef epoll_event event
        cdef int polled = epoll_create1(EPOLL_CLOEXEC)
        cdef int told = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) if polled >= 0 else -1
        cdef int error = errno
        if told < 0:
            if polled >= 0:
                close(polled)
            raise OSError(error, os.strerror(error))
        event.events = EPOLLIN
        event.data.fd = told
        epoll_ctl(polled, EPOLL_CTL_ADD, told, &event)
        self.polled, self.told = polled, told

    def __dealloc__(self):
        self.end()

    def close(self):
        """Its thread ends: nothing is watched any more, and its descriptors are closed."""
        self.end()

    cdef void end(self) noexcept:
        if self.polled >= 0:
            close(self.polled)
            close(self.told)
        self.polled = self.told = -1

    def watch(self, int fd):
        """Have bytes for that descriptor end its sleep, until it is closed. Raises OSError."""
        cdef epoll_event event
        if self.polled < 0:
            self.begin()
        event.events = EPOLLIN
        event.data.fd = fd
        if epoll_ctl(self.polled, EPOLL_CTL_ADD, fd, &event) < 0 and errno != EEXIST:
            raise OSError(errno, os.strerror(errno))

    def set(self):
        cdef uint64_t one = 1
        self.flag = True
        if self.sleeps:
            self.sleeps = False
            self.waits = True
            write(self.told, &one, sizeof(one))

    def clear(self):
        self.flag = False

    def is_set(self):
        return self.flag

    def wait(self, timeout=None):
        """Sleep until it is set or a watched descriptor has something to say; at most timeout seconds. Is it set?"""
        cdef epoll_event events[MOST_EVENTS]
        cdef uint64_t drained
        cdef int n, count, most = -1
        if self.polled < 0:
            self.begin()
        if self.flag:
            count = epoll_wait(self.polled, events, MOST_EVENTS, 0)
        else:
            if timeout is not None:
                most = <int> min(MOST_MS, max(0.0, timeout * 1000 + 0.999))
            self.sleeps = True
            with nogil:
                count = epoll_wait(self.polled, events, MOST_EVENTS, most)
                gkafka_is_back()
            gkafka_goes_on()
            self.sleeps = self.waits = False
        self.ready = []
        for n in range(count):
            if events[n].data.fd == self.told:
                read(self.told, &drained, sizeof(drained))
            else:
                self.ready.append(events[n].data.fd)
        return self.flag


def hand_over(Alarm alarm not None):
    """Let go of the interpreter's lock until the thread of this alarm, if it was woken, and who is back from a system call of this module, has had it; a
    moment at most.
    """
    cdef int n = 0
    if not (alarm.waits or gkafka_wanted()):
        return
    with nogil:
        while (alarm.waits or gkafka_wanted()) and n < MOST_YIELDS:
            sched_yield()
            n += 1


def receive_now(int fd, view):
    """What has come of a connection, with the lock held: how many bytes, 0 at its end. Raises OSError, BlockingIOError for none."""
    cdef Py_buffer there
    cdef ssize_t received
    PyObject_GetBuffer(view, &there, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        received = recv(fd, there.buf, there.len, MSG_DONTWAIT)
        if received < 0:
            raise OSError(errno, os.strerror(errno))
        return received
    finally:
        PyBuffer_Release(&there)


cdef inline int64_t _now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


def receive_frame(int fd, stage, buffer, double seconds):
    """Wait in recv(), as long as the socket's SO_RCVTIMEO lets it, for what fits into the stage. If that begins with the size of a frame that is larger
    than the stage and fits into the buffer, go on with it there: all of it, or what comes within `seconds`, or until a signal.

    How many bytes are in the stage, and how many of that frame, without its size, in the buffer, which has those of the stage as well. (-1, 0): none
    came. Raises OSError.
    """
    cdef Py_buffer first, rest
    cdef ssize_t staged = 0, got = 0, more = 0, wanted = 0
    cdef unsigned char* p
    cdef int error = 0
    cdef int64_t until
    PyObject_GetBuffer(stage, &first, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(buffer, &rest, PyBUF_SIMPLE | PyBUF_WRITABLE)
    except BaseException:
        PyBuffer_Release(&first)
        raise
    try:
        with nogil:
            staged = recv(fd, first.buf, first.len, 0)
            if staged < 0:
                error = errno
            elif staged >= 4:
                p = <unsigned char*> first.buf
                wanted = <ssize_t> ((<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | <uint32_t> p[3])
                if first.len < wanted <= rest.len:
                    memcpy(rest.buf, p + 4, staged - 4)
                    got = staged - 4
                    until = _now_ns() + <int64_t> (seconds * 1e9)
                    while got < wanted:
                        more = recv(fd, <unsigned char*> rest.buf + got, wanted - got, 0)
                        if more <= 0:
                            if more < 0:
                                error = errno
                            break
                        got += more
                        if _now_ns() >= until:
                            break
            gkafka_is_back()
        gkafka_goes_on()
    finally:
        PyBuffer_Release(&rest)
        PyBuffer_Release(&first)
    if error not in (0, EAGAIN, EINTR):
        raise OSError(error, os.strerror(error))
    return staged, got


def send_now(int fd, list buffers, Py_ssize_t size):
    """What the kernel takes of these buffers at once: how many bytes; size: all of theirs. A few are handed over with the lock held. Raises OSError,
    BlockingIOError for none.
    """
    cdef Py_buffer views[MOST_BUFFERS]
    cdef iovec pieces[MOST_BUFFERS]
    cdef msghdr message
    cdef int count = 0, error = 0, n
    cdef ssize_t sent
    memset(&message, 0, sizeof(message))
    try:
        for data in buffers:
            if count == MOST_BUFFERS:
                break
            PyObject_GetBuffer(data, &views[count], PyBUF_SIMPLE)
            pieces[count].iov_base = views[count].buf
            pieces[count].iov_len = views[count].len
            count += 1
        message.msg_iov = pieces
        message.msg_iovlen = count
        if size <= SMALL_REQUEST:
            sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            error = errno
        else:
            with nogil:
                sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                error = errno
                gkafka_is_back()
            gkafka_goes_on()
    finally:
        for n in range(count):
            PyBuffer_Release(&views[n])
    if sent < 0:
        raise OSError(error, os.strerror(error))
    return sent
