# A producer of one topic, the compiled half: the twin of `_pure_lane.py`. Included by `_speed_write.pxi`.

@cython.final
@cython.no_gc_clear
cdef class Lane:
    """The per-message part of a producer of one topic that spreads its records at random and bounds their number.

    owner: serves what this does not take, `produce_slow(message, key, timestamp)`. seed: of the choice of partitions, not 0. open: while
    it is False everything goes to the owner. accepted: records taken so far; limit: with that many taken the next goes to the owner.
    """

    cdef readonly object owner
    cdef readonly Appender appender
    cdef readonly str topic
    cdef readonly Py_ssize_t accepted
    cdef public Py_ssize_t limit
    cdef public bint open
    cdef _Topic found
    cdef int* ids
    cdef uint32_t count
    cdef uint64_t chance
    cdef object __weakref__

    def __cinit__(self, owner, Appender appender not None, str topic not None, *, seed):
        self.owner = owner
        self.appender = appender
        self.topic = topic
        self.chance = <uint64_t> (seed & 0xFFFFFFFFFFFFFFFF) or 1

    def __dealloc__(self):
        free(self.ids)

    def spread(self, partitions):
        """Choose among these partitions from now on; none: the owner chooses."""
        cdef list chosen = list(partitions)
        cdef int* ids = <int*> malloc(max(1, len(chosen)) * sizeof(int))
        cdef Py_ssize_t i
        if ids == NULL:
            raise MemoryError()
        try:
            for i in range(len(chosen)):
                ids[i] = chosen[i]
        except BaseException:
            free(ids)
            raise
        free(self.ids)
        self.ids = ids
        self.count = <uint32_t> len(chosen)
        self.found = self.appender.topics.get(self.topic)

    def produce(self, message, partition_key=None, timestamp=None):
        """Append one record to the open batch of a random partition; what needs more than that goes to `owner.produce_slow`."""
        cdef Appender appender = self.appender
        cdef _Topic found = self.found
        cdef Batch batch
        cdef PyObject* entry
        cdef uint64_t x
        cdef int number
        cdef int64_t stamp
        cdef int overflow = 0
        if appender.every:
            if not appender.left:
                appender.left = appender.every
                appender.owner.checkpoint()
            appender.left -= 1
        if not self.open or self.accepted >= self.limit or not appender.fast or appender.forks != gkafka_forks:
            return self.owner.produce_slow(message, partition_key, timestamp)
        if found is None or not self.count:
            return self.owner.produce_slow(message, partition_key, timestamp)
        x = self.chance  # xorshift64: Marsaglia 2003
        x ^= x << 13
        x ^= x >> 7
        x ^= x << 17
        self.chance = x
        number = self.ids[((x >> 32) * self.count) >> 32]
        if number < 0 or number >= found.partitions:
            return self.owner.produce_slow(message, partition_key, timestamp)
        entry = <PyObject*> PyList_GET_ITEM(found.batches, number)
        if <object> entry is None:
            return self.owner.produce_slow(message, partition_key, timestamp)
        batch = <Batch> entry
        if timestamp is None:
            stamp = gkafka_wall_ms()
        elif PyLong_CheckExact(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        else:
            stamp = -1
        if stamp < 0 or _put(batch, message, partition_key, None, stamp, appender.max_record_bytes) != DONE:
            return self.owner.produce_slow(message, partition_key, timestamp)
        self.accepted += 1
        return new_delivery(batch)

    def take(self):
        """Count one record that goes another way; False if the limit is reached."""
        if self.accepted >= self.limit:
            return False
        self.accepted += 1
        return True

    def give_back(self):
        """The record that was counted was not accepted."""
        self.accepted -= 1
