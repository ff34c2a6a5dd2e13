# A written batch, its records, and the view of one record: the compiled twin of `_pure_batch.py`. Included by `_speed_write.pxi`.

cdef enum Put:
    DONE  # the record is in the batch
    FULL  # it does not fit, or there is no memory for it
    BIG  # it is larger than one record may be
    ODD  # something in it is not exactly of the type that goes without checks


# -- a batch -----------------------------------------------------------------------------------------------------------
cdef struct StampRun:
    int64_t first  # index of the first record that has this timestamp
    int64_t timestamp


@cython.final
@cython.no_gc_clear
cdef class Batch:
    """Records of one partition that are sent together: a v2 record batch behind its reserved 61-byte header.

    Made by `Appender.open`. count: records; size: bytes so far, uncompressed, header included; created: monotonic seconds;
    base_timestamp, max_timestamp: ms, -1 while empty; sealed: `wire` is fixed; done: delivered or failed, `error` says which;
    persisted: what `fail` was told; owner: the appender's, None once done; attempts, extra, waits: the owner's. A batch that was split has
    `parts`; a part knows its `parent`, until it is done, and which of the parent's records is its `first`.
    """

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly object owner
    cdef readonly double created
    cdef readonly int count
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp, max_timestamp
    cdef readonly bint has_headers, sealed, done
    cdef readonly object error, persisted
    cdef readonly int64_t base_offset, log_append_time
    cdef readonly Py_ssize_t wire_size
    cdef public object extra, waits
    cdef public long attempts
    cdef readonly Batch parent
    cdef readonly list parts
    cdef readonly int first
    cdef int unfinished
    cdef object __weakref__

    cdef _Pool pool
    cdef _Memory memory
    cdef unsigned char* data  # memory.data while open
    cdef Py_ssize_t capacity, limit  # both 0 as soon as nothing more may be appended
    cdef int64_t last_timestamp
    cdef StampRun* runs  # where the timestamp changes; none while all have base_timestamp
    cdef Py_ssize_t run_count, run_room, run_charge
    cdef list callbacks
    cdef tuple hooks  # called for each of its records, before its own callbacks
    cdef int codec, magic
    cdef bint sealing
    cdef bint apart  # its memory is its own
    cdef object place  # its TopicPartition, once somebody asked
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
            self.pool.credit(self.run_charge)
        free(self.runs)

    def __repr__(self):
        return f"<Batch {self.topic}-{self.partition}: {self.count} records, {self.size} bytes{', sealed' if self.sealed else ''}{', done' if self.done else ''}>"

    @property
    def is_open(self):
        """Does it take records?"""
        return self.limit != 0

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
        if self.memory is None or self.apart:
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
        if self.memory is None or self.apart:  # released by another thread while the GIL was away
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
        if not self.sealed or self.sealing or memory is None or self.apart or self.magic != 2:
            raise ValueError(f"{self!r} is not a sealed v2 batch that still has its memory")
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

    # -- splitting
    def split(self, Py_ssize_t limit):
        """The records in two batches or more, each of about limit bytes (uncompressed) or one record: for a broker that finds this one
        too large (KIP-126).

        The parts take no more records and are not sealed. Each ends by itself; the deliveries and callbacks of this batch follow
        their records, and it is done when all parts are. Its memory is given back, the parts' is taken, if need be beyond
        buffer_bytes. Parts of a part belong to the batch that was split first. Raises ValueError for less than two records, and for
        a batch that is done, being sealed, split or released.
        """
        cdef int i
        cdef list rows = []
        cdef list parts = []
        cdef Batch whole = self if self.parent is None else self.parent
        self.check_split()
        for i in range(self.count):
            row = self.record(i)
            if row is None:
                raise ValueError(f"{self!r} has released its memory")
            rows.append(row)
        for cut in cuts(rows, limit):
            parts.append(self.new_part(whole, cut.first, cut.rows, cut.size, cut.turns))
        self.check_split()  # reading may have let another thread run
        whole.divide(self, parts)
        self.hand_over(parts)
        self.release()
        return list(parts)

    cdef check_split(self):
        if self.count < 2 or self.done or self.sealing or self.parts is not None or self.memory is None or self.apart:
            raise ValueError(f"{self!r} cannot be split")

    cdef Batch new_part(self, Batch whole, int first, list rows, Py_ssize_t size, Py_ssize_t turns):
        cdef Batch part = Batch.__new__(Batch)
        cdef Put put
        self.pool.charge(size)
        part.memory = new_memory(self.pool, size)
        part.pool = self.pool
        part.owner = self.owner
        part.topic = self.topic
        part.partition = self.partition
        part.created = self.created
        part.hooks = self.hooks
        part.parent = whole
        part.first = self.first + first
        part.data = part.memory.data
        part.capacity = part.limit = size
        part.size = HEADER
        if turns:
            part.runs = <StampRun*> malloc(turns * sizeof(StampRun))
            if part.runs == NULL:
                raise MemoryError
            self.pool.charge(turns * <Py_ssize_t> sizeof(StampRun))
            part.run_room = turns
            part.run_charge = turns * <Py_ssize_t> sizeof(StampRun)
        for topic, partition, key, value, headers, timestamp in rows:
            put = _put(part, value, key, headers, timestamp, 1 << 30)
            assert put == DONE, put
        part.close()
        return part

    cdef divide(self, Batch old, list parts):
        cdef Batch part
        cdef list all = []
        if self.parts is None:
            self.parts = parts
            self.unfinished = <int> len(parts)
            return
        for part in self.parts:
            if part is old:
                all += parts
            else:
                all.append(part)
        self.parts = all
        self.unfinished += <int> len(parts) - 1

    cdef hand_over(self, list parts):
        """Callbacks go where their records went. Their numbers stay those of the whole batch."""
        cdef Batch part
        cdef list callbacks = self.callbacks
        self.callbacks = None
        for index, fn in callbacks or ():
            part = part_of(parts, index)
            if part.callbacks is None:
                part.callbacks = []
            part.callbacks.append((index, fn))

    cpdef Batch part(self, int index):
        """The batch that holds record number index: this one, or the part that it went to."""
        return self if self.parts is None else part_of(self.parts, index)

    cdef void release(self) noexcept:
        self.close()
        self.data = NULL
        self.memory = None
        self.plain = None
        self.apart = False
        self.pool.credit(self.run_charge)
        self.run_charge = 0

    cdef set_apart(self):
        cdef _Memory own
        self.close()
        if self.memory is not None and not self.apart:
            own = own_memory(self.memory, self.memory.size if self.sealed else self.size)
            self.memory = own
            self.data = own.data
            self.apart = True
        self.pool.credit(self.run_charge)
        self.run_charge = 0

    # -- what is in it
    def record(self, int index):
        """Record number index as it was produced, None once the memory is released."""
        cdef Batch part
        if not 0 <= index < self.count:
            raise IndexError(f"{self!r} has no record {index}")
        if self.parts is not None:
            part = self.part(index)
            return part.record(index - part.first)
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

    cdef object metadata_of(self, int number, type kind, bint with_place):
        """Where that record was written, as a namedtuple of this kind: (topic, partition, [TopicPartition,] offset, timestamp)."""
        cdef int index = number - self.first
        cdef object found
        if with_place and self.place is None:
            self.place = TopicPartition(self.topic, self.partition)
        found = PyType_GenericAlloc(<PyTypeObject*> kind, 4 + with_place)  # without the calls of a NamedTuple's own __new__: a tenth of the time
        set_item(found, 0, self.topic)
        set_item(found, 1, self.partition)
        if with_place:
            set_item(found, 2, self.place)
        set_item(found, 2 + with_place, self.base_offset + index if self.base_offset >= 0 else -1)
        set_item(found, 3 + with_place, self.log_append_time if self.log_append_time >= 0 else self.timestamp_of(index))
        PyObject_GC_UnTrack(found)  # texts and numbers: millions that somebody keeps are nothing to look at for the garbage collector
        return found

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
        cdef StampRun* runs
        if self.run_count == self.run_room:
            room = self.run_room * 2 if self.run_room else 8
            if not self.pool.reserve((room - self.run_room) * <Py_ssize_t> sizeof(StampRun)):
                return False
            runs = <StampRun*> realloc(self.runs, room * sizeof(StampRun))
            if runs == NULL:
                self.pool.credit((room - self.run_room) * <Py_ssize_t> sizeof(StampRun))
                return False
            self.run_charge += (room - self.run_room) * <Py_ssize_t> sizeof(StampRun)
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

    def fail(self, error, persisted=None):
        """The batch was not delivered; see `complete`. persisted: "no", or "maybe" where a broker may have written it all the same."""
        if not isinstance(error, BaseException):
            raise TypeError(f"error is {type(error).__name__}: must be an exception")
        if self.done:
            return []
        self.error = error
        self.persisted = persisted
        return self.finish()

    cdef list finish(self):
        cdef list callbacks = self.callbacks
        self.done = True
        self.close()
        self.callbacks = None
        self.owner = None  # nobody waits any more, and a delivery that is kept does not keep its producer
        if self.parent is not None:
            self.parent.part_ended(self.error)
            self.parent = None
        if self.hooks is not None:
            return self.hooked(callbacks)
        return [] if callbacks is None else due(callbacks)

    cdef list hooked(self, list callbacks):
        """The hooks of each record in front of its own callbacks."""
        cdef int i
        cdef list all = [(self.first + i, fn) for i in range(self.count) for fn in self.hooks]
        self.hooks = None
        if callbacks is not None:
            all += callbacks
        return due(all)

    cdef void part_ended(self, object error) noexcept:
        self.unfinished -= 1
        if self.error is None:
            self.error = error
        if not self.unfinished:
            self.done = True
            self.owner = None


