# Writing record batches, the compiled half: the twin of `_pure_write.py`.
#
# What is hot is `Appender.produce` > `_put` > a `Delivery`: no lock (the GIL is held and nothing on the way runs other code), no
# Python object but the Delivery. State is consistent before every call that may run other code or switch greenlets: `owner.*`,
# `compress`, and `with nogil`.

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdlib cimport free, malloc, realloc

from gkafka.exceptions import BufferFull, KafkaTimeoutError
from gkafka.records._check import check_capacity, check_record, check_seal, check_sizes, check_timestamp, record_size, too_large
from gkafka.records._legacy_write import check_legacy, decode_message_set, encode_message_set
from gkafka.records._results import Record, RecordMetadata, fresh_error, run_callback
from gkafka.records.compression import compress, decompress

cdef extern from *:
    """
    #include <time.h>
    #if defined(_WIN32)
      #include <windows.h>
    #else
      #include <pthread.h>
    #endif

    /* Milliseconds since the epoch. The coarse clock is read without a system call and is at most one tick (1-10 ms) old. */
    static long long gkafka_wall_ms(void) {
    #if defined(_WIN32)
        FILETIME t;
        GetSystemTimeAsFileTime(&t);
        return (long long)(((((unsigned long long)t.dwHighDateTime) << 32) | t.dwLowDateTime) / 10000ULL) - 11644473600000LL;
    #else
        struct timespec t;
      #if defined(CLOCK_REALTIME_COARSE)
        if (clock_gettime(CLOCK_REALTIME_COARSE, &t) != 0)
      #endif
            clock_gettime(CLOCK_REALTIME, &t);
        return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    #endif
    }

    /* How often this process and its ancestors were forked. The C library runs this hook for every fork(), also for those that
       Python does not see (uWSGI), and reading a counter costs nothing where getpid() is a system call. */
    static volatile long gkafka_forks = 0;
    #if !defined(_WIN32)
    static void gkafka_count_fork(void) { gkafka_forks++; }
    static void gkafka_watch_forks(void) { pthread_atfork(NULL, NULL, gkafka_count_fork); }
    #else
    static void gkafka_watch_forks(void) { }
    #endif

    static char gkafka_bytes_format[] = "B";
    """
    long long gkafka_wall_ms() noexcept nogil
    long gkafka_forks
    char* gkafka_bytes_format
    void gkafka_watch_forks() noexcept

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    long PyLong_AsLongAndOverflow(object, int*) except? -1
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*) noexcept
    void PyErr_Clear() noexcept
    bint PyUnicode_CheckExact(object) noexcept

gkafka_watch_forks()

cdef enum:
    HEADER = 61  # bytes of a v2 batch before its first record (KIP-98)

cdef enum Put:
    DONE  # the record is in the batch
    FULL  # it does not fit, or there is no memory for it
    BIG  # it is larger than one record may be
    ODD  # something in it is not exactly of the type that goes without checks

cdef long _live = 0  # buffers that malloc gave and free did not yet get


def live_buffers():
    """How many buffers are allocated now, pooled ones included: for tests of leaks."""
    return _live


