# A producer of one topic, the compiled half: the twin of `_pure_lane.py`. Included by `_speed_write.pxi`.

@cython.final
@cython.no_gc_clear
cdef class Lane:
    """The per-message part of a producer of one topic that spreads its records evenly or by a partitioner, and bounds their number.

    owner: serves what this does not take, `produce_slow(message, key, timestamp[, chosen])`, `partitioner_failed(error)`, and `milliseconds(timestamp)` of what is not
    an int. seed: where the turns of the partitions begin, 0 or more. open: while it is False everything goes to the owner. accepted: records taken so far; limit: with that many taken the next goes to the owner. report_to(): the
    calling worker's reports, in which there is one of each record that this appends; None: nobody wants any.
    """

    cdef readonly object owner
    cdef readonly Appender appender
    cdef readonly str topic
    cdef readonly Py_ssize_t accepted
    cdef public Py_ssize_t limit
    cdef public bint open
    cdef public object report_to
    cdef _Topic found
    cdef object partitioner
    cdef list partitions
    cdef int* ids
    cdef uint32_t count
    cdef uint64_t turn
    cdef object __weakref__

    def __cinit__(self, owner, Appender appender not None, str topic not None, *, seed):
        self.owner = owner
        self.appender = appender
        self.topic = topic
        self.turn = <uint64_t> (seed & 0x7FFFFFFF)

    def __dealloc__(self):
        free(self.ids)

    def spread(self, partitions):
        """Take these partitions in turn from now on; none: the owner chooses."""
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

    def partition_by(self, partitioner, partitions):
        """Ask `partitioner(partitions, key)` from now on: it gets a list of its own and gives a number or something with an `id`."""
        self.partitioner = partitioner
        self.partitions = list(partitions)
        self.found = self.appender.topics.get(self.topic)

    cdef inline bint takes(self):
        """May this append at all now?"""
        cdef Appender appender = self.appender
        return (
            self.open and self.accepted < self.limit and appender.fast and self.found is not None and appender.forks == gkafka_forks
        )

    cdef object slow(self, message, partition_key, timestamp, chosen, Py_ssize_t number):
        if self.partitioner is None:
            chosen = number  # another turn would favour the partitions whose batches are open
        return self.owner.produce_slow(message, partition_key, timestamp, chosen)

    def produce(self, message, partition_key=None, timestamp=None):
        """Append one record to the open batch of a partition; what needs more than that goes to `owner.produce_slow`."""
        cdef Appender appender = self.appender
        cdef _Topic found
        cdef object chosen = None
        cdef object its_id
        cdef Batch batch
        cdef Delivery delivery
        cdef PyObject* entry
        cdef Py_ssize_t number
        cdef int64_t stamp
        cdef int overflow = 0
        if message is not None and not PyBytes_CheckExact(message):
            message = plain(message)
        if partition_key is not None and not PyBytes_CheckExact(partition_key):
            partition_key = plain(partition_key)
        if timestamp is not None and not PyLong_CheckExact(timestamp):
            timestamp = self.owner.milliseconds(timestamp)
        if appender.every:
            if not appender.left:
                appender.left = appender.every
                appender.owner.checkpoint()
            appender.left -= 1
        if not self.takes() or not (self.count if self.partitioner is None else len(self.partitions)):
            return self.owner.produce_slow(message, partition_key, timestamp)
        if self.partitioner is not None:
            try:
                chosen = self.partitioner(self.partitions[:], partition_key)
            except Exception as error:
                return self.owner.partitioner_failed(error)
            its_id = chosen if type(chosen) is int else getattr(chosen, "id", None)
            # The partitioner is user code: it may have switched to others, closed the producer, or called back into it.
            if type(its_id) is not int or not self.takes():
                return self.owner.produce_slow(message, partition_key, timestamp, chosen)
            number = PyLong_AsLongAndOverflow(its_id, &overflow)
            if overflow:
                return self.owner.produce_slow(message, partition_key, timestamp, chosen)
        else:
            number = self.next_turn()
        found = self.found
        if number < 0 or number >= found.partitions:
            return self.slow(message, partition_key, timestamp, chosen, number)
        entry = <PyObject*> PyList_GET_ITEM(found.batches, number)
        if <object> entry is None:
            return self.slow(message, partition_key, timestamp, chosen, number)
        batch = <Batch> entry
        if timestamp is None:
            stamp = gkafka_wall_ms()
        elif PyLong_CheckExact(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        else:
            stamp = -1
        if stamp < 0 or _put(batch, message, partition_key, None, stamp, appender.max_record_bytes) != DONE:
            return self.slow(message, partition_key, timestamp, chosen, number)
        self.accepted += 1
        delivery = new_delivery(batch)
        if self.report_to is not None:
            delivery.call_when_done(Report(self.report_to(), delivery, message, partition_key))
        return delivery

    cpdef int next_turn(self) except -1:
        """The partition whose turn it is, of those to spread() over. Raises ValueError if there is none."""
        if not self.count:
            raise ValueError("no partitions to take in turn: call spread()")
        self.turn += 1
        return self.ids[self.turn % self.count]

    def take(self):
        """Count one record that goes another way; False if the limit is reached."""
        if self.accepted >= self.limit:
            return False
        self.accepted += 1
        return True

    def give_back(self):
        """The record that was counted was not accepted."""
        self.accepted -= 1