def call_back(Batch whole not None, callbacks, clock, double until):
    """Call the callbacks, (index, fn) each, in the order of this deque, until that time of the clock.

    None stands in the place of one that is called; it leaves the deque after that, or when this is
    called again behind one that raised.
    """
    while callbacks:
        callback = callbacks[0]
        if callback is not None:
            callbacks[0] = None
            index, fn = callback
            if type(fn) is _Outcome:
                (<_Outcome> fn).tell(whole.part(index), whole, index)
            else:
                fn(delivery_of(Delivery, whole, index))
        callbacks.popleft()
        if clock() >= until:
            return


cdef Batch part_of(list parts, int index):
    """The part that holds a record of the whole batch."""
    cdef Py_ssize_t low = 1
    cdef Py_ssize_t high = len(parts)
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) >> 1
        if (<Batch> parts[middle]).first <= index:
            low = middle + 1
        else:
            high = middle
    return <Batch> parts[low - 1]


cdef list due(list callbacks):
    """What is to be called of these (index, fn), by the index. Reports are no user's code: they are known at once, and who waits for them is woken."""
    cdef int index, last = -1
    cdef bint in_order = True, reports = False
    cdef list others = []
    cdef ReportQueue queue
    for index, fn in callbacks:
        in_order = in_order and index >= last
        reports = reports or type(fn) is Report
        last = index
    if not in_order:
        callbacks.sort(key=_index_of)
    if not reports:
        return callbacks
    for index, fn in callbacks:
        if type(fn) is not Report:
            others.append((index, fn))
            continue
        queue = (<Report> fn).tell()
        if queue.waits:
            others.append((index, queue.wake))
    return others


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
    if memory.summed and memory.summed == memory.size - HEADER:
        crc = gkafka_crc32c_join(c_crc32c(p + 21, HEADER - 21, 0), memory.sum, memory.summed)
    elif n < NOGIL_CRC_BYTES:
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
@cython.no_gc
@cython.freelist(256)
cdef class Delivery:
    """What became of one record: number `index` of `batch`. Two deliveries of the same record are equal. A subclass adds methods, and no
    attributes (`__slots__ = ()`).

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
        """True once it is delivered or has failed. Raises ForkedClientError in a child process, where it never would be."""
        return self.of_this_process().done

    def result(self, timeout=None):
        """RecordMetadata once the record is delivered. Raises its error, which knows its `record` and whether it is `persisted`, or
        KafkaTimeoutError after timeout seconds.
        """
        cdef Batch batch = self.settled(timeout)
        if batch.error is not None:
            raise fresh_error(batch, self)
        return batch.metadata_of(self.index, RecordMetadata, False)

    def exception(self, timeout=None):
        """The record's error, as `result` raises it, None if it was delivered. Raises KafkaTimeoutError after timeout seconds."""
        cdef Batch batch = self.settled(timeout)
        return None if batch.error is None else fresh_error(batch, self)

    cdef Batch of_this_process(self):
        """The batch or part that holds the record; if it is pending, its owner is asked about forks."""
        cdef Batch batch = self.its_batch().part(self.index)
        if not batch.done and batch.pool.forks != gkafka_forks:
            batch.owner.check_process()
            batch = self.batch.part(self.index)
        return batch

    cdef Batch settled(self, timeout):
        cdef Batch batch = self.its_batch().part(self.index)
        if not batch.done:
            batch.owner.wait(self.batch, timeout, self.index)
            batch = self.batch.part(self.index)
            if not batch.done:
                raise KafkaTimeoutError(
                    f"a record for {batch.topic}-{batch.partition} is not delivered yet", topic=batch.topic, partition=batch.partition
                )
        return batch

    def add_done_callback(self, fn):
        """Call fn(delivery) when the record is delivered or has failed; at once if it is already."""
        if not callable(fn):
            raise TypeError(f"a callback is {type(fn).__name__}: must be callable")
        if getattr(fn, "__module__", None) in OF_ASYNCIO:  # wait(), which would go on to ask for what only its own futures have
            raise not_for_asyncio("delivery.result")
        self.call_when_done(fn)

    cdef int call_when_done(self, fn) except -1:
        cdef tuple entry = (self.index, fn)
        cdef list alone = None
        cdef Batch batch
        while True:
            batch = self.of_this_process()
            if batch.done:
                run_callback(fn, self)
                return 0
            if batch.callbacks is not None:
                batch.callbacks.append(entry)
                return 0
            if alone is not None:
                batch.callbacks = alone
                return 0
            alone = [entry]  # making objects may have garbage collected, and so let another thread run, which ends the batch: look again

    def __await__(self):
        """Raise a TypeError that says what to do: a worker of the client's has the outcome, not an event loop."""
        raise not_for_asyncio("delivery.result")

    @property
    def _asyncio_future_blocking(self):
        """What asyncio looks at in whatever it is to wait for. Raise a TypeError that says what to do, out of wrap_future(), gather() and their like."""
        raise not_for_asyncio("delivery.result")

    @property
    def _condition(self):
        """What concurrent.futures takes of whatever it is to wait for. Raise a TypeError that says what to do, out of wait() and as_completed()."""
        raise not_for_executors("delivery.result")

    def __eq__(self, other):
        return isinstance(other, Delivery) and self.batch is (<Delivery> other).batch and self.index == (<Delivery> other).index

    def __hash__(self):
        return hash((id(self.batch), self.index))

    def __repr__(self):
        cdef Batch batch = self.its_batch().part(self.index)
        state = "pending" if not batch.done else "delivered" if batch.error is None else f"failed: {type(batch.error).__name__}"
        return f"<{type(self).__name__} {batch.topic}-{batch.partition} #{self.index}: {state}>"


