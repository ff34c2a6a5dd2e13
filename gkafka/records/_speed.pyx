# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, embedsignature=True
"""The compiled half of `gkafka.records`: the same names, results and errors as `gkafka.records._pure`.

This file holds what reading and writing share; `_speed_headers.pxi`, `_speed_message.pxi`, `_speed_lz4.pxi` and `_speed_read.pxi` read
batches, `_speed_columns.pxi` makes columns of them, `_speed_write.pxi` writes them, `_speed_run.pxi` hands them out one by one.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
    void PyTuple_SET_ITEM(object of, Py_ssize_t at, object item)
    void PyObject_GC_UnTrack(object thing)

cdef extern from "_crc.h" nogil:
    void gkafka_crc_init() noexcept
    uint32_t gkafka_crc32c(const unsigned char* p, size_t n, uint32_t crc) noexcept
    uint32_t gkafka_crc32c_join(uint32_t first, uint32_t second, size_t n) noexcept
    uint32_t gkafka_crc32c_portable(const unsigned char* p, size_t n, uint32_t crc) noexcept
    uint32_t gkafka_crc32(const unsigned char* p, size_t n, uint32_t crc) noexcept

cdef extern from *:
    """
    #ifndef GKAFKA_SOURCES
    #define GKAFKA_SOURCES ""
    #endif
    """
    const char* GKAFKA_SOURCES

SOURCES = GKAFKA_SOURCES.decode("ascii")  # see gkafka/records/_sources.py

gkafka_crc_init()

# Below these many bytes it takes less time to do it (decode records; take a checksum) than to give the GIL away and get it back from a busy thread.
cdef enum:
    NOGIL_BYTES = 1 << 16
    NOGIL_CRC_BYTES = 1 << 19


cdef inline uint32_t c_crc32c(const unsigned char* p, size_t n, uint32_t crc) noexcept nogil:
    """crc: the value so far, 0 to begin."""
    return gkafka_crc32c(p, n, crc)


def crc32c(data, uint32_t value=0, *, bint portable=False):
    """CRC-32C of data (any bytes-like object), going on from value. portable: by tables, whatever the processor can do."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if portable:
            return gkafka_crc32c_portable(<const unsigned char*> view.buf, view.len, value)
        if view.len < NOGIL_CRC_BYTES:
            return gkafka_crc32c(<const unsigned char*> view.buf, view.len, value)
        with nogil:
            value = gkafka_crc32c(<const unsigned char*> view.buf, view.len, value)
        return value
    finally:
        PyBuffer_Release(&view)


cdef inline void set_item(found, Py_ssize_t at, item):
    """Fill a tuple, or one of a subclass, that is being made."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(found, at, item)


# Kafka's numbers are big-endian and unaligned.
cdef inline uint16_t load_u16(const unsigned char* p) noexcept nogil:
    return <uint16_t> ((<uint16_t> p[0] << 8) | p[1])


cdef inline uint32_t load_u32(const unsigned char* p) noexcept nogil:
    return (<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | <uint32_t> p[3]


cdef inline uint64_t load_u64(const unsigned char* p) noexcept nogil:
    return (<uint64_t> load_u32(p) << 32) | <uint64_t> load_u32(p + 4)


cdef inline void store_u16(unsigned char* p, uint16_t value) noexcept nogil:
    p[0] = <unsigned char> (value >> 8)
    p[1] = <unsigned char> value


cdef inline void store_u32(unsigned char* p, uint32_t value) noexcept nogil:
    p[0] = <unsigned char> (value >> 24)
    p[1] = <unsigned char> (value >> 16)
    p[2] = <unsigned char> (value >> 8)
    p[3] = <unsigned char> value


cdef inline void store_u64(unsigned char* p, uint64_t value) noexcept nogil:
    store_u32(p, <uint32_t> (value >> 32))
    store_u32(p + 4, <uint32_t> value)


include "_speed_headers.pxi"
include "_speed_message.pxi"
include "_speed_lz4.pxi"
include "_speed_read.pxi"
include "_speed_columns.pxi"
include "_speed_write.pxi"
include "_speed_run.pxi"
