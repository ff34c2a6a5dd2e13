# The memory of written batches, and the numbers in them: the compiled twin of `_pure_memory.py`. Included by `_speed_write.pxi`.

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
    PyObject* PyTuple_GET_ITEM_ "PyTuple_GET_ITEM"(PyObject*, Py_ssize_t) noexcept
    PyObject* PyList_GET_ITEM_ "PyList_GET_ITEM"(object, Py_ssize_t) noexcept
    PyObject* PyTuple_GET_ITEM_OF "PyTuple_GET_ITEM"(object, Py_ssize_t) noexcept

gkafka_watch_forks()

cdef enum:
    HEADER = 61  # bytes of a v2 batch before its first record (KIP-98)

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
    cdef long forks  # of the process when it was made
    cdef void* spare
    cdef Budget budget  # None: it is not shared
    cdef bint retired

    def __dealloc__(self):
        while self.spare != NULL:
            self.drop_spare()

    cdef void retire(self) noexcept:
        """Its appender is gone: what still comes back is not kept."""
        self.retired = True
        while self.spare != NULL:
            self.drop_spare()
        if self.budget is not None:
            self.budget.leave(self)

    cdef Py_ssize_t free_bytes(self) noexcept:
        cdef Py_ssize_t own = max(0, self.limit - self.reserved)
        return own if self.budget is None else min(own, max(0, self.budget.limit - self.budget.reserved))

    cdef void drop_spare(self) noexcept:
        global _live
        cdef void* first = self.spare
        self.spare = (<void**> first)[0]
        self.spares -= 1
        if self.budget is not None:
            self.budget.kept -= self.unit
        _live -= 1
        free(first)

    cdef bint reserve(self, Py_ssize_t n, Py_ssize_t beyond=0) noexcept:
        """Count n bytes as used; False if there are not that many. beyond: bytes over each limit that may be taken."""
        if n > self.limit + beyond - self.reserved or (self.budget is not None and n > self.budget.limit + beyond - self.budget.reserved):
            return False
        self.charge(n)
        return True

    cdef void charge(self, Py_ssize_t n) noexcept:
        self.reserved += n
        while self.spare != NULL and self.reserved + self.spares * self.unit > self.limit:
            self.drop_spare()
        if self.budget is not None:
            self.budget.reserved += n
            self.budget.trim()

    cdef void credit(self, Py_ssize_t n) noexcept:
        """Count n bytes as free again."""
        self.reserved -= n
        if self.budget is not None:
            self.budget.reserved -= n

    cdef unsigned char* take(self, Py_ssize_t size) noexcept:
        """A buffer for bytes that are counted already; NULL if the system has no memory."""
        global _live
        cdef void* first = self.spare
        if size == self.unit and first != NULL:
            self.spare = (<void**> first)[0]
            self.spares -= 1
            if self.budget is not None:
                self.budget.kept -= self.unit
            return <unsigned char*> first
        first = malloc(size)
        if first != NULL:
            _live += 1
        return <unsigned char*> first

    cdef void give(self, unsigned char* data, Py_ssize_t size) noexcept:
        """Take a buffer back and count its bytes as free."""
        global _live
        self.credit(size)
        if self.may_keep(size):
            (<void**> data)[0] = self.spare
            self.spare = data
            self.spares += 1
            if self.budget is not None:
                self.budget.kept += size
        else:
            _live -= 1
            free(data)

    cdef bint may_keep(self, Py_ssize_t size) noexcept:
        if size != self.unit or self.retired or self.reserved + (self.spares + 1) * self.unit > self.limit:
            return False
        return self.budget is None or self.budget.reserved + self.budget.kept + size <= self.budget.limit


@cython.final
cdef class Budget:
    """Memory that several appenders share: together they take at most `limit` bytes, beside what each may take at most.

    reserved: what they hold now. lock: for the Python twin; here the GIL is the lock.
    """

    cdef public Py_ssize_t limit
    cdef readonly Py_ssize_t reserved
    cdef Py_ssize_t kept
    cdef list pools

    def __cinit__(self, limit=0, lock=None):
        self.limit = limit
        self.pools = []

    @property
    def available(self):
        """Bytes that nobody holds."""
        return max(0, self.limit - self.reserved)

    cdef void leave(self, _Pool pool) noexcept:
        cdef Py_ssize_t i
        for i in range(len(self.pools)):
            if <_Pool> self.pools[i] is pool:
                del self.pools[i]
                return

    cdef void trim(self) noexcept:
        """Drop buffers that are kept for use again, of any appender, while they are more than there is room for."""
        cdef _Pool pool
        cdef Py_ssize_t i
        if self.reserved + self.kept <= self.limit:
            return
        for i in range(len(self.pools)):
            pool = <_Pool> self.pools[i]
            while pool.spare != NULL and self.reserved + self.kept > self.limit:
                pool.drop_spare()


@cython.final
@cython.no_gc
cdef class _Memory:
    """One buffer of the pool. It goes back when nothing refers to it any more, a memoryview of it included: bytes that a socket may
    still send are never written over (KAFKA-19012)."""

    cdef _Pool pool  # None: it is counted nowhere
    cdef unsigned char* data
    cdef Py_ssize_t capacity, size
    cdef Py_ssize_t summed  # bytes behind the header that `sum` is the checksum of
    cdef uint32_t sum

    def __dealloc__(self):
        global _live
        if self.data == NULL:
            return
        if self.pool is not None:
            self.pool.give(self.data, self.capacity)
        else:
            _live -= 1
            free(self.data)

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


cdef _Memory new_memory(_Pool pool, Py_ssize_t capacity):
    """A buffer for bytes that are counted already. If there is none they are not counted any more."""
    cdef _Memory memory = _Memory.__new__(_Memory)
    memory.pool = pool
    memory.data = pool.take(capacity)
    if memory.data == NULL:
        pool.credit(capacity)
        raise MemoryError
    memory.capacity = capacity
    return memory


cdef _Memory own_memory(_Memory memory, Py_ssize_t size):
    """A copy of its first bytes in memory of no pool."""
    cdef _Memory own = _Memory.__new__(_Memory)
    global _live
    own.data = <unsigned char*> malloc(size)
    if own.data == NULL:
        raise MemoryError
    _live += 1
    own.capacity = own.size = size
    memcpy(own.data, memory.data, size)
    return own


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
            pool.credit(more)
            return False
    memory.data = data
    memory.capacity = capacity
    return True