@cython.no_gc
cdef class FutureDelivery(Delivery):
    """A delivery with the callbacks of kafka-python's future. A subclass tells what they are told:

    metadata_class: the namedtuple (topic, partition, TopicPartition, offset, timestamp); told_error(delivery): the error as it is to be told, of one
    that failed; not_callable(fn): the error to raise for what cannot be called.
    """

    def add_callback(self, f, *args, **kwargs):
        """Call f(*args, metadata, **kwargs) when the record is delivered."""
        return self.tell(True, f, args, kwargs)

    def add_errback(self, f, *args, **kwargs):
        """Call f(*args, exception, **kwargs) when it fails."""
        return self.tell(False, f, args, kwargs)

    cdef object tell(self, bint good, f, tuple args, dict kwargs):
        cdef _Outcome callback = _Outcome.__new__(_Outcome)
        if not callable(f):
            raise type(self).not_callable(f)
        callback.fn = f
        callback.given = args
        callback.named = kwargs if kwargs else None
        callback.good = good
        callback.future_class = type(self)
        self.call_when_done(callback)
        return self


# Of each record that somebody wants to hear of: the garbage collector has nothing to look at. A cycle through it ends with its batch.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class _Outcome:
    """What a callback of a future is called by."""

    cdef object fn
    cdef tuple given
    cdef dict named
    cdef bint good
    cdef type future_class

    def __call__(self, Delivery delivery not None):
        self.tell(delivery.settled(0), delivery.batch, delivery.index)

    cdef int tell(self, Batch batch, Batch whole, int index) except -1:
        cdef object outcome
        if (batch.error is None) is not self.good:
            return 0
        if self.good:
            outcome = batch.metadata_of(index, self.future_class.metadata_class, True)
        else:
            outcome = self.future_class.told_error(delivery_of(self.future_class, whole, index))
        if self.named is not None:
            self.fn(*self.given, outcome, **self.named)
        elif self.given:
            self.fn(*self.given, outcome)
        else:
            self.fn(outcome)
        return 0


