# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, embedsignature=True
"""What a connection's reader does to its socket while another thread decodes what came before: without a wait for the interpreter's lock in between.

Python's own calls give the lock away and get it back, which takes as long as the other thread decodes. So the next request would be out, but its answer
not be received before that one has nothing more to do: receiving and decoding would take turns.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import os

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t length, int flags)
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL


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
    finally:
        PyBuffer_Release(&rest)
        PyBuffer_Release(&first)
    if error not in (0, EAGAIN, EINTR):
        raise OSError(error, os.strerror(error))
    return staged, got


def send_now(int fd, data):
    """What the kernel takes of a few bytes at once, with the lock held: how many. Raises OSError, BlockingIOError for none."""
    cdef Py_buffer view
    cdef ssize_t sent
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        sent = send(fd, view.buf, view.len, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            raise OSError(errno, os.strerror(errno))
        return sent
    finally:
        PyBuffer_Release(&view)