def murmur2(key):
    """Kafka's hash of a key (the Java client's, as a number from 0 to 2**31 - 1)."""
    if not PyBytes_CheckExact(key):
        key = bytes(memoryview(key))
    return c_murmur2(<const unsigned char*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF


cdef uint32_t c_murmur2(const unsigned char* p, Py_ssize_t n) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t> 0x9747B28C ^ <uint32_t> n
    cdef uint32_t k
    cdef Py_ssize_t left = n
    while left >= 4:
        k = (<uint32_t> p[0]) | (<uint32_t> p[1] << 8) | (<uint32_t> p[2] << 16) | (<uint32_t> p[3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        p += 4
        left -= 4
    if left == 3:
        h ^= <uint32_t> p[2] << 16
    if left >= 2:
        h ^= <uint32_t> p[1] << 8
    if left >= 1:
        h ^= p[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


cdef inline uint64_t zigzag(int64_t n) noexcept nogil:
    return (<uint64_t> n << 1) ^ <uint64_t> (n >> 63)


cdef inline int varint_bytes(uint64_t z) noexcept nogil:
    cdef int n = 1
    while z >= 0x80:
        z >>= 7
        n += 1
    return n


cdef inline unsigned char* put_varint(unsigned char* p, uint64_t z) noexcept nogil:
    while z >= 0x80:
        p[0] = <unsigned char> (z | 0x80)
        z >>= 7
        p += 1
    p[0] = <unsigned char> z
    return p + 1


cdef inline unsigned char* put_blob(unsigned char* p, const char* data, Py_ssize_t n) noexcept nogil:
    """n: -1 for null."""
    if n < 0:
        p[0] = 1
        return p + 1
    p = put_varint(p, <uint64_t> n << 1)
    memcpy(p, data, n)
    return p + n


cdef inline Py_ssize_t blob_bytes(Py_ssize_t n) noexcept nogil:
    return 1 if n < 0 else varint_bytes(<uint64_t> n << 1) + n


# -- memory ------------------------------------------------------------------------------------------------------------
@cython.final
@cython.no_gc
cdef class _Pool:
    """The producer's buffer_bytes. Free buffers of full size are kept, as a list that runs through their first bytes: fresh ones
    would cost a page fault every 4 KiB. In use plus kept never passes buffer_bytes."""

    cdef Py_ssize_t limit, unit, reserved, spares
    cdef void* spare

    def __dealloc__(self):
        while self.spare != NULL:
            self.drop_spare()

    cdef void drop_spare(self) noexcept:
        global _live
        cdef void* first = self.spare
        self.spare = (<void**> first)[0]
        self.spares -= 1
        _live -= 1
        free(first)

    cdef bint reserve(self, Py_ssize_t n) noexcept:
        """Count n bytes as used; False if there are not that many."""
        if n > self.limit - self.reserved:
            return False
        self.charge(n)
        return True

    cdef void charge(self, Py_ssize_t n) noexcept:
        self.reserved += n
        while self.spare != NULL and self.reserved + self.spares * self.unit > self.limit:
            self.drop_spare()

    cdef unsigned char* take(self, Py_ssize_t size) noexcept:
        """A buffer for bytes that are counted already; NULL if the system has no memory."""
        global _live
        cdef void* first = self.spare
        if size == self.unit and first != NULL:
            self.spare = (<void**> first)[0]
            self.spares -= 1
            return <unsigned char*> first
        first = malloc(size)
        if first != NULL:
            _live += 1
        return <unsigned char*> first

    cdef void give(self, unsigned char* data, Py_ssize_t size) noexcept:
        """Take a buffer back and count its bytes as free."""
        global _live
        self.reserved -= size
        if size == self.unit and self.reserved + (self.spares + 1) * self.unit <= self.limit:
            (<void**> data)[0] = self.spare
            self.spare = data
            self.spares += 1
        else:
            _live -= 1
            free(data)


@cython.final
@cython.no_gc
cdef class _Memory:
    """One buffer of the pool. It goes back when nothing refers to it any more, a memoryview of it included: bytes that a socket may
    still send are never written over (KAFKA-19012)."""

    cdef _Pool pool
    cdef unsigned char* data
    cdef Py_ssize_t capacity, size
    cdef int exports

    def __dealloc__(self):
        if self.data != NULL:
            self.pool.give(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.data == NULL or flags & PyBUF_WRITABLE:
            raise BufferError("the bytes of a batch are read-only")
        view.obj = self
        view.buf = self.data
        view.len = self.size
        view.readonly = 1
        view.itemsize = 1
        view.format = gkafka_bytes_format if flags & PyBUF_FORMAT else NULL
        view.ndim = 1
        view.shape = &view.len if flags & PyBUF_ND else NULL
        view.strides = &view.itemsize if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1


cdef _Memory new_memory(_Pool pool, Py_ssize_t capacity):
    """A buffer for bytes that are counted already. If there is none they are not counted any more."""
    cdef _Memory memory = _Memory.__new__(_Memory)
    memory.pool = pool
    memory.data = pool.take(capacity)
    if memory.data == NULL:
        pool.reserved -= capacity
        raise MemoryError
    memory.capacity = capacity
    return memory


cdef bint grow_memory(_Memory memory, Py_ssize_t used, Py_ssize_t capacity) noexcept:
    """Move to a larger buffer; False if there is none. Only while nothing is exported."""
    cdef _Pool pool = memory.pool
    cdef Py_ssize_t more = capacity - memory.capacity
    cdef unsigned char* data
    global _live
    if not pool.reserve(more):
        return False
    if capacity == pool.unit and pool.spare != NULL:
        data = pool.take(capacity)
        memcpy(data, memory.data, used)
        _live -= 1
        free(memory.data)
    else:
        data = <unsigned char*> realloc(memory.data, capacity)
        if data == NULL:
            pool.reserved -= more
            return False
    memory.data = data
    memory.capacity = capacity
    return True


# -- a batch -----------------------------------------------------------------------------------------------------------
cdef struct Run:
    int64_t first  # index of the first record that has this timestamp
    int64_t timestamp


@cython.final
@cython.no_gc_clear
cdef class Batch:
    """Records of one partition that are sent together: a v2 record batch behind its reserved 61-byte header.

    Made by `Appender.open`. count: records; size: bytes so far, uncompressed, header included; created: monotonic seconds;
    base_timestamp, max_timestamp: ms, -1 while empty; sealed: `wire` is fixed; done: delivered or failed, `error` says which;
    owner: the appender's, None once done; attempts, extra, waiter: the owner's.
    """

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly object owner
    cdef readonly double created
    cdef readonly int count
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp, max_timestamp
    cdef readonly bint has_headers, sealed, done
    cdef readonly object error
    cdef readonly int64_t base_offset, log_append_time
    cdef readonly Py_ssize_t wire_size
    cdef public object extra, waiter
    cdef public long attempts
    cdef object __weakref__

    cdef _Pool pool
    cdef _Memory memory
    cdef unsigned char* data  # memory.data while open
    cdef Py_ssize_t capacity, limit  # both 0 as soon as nothing more may be appended
    cdef int64_t last_timestamp
    cdef Run* runs  # where the timestamp changes; none while all have base_timestamp
    cdef Py_ssize_t run_count, run_room, run_charge
    cdef list callbacks
    cdef int codec, magic
    cdef bint sealing
    cdef object plain  # what a compressed wire holds, once somebody asked: bytes, or rows of a message set
    cdef Py_ssize_t at  # where record number `cursor` stands, counted from the first record
    cdef int cursor

    def __cinit__(self):
        self.base_timestamp = self.max_timestamp = self.last_timestamp = -1
        self.base_offset = self.log_append_time = -1
        self.magic = 2

    def __init__(self):
        raise TypeError("a Batch is made by Appender.open()")

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.reserved -= self.run_charge
        free(self.runs)

    def __repr__(self):
        return f"<Batch {self.topic}-{self.partition}: {self.count} records, {self.size} bytes{', sealed' if self.sealed else ''}{', done' if self.done else ''}>"

    # -- sealing
    def seal(self, int codec, level=None, *, producer_id=-1, producer_epoch=-1, base_sequence=-1, bint transactional=False):
        """Fix the bytes to send: compress, write the header, take the checksum. Appending ends.

        codec: 0 to 4; level: the codec's own, None for its default. Raises ValueError for an empty or a sealed batch,
        UnsupportedCodec if the codec's wheel is missing (then the batch can be sealed with another).
        """
        cdef _Memory memory
        check_seal(codec, producer_id, producer_epoch, base_sequence)
        self.begin_seal()
        try:
            if codec:
                memory = self.compressed(codec, level)
            else:
                memory = self.memory
                memory.size = self.size
            self.write_header(memory, codec | (0x10 if transactional else 0), producer_id, producer_epoch, base_sequence)
            self.end_seal(memory, codec, 2)
        finally:
            self.sealing = False

    def seal_legacy(self, int magic, int codec, level=None):
        """The same records as a message set, magic 1 (brokers 0.10) or 0 (older), in place of a v2 batch, also of a sealed one.

        Raises UnsupportedVersion for records with headers, UnsupportedCodec for zstd.
        """
        cdef _Memory memory
        check_seal(codec)
        check_legacy(magic, codec, self.topic, self.partition, self.has_headers)
        if self.sealed and self.magic == 2 and self.memory is not None and not self.sealing:
            self.sealing = True
        else:
            self.begin_seal()
        try:
            memory = self.filled(0, encode_message_set(self.rows(), magic, codec, level))
            self.end_seal(memory, codec, magic)
        finally:
            self.sealing = False

    cdef begin_seal(self):
        if self.memory is None:
            raise ValueError(f"{self!r} has released its memory")
        if self.sealed or self.sealing:
            raise ValueError(f"{self!r} is sealed already")
        if not self.count:
            raise ValueError(f"{self!r} is empty: there is nothing to seal")
        self.close()
        self.sealing = True

    cdef void close(self) noexcept:
        self.capacity = self.limit = 0

    cdef end_seal(self, _Memory memory, int codec, int magic):
        if self.memory is None:  # released by another thread while the GIL was away
            raise ValueError(f"{self!r} has released its memory")
        self.memory = memory
        self.data = memory.data
        self.codec = codec
        self.magic = magic
        self.wire_size = memory.size
        self.plain = None
        self.at = self.cursor = 0
        self.sealed = True

    cdef _Memory compressed(self, int codec, level):
        """A buffer with room for the header, then the compressed records."""
        cdef _Memory raw = self.memory
        raw.size = self.size
        with memoryview(raw) as view:
            payload = compress(codec, view[HEADER:], level)
        return self.filled(HEADER, payload)

    cdef _Memory filled(self, Py_ssize_t head, payload):
        """A buffer of its own for payload behind head bytes. It may pass buffer_bytes by what the payload is larger than the
        records: there the records are in memory already and waiting would not end."""
        cdef Py_buffer view
        cdef _Memory memory
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            self.pool.charge(head + view.len)
            memory = new_memory(self.pool, head + view.len)
            memory.size = memory.capacity
            memcpy(memory.data + head, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return memory

    cdef write_header(self, _Memory memory, int attributes, int64_t producer_id, int producer_epoch, int base_sequence):
        cdef unsigned char* p = memory.data
        store_u64(p, 0)
        store_u32(p + 8, <uint32_t> (memory.size - 12))
        store_u32(p + 12, <uint32_t> -1)  # partitionLeaderEpoch: the broker's to fill in
        p[16] = 2
        store_u16(p + 21, <uint16_t> attributes)
        store_u32(p + 23, <uint32_t> (self.count - 1))
        store_u64(p + 27, <uint64_t> self.base_timestamp)
        store_u64(p + 35, <uint64_t> self.max_timestamp)
        store_u32(p + 57, <uint32_t> self.count)
        write_producer(memory, producer_id, producer_epoch, base_sequence)

    def restamp(self, producer_id, producer_epoch, base_sequence):
        """A new producer id, epoch and sequence in a sealed batch (KIP-360). Views of the old `wire` keep the old bytes."""
        cdef _Memory memory = self.memory
        check_seal(0, producer_id, producer_epoch, base_sequence)
        if not self.sealed or self.sealing or memory is None or self.magic != 2:
            raise ValueError(f"{self!r} is not a sealed v2 batch that still has its memory")
        if memory.exports:
            memory = self.filled(0, memory)
        write_producer(memory, producer_id, producer_epoch, base_sequence)
        self.memory = memory
        self.data = memory.data

    @property
    def wire(self):
        """The bytes to send, read-only. They stay what they are while the view lives, whatever becomes of the batch."""
        if not self.sealed or self.memory is None:
            raise ValueError(f"{self!r} {'has released its memory' if self.sealed else 'is not sealed yet'}")
        return memoryview(self.memory)

    cdef void release(self) noexcept:
        self.close()
        self.data = NULL
        self.memory = None
        self.plain = None
        self.pool.reserved -= self.run_charge
        self.run_charge = 0

    # -- what is in it
    def record(self, int index):
        """Record number index as it was produced, None once the memory is released."""
        if not 0 <= index < self.count:
            raise IndexError(f"{self!r} has no record {index}")
        if self.memory is None:
            return None
        if self.magic != 2:
            key, value = self.message_rows()[index]
            headers = []
        else:
            key, value, headers = self.v2_row(index)
        return Record(self.topic, self.partition, key, value, headers, self.timestamp_of(index))

    cdef list rows(self):
        """(timestamp, key, value) of every record."""
        cdef int i
        cdef list rows = []
        for i in range(self.count):
            key, value, _ = self.v2_row(i)
            rows.append((self.timestamp_of(i), key, value))
        return rows

    cdef list message_rows(self):
        if self.plain is None:
            self.plain = decode_message_set(memoryview(self.memory), max_bytes=self.size + 34 * self.count)
        return <list> self.plain

    cdef tuple v2_row(self, int index):
        cdef _Memory memory = self.memory  # kept while we read: making objects may let another thread release the batch
        cdef object plain = self.plain
        cdef const unsigned char* start
        cdef const unsigned char* p
        cdef int64_t size, n
        cdef int i
        if memory is None:
            raise ValueError(f"{self!r} has released its memory")
        if self.codec:
            if plain is None:
                with memoryview(memory) as view:
                    plain = self.plain = bytes(decompress(self.codec, view[HEADER:], max_bytes=self.size))
            start = <const unsigned char*> PyBytes_AS_STRING(plain)
        else:
            start = memory.data + HEADER
        if index < self.cursor:
            self.at = self.cursor = 0
        p = start + self.at
        while self.cursor < index:
            p = get_varint(p, &size)
            p += size
            self.cursor += 1
        self.at = p - start
        p = get_varint(p, &size)
        p = get_varint(get_varint(p + 1, &n), &n)  # attributes, timestamp delta, offset delta
        key = get_blob(&p)
        value = get_blob(&p)
        p = get_varint(p, &n)
        headers = []
        for i in range(<int> n):
            name = get_blob(&p)
            headers.append(((<bytes> name).decode(), get_blob(&p)))
        return key, value, headers

    cdef int64_t timestamp_of(self, Py_ssize_t index) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.run_count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.runs[middle].first <= index:
                low = middle + 1
            else:
                high = middle
        return self.runs[low - 1].timestamp if low else self.base_timestamp

    cdef bint add_run(self, int64_t timestamp) noexcept:
        cdef Py_ssize_t room
        cdef Run* runs
        if self.run_count == self.run_room:
            room = self.run_room * 2 if self.run_room else 8
            if not self.pool.reserve((room - self.run_room) * <Py_ssize_t> sizeof(Run)):
                return False
            runs = <Run*> realloc(self.runs, room * sizeof(Run))
            if runs == NULL:
                self.pool.reserved -= (room - self.run_room) * <Py_ssize_t> sizeof(Run)
                return False
            self.run_charge += (room - self.run_room) * <Py_ssize_t> sizeof(Run)
            self.runs = runs
            self.run_room = room
        self.runs[self.run_count].first = self.count
        self.runs[self.run_count].timestamp = timestamp
        self.run_count += 1
        return True

    # -- its end
    def complete(self, int64_t base_offset, int64_t log_append_time=-1):
        """The batch is in the log at base_offset (-1: nobody said). log_append_time: ms, if the broker set the timestamps.

        Returns the callbacks to run, (index, fn) in the order of the records. A batch ends once: a second end changes nothing.
        """
        if self.done:
            return []
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        return self.finish()

    def fail(self, error):
        """The batch was not delivered; see `complete`."""
        if not isinstance(error, BaseException):
            raise TypeError(f"error is {type(error).__name__}: must be an exception")
        if self.done:
            return []
        self.error = error
        return self.finish()

    cdef list finish(self):
        cdef list callbacks = self.callbacks
        self.done = True
        self.close()
        self.callbacks = None
        self.owner = None  # nobody waits any more, and a delivery that is kept does not keep its producer
        if callbacks is None:
            return []
        callbacks.sort(key=_index_of)
        return callbacks


cdef object _index_of(tuple pair):
    return pair[0]


cdef write_producer(_Memory memory, int64_t producer_id, int producer_epoch, int base_sequence):
    """Producer id, epoch and sequence, then the checksum."""
    cdef unsigned char* p = memory.data
    cdef size_t n = memory.size - 21
    cdef uint32_t crc
    store_u64(p + 43, <uint64_t> producer_id)
    store_u16(p + 51, <uint16_t> producer_epoch)
    store_u32(p + 53, <uint32_t> base_sequence)
    if n < NOGIL_BYTES:
        crc = c_crc32c(p + 21, n, 0)
    else:
        with nogil:
            crc = c_crc32c(p + 21, n, 0)
    store_u32(p + 17, crc)


cdef inline const unsigned char* get_varint(const unsigned char* p, int64_t* n) noexcept:
    """Only for records that were written here."""
    cdef uint64_t z = p[0] & 0x7F
    cdef int shift = 7
    while p[0] & 0x80:
        p += 1
        z |= <uint64_t> (p[0] & 0x7F) << shift
        shift += 7
    n[0] = <int64_t> (z >> 1) ^ -<int64_t> (z & 1)
    return p + 1


cdef object get_blob(const unsigned char** p):
    cdef int64_t n
    cdef const unsigned char* data = get_varint(p[0], &n)
    p[0] = data if n < 0 else data + n
    return None if n < 0 else PyBytes_FromStringAndSize(<const char*> data, n)


cdef Put _put(Batch batch, object value, object key, object headers, int64_t timestamp, Py_ssize_t most) noexcept:
    """Encode one record behind the others. Runs no Python code, so nothing can change under it. most: largest size of a batch
    that holds just this record."""
    cdef Py_ssize_t value_size = -1
    cdef Py_ssize_t key_size = -1
    cdef Py_ssize_t header_count = 0
    cdef Py_ssize_t i, size, need, body
    cdef const char* value_data = NULL
    cdef const char* key_data = NULL
    cdef const char* text
    cdef uint64_t delta
    cdef int64_t base
    cdef PyObject* pair
    cdef PyObject* name
    cdef PyObject* data
    cdef unsigned char* p
    if value is not None:
        if not PyBytes_CheckExact(value):
            return ODD
        value_data = PyBytes_AS_STRING(value)
        value_size = PyBytes_GET_SIZE(value)
        if value_size > most:
            return BIG
    if key is not None:
        if not PyBytes_CheckExact(key):
            return ODD
        key_data = PyBytes_AS_STRING(key)
        key_size = PyBytes_GET_SIZE(key)
        if key_size > most:
            return BIG
    base = batch.base_timestamp if batch.count else timestamp
    delta = zigzag(<int64_t> (<uint64_t> timestamp - <uint64_t> base))
    body = 1 + varint_bytes(delta) + varint_bytes(<uint64_t> batch.count << 1) + blob_bytes(key_size) + blob_bytes(value_size)
    if headers is None:
        body += 1
    else:
        header_count = header_list_size(headers)
        if header_count < 0:
            return ODD
        body += varint_bytes(<uint64_t> header_count << 1)
        for i in range(header_count):
            pair = header_pair(headers, i)
            if pair == NULL:
                return ODD
            name = PyTuple_GET_ITEM_(pair, 0)
            data = PyTuple_GET_ITEM_(pair, 1)
            if not PyUnicode_CheckExact(<object> name) or not (<object> data is None or PyBytes_CheckExact(<object> data)):
                return ODD
            if utf8(name, &size) == NULL:
                return ODD
            body += blob_bytes(size) + blob_bytes(-1 if <object> data is None else PyBytes_GET_SIZE(<object> data))
            if body > most:
                return BIG
    size = varint_bytes(<uint64_t> body << 1) + body
    if HEADER + size > most:
        return BIG
    need = batch.size + size
    if need > batch.capacity and not grow(batch, need):
        return FULL
    if batch.count and timestamp != batch.last_timestamp and not batch.add_run(timestamp):
        return FULL
    p = put_varint(batch.data + batch.size, <uint64_t> body << 1)
    p[0] = 0
    p = put_varint(p + 1, delta)
    p = put_varint(p, <uint64_t> batch.count << 1)
    p = put_blob(p, key_data, key_size)
    p = put_blob(p, value_data, value_size)
    p = put_varint(p, <uint64_t> header_count << 1)
    for i in range(header_count):
        pair = header_pair(headers, i)
        data = PyTuple_GET_ITEM_(pair, 1)
        text = utf8(PyTuple_GET_ITEM_(pair, 0), &size)
        p = put_blob(p, text, size)
        if <object> data is None:
            p = put_blob(p, NULL, -1)
        else:
            p = put_blob(p, PyBytes_AS_STRING(<object> data), PyBytes_GET_SIZE(<object> data))
    if header_count:
        batch.has_headers = True
    if not batch.count:
        batch.base_timestamp = batch.max_timestamp = timestamp
    elif timestamp > batch.max_timestamp:
        batch.max_timestamp = timestamp
    batch.last_timestamp = timestamp
    batch.size = need
    batch.count += 1
    return DONE


cdef extern from "Python.h":
    PyObject* PyTuple_GET_ITEM_ "PyTuple_GET_ITEM"(PyObject*, Py_ssize_t) noexcept
    PyObject* PyList_GET_ITEM_ "PyList_GET_ITEM"(object, Py_ssize_t) noexcept
    PyObject* PyTuple_GET_ITEM_OF "PyTuple_GET_ITEM"(object, Py_ssize_t) noexcept


cdef inline Py_ssize_t header_list_size(object headers) noexcept:
    if PyList_CheckExact(headers):
        return PyList_GET_SIZE(headers)
    if PyTuple_CheckExact(headers):
        return PyTuple_GET_SIZE(headers)
    return -1


cdef inline PyObject* header_pair(object headers, Py_ssize_t i) noexcept:
    cdef PyObject* pair = PyList_GET_ITEM_(headers, i) if PyList_CheckExact(headers) else PyTuple_GET_ITEM_OF(headers, i)
    if PyTuple_CheckExact(<object> pair) and PyTuple_GET_SIZE(<object> pair) == 2:
        return pair
    return NULL


cdef inline const char* utf8(PyObject* text, Py_ssize_t* size) noexcept:
    """The str's own UTF-8, NULL if it has none (a lone surrogate)."""
    cdef const char* data = PyUnicode_AsUTF8AndSize(text, size)
    if data == NULL:
        PyErr_Clear()
    return data


cdef bint grow(Batch batch, Py_ssize_t need) noexcept:
    cdef Py_ssize_t capacity = batch.capacity
    if need > batch.limit:
        return False
    while capacity < need:
        capacity *= 2
    if capacity > batch.limit:
        capacity = batch.limit
    if not grow_memory(batch.memory, batch.size, capacity):
        return False
    batch.data = batch.memory.data
    batch.capacity = capacity
    return True


# -- one record's view ---------------------------------------------------------------------------------------------------
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Delivery:
    """What became of one record: number `index` of `batch`. Two deliveries of the same record are equal.

    Not tracked by the garbage collector: a cycle through it ends when its batch does (callbacks are dropped then).
    """

    cdef readonly Batch batch
    cdef readonly int index

    def __init__(self, Batch batch not None, int index):
        self.batch = batch
        self.index = index

    cdef Batch its_batch(self):
        if self.batch is None:
            raise TypeError("a Delivery is made by Appender.produce()")
        return self.batch

    @property
    def topic(self):
        return self.its_batch().topic

    @property
    def partition(self):
        return self.its_batch().partition

    @property
    def record(self):
        """The record as it was produced, None once the batch's memory is released."""
        return self.its_batch().record(self.index)

    def done(self):
        """True once it is delivered or has failed."""
        return self.its_batch().done

    def result(self, timeout=None):
        """RecordMetadata once the record is delivered. Raises its error, or KafkaTimeoutError after timeout seconds."""
        cdef Batch batch = self.settled(timeout)
        if batch.error is not None:
            raise fresh_error(batch.error)
        return RecordMetadata(
            batch.topic,
            batch.partition,
            batch.base_offset + self.index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else batch.timestamp_of(self.index),
        )

    def exception(self, timeout=None):
        """The record's error, None if it was delivered. Raises KafkaTimeoutError after timeout seconds."""
        cdef Batch batch = self.settled(timeout)
        return None if batch.error is None else fresh_error(batch.error)

    cdef Batch settled(self, timeout):
        cdef Batch batch = self.its_batch()
        if not batch.done:
            batch.owner.wait(batch, timeout)
            if not batch.done:
                raise KafkaTimeoutError(
                    f"a record for {batch.topic}-{batch.partition} is not delivered yet", topic=batch.topic, partition=batch.partition
                )
        return batch

    def add_done_callback(self, fn):
        """Call fn(delivery) when the record is delivered or has failed; at once if it is already."""
        cdef Batch batch = self.its_batch()
        if not callable(fn):
            raise TypeError(f"a callback is {type(fn).__name__}: must be callable")
        if batch.done:
            run_callback(fn, self)
        elif batch.callbacks is None:
            batch.callbacks = [(self.index, fn)]
        else:
            batch.callbacks.append((self.index, fn))

    def __eq__(self, other):
        return isinstance(other, Delivery) and self.batch is (<Delivery> other).batch and self.index == (<Delivery> other).index

    def __hash__(self):
        return hash((id(self.batch), self.index))

    def __repr__(self):
        cdef Batch batch = self.its_batch()
        state = "pending" if not batch.done else "delivered" if batch.error is None else f"failed: {type(batch.error).__name__}"
        return f"<Delivery {batch.topic}-{batch.partition} #{self.index}: {state}>"


cdef inline Delivery new_delivery(Batch batch):
    """Of the record that was appended last."""
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.index = batch.count - 1
    return delivery


# -- from a topic to its open batch --------------------------------------------------------------------------------------
@cython.final
@cython.no_gc_clear
cdef class _Topic:
    cdef str name
    cdef int partitions  # 0: the fast path does not take this topic
    cdef int sticky
    cdef list batches  # by partition: the open Batch or None
    cdef bytearray hot  # by partition: 1 if its last batch was full, so that the next one starts at full size

    cdef Batch batch(self, Py_ssize_t partition):
        return <Batch> self.batches[partition] if 0 <= partition < len(self.batches) else None

    cdef widen(self, Py_ssize_t partitions):
        cdef Py_ssize_t more = partitions - len(self.batches)
        if more > 0:
            self.batches.extend([None] * more)
            self.hot.extend(bytes(more))


@cython.final
@cython.no_gc_clear
cdef class Appender:
    """The per-message part of a producer: topic -> partition -> open batch.

    owner: serves what the fast path does not take (`produce_slow`, `checkpoint`, `wait`). batch_bytes: a batch's size before
    compression; buffer_bytes: of all batches that are not released; max_record_bytes: of a batch that holds one record, beyond it
    `produce` goes to the owner; initial_bytes: what a batch starts with. lock: for the Python twin; here the GIL is the lock.
    """

    cdef readonly object owner
    cdef readonly Py_ssize_t batch_bytes, buffer_bytes, max_record_bytes, initial_bytes
    cdef public bint fast
    cdef long every, left
    cdef long forks
    cdef _Pool pool
    cdef dict topics
    cdef object last_name  # the str object that was looked up last, and what it led to
    cdef _Topic last_topic
    cdef object __weakref__

    def __cinit__(self, owner, *, batch_bytes, buffer_bytes, max_record_bytes, initial_bytes=4096, lock=None):
        check_sizes(batch_bytes, buffer_bytes, max_record_bytes, initial_bytes)
        self.owner = owner
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.max_record_bytes = max_record_bytes
        self.initial_bytes = min(initial_bytes, batch_bytes, buffer_bytes)
        self.fast = True
        self.forks = gkafka_forks
        self.topics = {}
        self.pool = _Pool.__new__(_Pool)
        self.pool.limit = buffer_bytes
        self.pool.unit = batch_bytes

    def produce(self, topic, value, key=None, partition=None, timestamp=None, headers=None):
        """Append one record to its partition's open batch; what needs more than that goes to `owner.produce_slow`.

        partition None: by murmur2 of the key, without a key the topic's sticky one. timestamp: ms, None for now.
        """
        cdef _Topic found
        cdef Batch batch
        cdef PyObject* entry
        cdef long number
        cdef int64_t stamp
        cdef int overflow = 0
        if self.every:
            if not self.left:
                self.left = self.every
                self.owner.checkpoint()
            self.left -= 1
        if not self.fast or self.forks != gkafka_forks:
            return self.slow(topic, value, key, partition, timestamp, headers)

        found = self.last_topic
        if topic is not self.last_name or found is None:
            if not PyUnicode_CheckExact(topic):
                return self.slow(topic, value, key, partition, timestamp, headers)
            entry = PyDict_GetItemWithError(self.topics, topic)
            if entry == NULL:
                return self.slow(topic, value, key, partition, timestamp, headers)
            found = <_Topic> entry
            self.last_name = topic
            self.last_topic = found

        if partition is None:
            if key is None:
                number = found.sticky
            elif PyBytes_CheckExact(key) and found.partitions:
                number = (c_murmur2(<const unsigned char*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % <uint32_t> found.partitions
            else:
                number = -1
        elif PyLong_CheckExact(partition):
            number = PyLong_AsLongAndOverflow(partition, &overflow)
        else:
            number = -1
        if number < 0 or number >= found.partitions:
            return self.slow(topic, value, key, partition, timestamp, headers)
        entry = <PyObject*> PyList_GET_ITEM(found.batches, number)
        if <object> entry is None:
            return self.slow(topic, value, key, partition, timestamp, headers)
        batch = <Batch> entry

        if timestamp is None:
            stamp = gkafka_wall_ms()
        elif PyLong_CheckExact(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        else:
            stamp = -1
        if stamp < 0 or _put(batch, value, key, headers, stamp, self.max_record_bytes) != DONE:
            return self.slow(topic, value, key, partition, timestamp, headers)
        return new_delivery(batch)

    cdef object slow(self, topic, value, key, partition, timestamp, headers):
        return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)

    def append(self, str topic not None, int partition, value, key, timestamp_ms, headers):
        """Append to a partition's open batch. None: there is none, or the record does not fit into it.

        timestamp_ms: 0 or more, -1 for none. Raises SerializationError for what is not a record, RecordTooLarge over 1 GiB.
        """
        cdef Batch batch
        cdef Put put
        cdef int64_t stamp
        check_timestamp(timestamp_ms, topic)
        stamp = timestamp_ms
        batch = self.open_batch(topic, partition)
        put = FULL if batch is None else _put(batch, value, key, headers, stamp, 1 << 30)
        if put == ODD:
            value, key, headers = check_record(topic, value, key, headers)
            batch = self.open_batch(topic, partition)  # what was converted may have run code
            put = FULL if batch is None else _put(batch, value, key, headers, stamp, 1 << 30)
        if put == BIG:
            raise too_large(topic, partition)
        return new_delivery(batch) if put == DONE else None

    cdef Batch open_batch(self, str topic, Py_ssize_t partition):
        cdef _Topic found = self.topics.get(topic)
        return None if found is None else found.batch(partition)

    # -- topics
    def set_topic(self, str topic not None, int partition_count, int sticky):
        """Let the fast path take a topic. sticky: the partition of records without a key. Open batches stay."""
        if partition_count < 1 or not 0 <= sticky < partition_count:
            raise ValueError(f"{topic}: no sticky partition {sticky} among {partition_count}")
        cdef _Topic found = self.topic(topic)
        found.widen(partition_count)
        found.partitions = partition_count
        found.sticky = sticky

    def drop_topic(self, str topic not None):
        """Send a topic's records to the owner from now on. Open batches stay."""
        cdef _Topic found = self.topics.get(topic)
        if found is None:
            return
        found.partitions = found.sticky = 0
        if not any(found.batches):
            del self.topics[topic]
            self.last_name = self.last_topic = None

    def set_sticky(self, str topic not None, int partition):
        cdef _Topic found = self.topics.get(topic)
        if found is None or not 0 <= partition < found.partitions:
            raise ValueError(f"{topic} has no partition {partition} here")
        found.sticky = partition

    def sticky(self, str topic not None):
        """The partition of a topic's records without a key, -1 if the fast path does not take the topic."""
        cdef _Topic found = self.topics.get(topic)
        return found.sticky if found is not None and found.partitions else -1

    cdef _Topic topic(self, str name):
        cdef _Topic found = self.topics.get(name)
        if found is None:
            found = _Topic.__new__(_Topic)
            found.name = name
            found.batches = []
            found.hot = bytearray()
            self.topics[name] = found
        return found

    # -- batches
    def open(self, str topic not None, int partition, double created, capacity=None):
        """Make a partition's open batch. created: monotonic seconds; capacity: bytes it must be able to hold (`record_size`).

        Raises BufferFull if the memory is not there now, RecordTooLarge if it never can be, ValueError if one is open.
        """
        cdef Batch batch
        cdef _Topic found
        cdef Py_ssize_t need = 0 if capacity is None else capacity
        cdef Py_ssize_t start
        if partition < 0:
            raise ValueError(f"{topic}: partition {partition} is negative")
        check_capacity(need, self.buffer_bytes, topic, partition)
        if self.open_batch(topic, partition) is not None:
            raise ValueError(f"{topic}-{partition} has an open batch: roll it first")
        found = self.topics.get(topic)
        start = self.first_capacity(found, partition, need)
        if not self.pool.reserve(start):
            text = f"{topic}-{partition}: {start} bytes wanted, {self.available} of buffer_bytes={self.buffer_bytes} are free"
            raise BufferFull(text, topic=topic, partition=partition)
        batch = Batch.__new__(Batch)
        batch.memory = new_memory(self.pool, start)
        batch.pool = self.pool
        batch.owner = self.owner
        batch.topic = topic
        batch.partition = partition
        batch.created = created
        batch.data = batch.memory.data
        batch.capacity = start
        batch.limit = max(start, self.batch_bytes)
        batch.size = HEADER
        found = self.topic(topic)
        found.widen(partition + 1)
        found.batches[partition] = batch
        return batch

    cdef Py_ssize_t first_capacity(self, _Topic found, Py_ssize_t partition, Py_ssize_t need):
        cdef Py_ssize_t start = self.initial_bytes
        # A partition that fills its batches gets the next one whole: growing would copy every record twice. Not when memory is
        # scarce, there many partitions must share it.
        if found is not None and partition < len(found.hot) and found.hot[partition]:
            if self.batch_bytes <= self.pool.limit - self.pool.reserved - self.buffer_bytes // 2:
                start = self.batch_bytes
        while start < need and start < self.batch_bytes:
            start = min(start * 2, self.batch_bytes)
        return max(start, need)

    def roll(self, str topic not None, int partition):
        """Take a partition's open batch away, to seal and send it; None if there is none. The next one must be opened."""
        cdef _Topic found = self.topics.get(topic)
        cdef Batch batch = None if found is None else found.batch(partition)
        if batch is not None:
            found.batches[partition] = None
            found.hot[partition] = 1 if batch.size > self.batch_bytes // 2 else 0
            batch.close()
        return batch

    def open_batches(self):
        """Every open batch."""
        cdef _Topic found
        return [batch for found in self.topics.values() for batch in found.batches if batch is not None]

    @property
    def available(self):
        """Bytes of buffer_bytes that no batch holds."""
        return max(0, self.pool.limit - self.pool.reserved)

    def release(self, Batch batch not None):
        """Give a batch's memory back: at once, or when the last view of its `wire` is gone. Its result stays."""
        cdef _Topic found
        if batch.pool is not self.pool:
            raise ValueError(f"{batch!r} is not of this appender")
        found = self.topics.get(batch.topic)
        if found is not None and found.batch(batch.partition) is batch:
            found.batches[batch.partition] = None
        batch.release()

    @property
    def checkpoint_every(self):
        """After that many calls of `produce` the next one begins with `owner.checkpoint()`; 0: never."""
        return self.every

    @checkpoint_every.setter
    def checkpoint_every(self, long calls):
        if calls < 0:
            raise ValueError(f"checkpoint_every={calls}: must be 0 or more")
        self.every = self.left = calls