cdef class ReportQueue:
    """The reports of one worker whose outcome is known and that were not taken yet, in the order in which it became known.

    A subclass has origin_of(partition), the context of messages; checkpoint(), which gives others a turn; and wake(delivery), which ends what stands in
    `waits`: those who wait for a report.
    """

    cdef readonly object known
    cdef readonly list waits
    cdef dict origins
    cdef unsigned int asked

    def __init__(self):
        self.known = deque()
        self.waits = []
        self.origins = {}

    def next_known(self):
        """(message, its error or None) of the next one; None if there is none, of this process. The offset is -1 if it failed or the broker did not say."""
        cdef Report report
        self.asked += 1
        if not self.asked % 64:
            self.checkpoint()  # who takes thousands that lie there waits for nothing
        try:
            report = self.known.popleft()
        except IndexError:
            return None
        return report.outcome(self.origins, self)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Report:
    """A message that a delivery is of, as pykafka's producers report it: when its outcome is known it stands in its queue."""

    cdef readonly object message, key
    cdef ReportQueue queue
    cdef Batch batch
    cdef int index

    def __init__(self, ReportQueue queue not None, Delivery delivery not None, message, key):
        self.queue = queue
        self.batch = delivery.batch
        self.index = delivery.index
        self.message = message
        self.key = key

    def __call__(self, delivery):
        """It is known already."""
        self.tell()

    cdef ReportQueue tell(self):
        cdef ReportQueue queue = self.queue
        self.queue = None  # a cycle with those that nobody takes would never end
        queue.known.append(self)
        return queue

    cdef object outcome(self, dict origins, ReportQueue queue):
        cdef Batch batch = self.batch.part(self.index)
        cdef int index = self.index - batch.first
        cdef bint stamped = batch.log_append_time >= 0
        cdef object error, origin
        cdef object offset = -1
        if batch.pool.forks != gkafka_forks:
            return None
        error = None if batch.error is None else fresh_error(batch, delivery_of(Delivery, self.batch, self.index))
        if error is None and batch.base_offset >= 0:
            offset = batch.base_offset + index
        origin = origins.get(batch.partition)
        if origin is None:
            origin = origins[batch.partition] = queue.origin_of(batch.partition)
        return (
            message_of(
                origin,
                offset,
                batch.log_append_time if stamped else batch.timestamp_of(index),
                LOG_APPEND_TIME if stamped else CREATE_TIME,
                self.key,
                self.message,
                None,
                NO_CODEC,
                (0 if self.key is None else len(self.key)) + (0 if self.message is None else len(self.message)),
            ),
            error,
        )


cdef inline Delivery delivery_of(type its_class, Batch batch, int index):
    cdef Delivery delivery = Delivery.__new__(Delivery) if its_class is Delivery else <Delivery> its_class.__new__(its_class)
    delivery.batch = batch
    delivery.index = index
    return delivery


cdef inline Delivery new_delivery(Batch batch):
    """Of the record that was appended last."""
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.index = batch.count - 1
    return delivery
