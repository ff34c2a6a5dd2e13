# Fetched batches to columns in Arrow's layout, without an object per record. Included by _speed.pyx.

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, realloc

from gkafka.records import _raw


@cython.final
@cython.no_gc
cdef class Block:
    """Memory that grows, and in the end is lent as a read-only buffer."""

    cdef char* at
    cdef Py_ssize_t capacity
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.at)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass


cdef inline bint room(Block block, Py_ssize_t needed) noexcept nogil:
    """Makes the block at least `needed` bytes large; false without memory."""
    return True if needed <= block.capacity else grow_block(block, needed)


cdef bint grow_block(Block block, Py_ssize_t needed) noexcept nogil:
    cdef Py_ssize_t capacity = block.capacity + (block.capacity >> 1) + 64
    cdef char* at
    if capacity < needed:
        capacity = needed
    at = <char*> realloc(block.at, capacity)
    if at == NULL:
        return False
    block.at = at
    block.capacity = capacity
    return True


cdef object lend(Block block, Py_ssize_t size, str form):
    """The first `size` bytes as a memoryview of that struct form; what is behind them is given back."""
    cdef char* at
    if block.capacity > size + (size >> 3) + 4096:
        at = <char*> realloc(block.at, size + 1)
        if at != NULL:
            block.at = at
            block.capacity = size + 1
    elif not room(block, 1):
        raise MemoryError()
    block.size = size
    return memoryview(block) if form == "B" else memoryview(block).cast(form)


@cython.final
cdef class Strings:
    """A binary column under construction."""

    cdef Block offsets
    cdef Block data
    cdef Block valid
    cdef Py_ssize_t size
    cdef Py_ssize_t nulls
    cdef Py_ssize_t most   # bytes that there can be, as far as that is known

    def __cinit__(self):
        self.offsets = Block()
        self.data = Block()
        self.valid = Block()


cdef bint reserve_strings(Strings strings, Py_ssize_t count) noexcept nogil:
    """Room for offsets and validity of `count` strings in all. New validity bits are 1."""
    cdef Py_ssize_t before = strings.valid.capacity
    if not room(strings.offsets, (count + 1) * 4) or not room(strings.valid, (count >> 3) + 1):
        return False
    memset(strings.valid.at + before, 0xff, strings.valid.capacity - before)
    return True


cdef inline bint put_string(Strings strings, Py_ssize_t index, bytes_at p, int32_t size) noexcept nogil:
    cdef unsigned char* byte
    (<int32_t*> strings.offsets.at)[index] = <int32_t> strings.size
    if size > 0:
        if strings.size + size > strings.data.capacity and not more_data(strings, index, strings.size + size):
            return False
        memcpy(strings.data.at + strings.size, p, size)
        strings.size += size
    elif size < 0:
        byte = <unsigned char*> strings.valid.at + (index >> 3)
        byte[0] = <unsigned char> (byte[0] & ~(1 << <int> (index & 7)))
        strings.nulls += 1
    return True


cdef bint more_data(Strings strings, Py_ssize_t index, Py_ssize_t needed) noexcept nogil:
    """Room for what all reserved strings will need if the rest are like those so far: growing by steps touches twice the memory."""
    cdef Py_ssize_t likely = needed // (index + 1) * (strings.offsets.capacity >> 2)
    likely = min(likely + (likely >> 3), strings.most)
    return room(strings.data, max(likely, needed))


cdef object binary_column(Strings strings, Py_ssize_t count):
    cdef object valid = None
    if not reserve_strings(strings, count):
        raise MemoryError()
    (<int32_t*> strings.offsets.at)[count] = <int32_t> strings.size
    if strings.nulls:
        valid = lend(strings.valid, (count + 7) >> 3, "B")
    return _raw.BinaryColumn(lend(strings.offsets, (count + 1) * 4, "i"), lend(strings.data, strings.size, "B"), valid, strings.nulls)


cdef enum Outcome:
    READ_ON
    AT_END    # at end_offset
    AT_BOUND  # at max_records or max_data_bytes
    DAMAGED
    NO_MEMORY


@cython.final
cdef class Sink:
    """Columns under construction, and the bounds of what goes in."""

    cdef Block offsets
    cdef Block timestamps
    cdef Block types
    cdef Strings keys          # None where not asked for
    cdef Strings values
    cdef Strings header_keys
    cdef Strings header_values
    cdef Block header_offsets
    cdef bint want_keys, want_values, want_headers
    cdef Py_ssize_t count, header_count
    cdef int64_t start_offset, end_offset, next_offset, max_records, max_data
    # Where the last batch's decoding stands, for its errors.
    cdef bytes_at at
    cdef int64_t previous
    cdef int32_t left

    def __cinit__(self):
        self.offsets = Block()
        self.timestamps = Block()
        self.types = Block()
        self.keys = Strings()
        self.values = Strings()
        self.header_keys = Strings()
        self.header_values = Strings()
        self.header_offsets = Block()


cdef bint reserve(Sink sink, Py_ssize_t count) noexcept nogil:
    """Room for `count` records in all, except for their bytes."""
    if not (room(sink.offsets, count * 8) and room(sink.timestamps, count * 8) and room(sink.types, count * 4)):
        return False
    if sink.want_keys and not reserve_strings(sink.keys, count):
        return False
    if sink.want_values and not reserve_strings(sink.values, count):
        return False
    return not sink.want_headers or room(sink.header_offsets, (count + 1) * 4)


cdef bint expect(Sink sink, bytes_at data, Py_ssize_t size) noexcept nogil:
    """Room for the records of a buffer's uncompressed batches, whose counts and sizes are no larger than the buffer."""
    cdef Py_ssize_t pos = 0, count = 0, in_all = 0
    cdef Head head
    while pos < size and read_head(data, pos, size, &head):
        if not head.codec and head.last_offset >= sink.start_offset and head.base_offset < sink.end_offset:
            count += head.count
            in_all += head.end - head.start
        pos = head.end
    if count > sink.max_records:
        count = sink.max_records
    if in_all > sink.max_data:
        in_all = sink.max_data
    sink.keys.most = sink.keys.size + in_all
    return reserve(sink, sink.count + count) and (not sink.want_values or room(sink.values.data, sink.values.size + in_all))


cdef inline Outcome put(Sink sink, const RecordAt* r, int64_t offset, int64_t timestamp, int32_t its_type) noexcept nogil:
    """Adds one record if it lies within the bounds."""
    cdef Py_ssize_t n = sink.count
    if offset < sink.start_offset:
        return READ_ON
    if offset >= sink.end_offset:
        return AT_END
    if n >= sink.max_records or (n and data_size(sink) + (r.end - r.begin) > sink.max_data):
        return AT_BOUND
    (<int64_t*> sink.offsets.at)[n] = offset
    (<int64_t*> sink.timestamps.at)[n] = timestamp
    (<int32_t*> sink.types.at)[n] = its_type
    if sink.want_keys and not put_string(sink.keys, n, r.key, r.key_size):
        return NO_MEMORY
    if sink.want_values and not put_string(sink.values, n, r.value, r.value_size):
        return NO_MEMORY
    if sink.want_headers and not put_headers(sink, r):
        return NO_MEMORY
    sink.count = n + 1
    return READ_ON


cdef inline int64_t data_size(Sink sink) noexcept nogil:
    return sink.keys.size + sink.values.size + sink.header_keys.size + sink.header_values.size


cdef bint put_headers(Sink sink, const RecordAt* r) noexcept nogil:
    cdef bytes_at p = headers_of(r)
    cdef bytes_at end = r.end
    cdef int32_t count = 0, size = 0, n
    cdef Py_ssize_t index = sink.header_count
    (<int32_t*> sink.header_offsets.at)[sink.count] = <int32_t> index
    if not r.header_count:
        return True
    if not reserve_strings(sink.header_keys, index + r.header_count) or not reserve_strings(sink.header_values, index + r.header_count):
        return False
    # read_record has checked them, and nothing else runs in between; a NULL would mean that another thread writes into the buffer.
    p = varint32(p, end, &count)
    if p == NULL:
        return False
    for n in range(r.header_count):
        p = varint32(p, end, &size)
        if p == NULL or size < 0 or size > end - p or not put_string(sink.header_keys, index + n, p, size):
            return False
        p = varint32(p + size, end, &size)
        if p == NULL or size > end - p or not put_string(sink.header_values, index + n, p, size):
            return False
        if size > 0:
            p += size
    sink.header_count = index + r.header_count
    return True


cdef Outcome put_records(Sink sink, const Head* head, bytes_at p, bytes_at limit) noexcept nogil:
    """Adds the records of a v2 batch."""
    cdef int64_t base = head.base_offset
    cdef int32_t last_delta = <int32_t> (head.last_offset - head.base_offset), previous = -1, left = head.count
    cdef int32_t its_type = head.log_append_time
    cdef Outcome outcome = READ_ON
    cdef RecordAt r
    if not reserve(sink, sink.count + head.count):
        return NO_MEMORY
    while left:
        if not read_record(p, limit, head.base_timestamp, previous, last_delta, &r):
            outcome = DAMAGED
            break
        outcome = put(sink, &r, base + r.offset, head.max_timestamp if its_type else r.timestamp, its_type)
        if outcome != READ_ON:
            break
        p = r.end
        previous = <int32_t> r.offset
        left -= 1
    if outcome == READ_ON and p != limit:
        outcome = DAMAGED
    sink.at = p
    sink.previous = previous
    sink.left = left
    return outcome


cdef Outcome put_messages(Sink sink, const Head* head, bytes_at p, bytes_at limit, int32_t count, int64_t base, bint check_crcs) noexcept nogil:
    """Adds plain messages of format 0 and 1."""
    cdef bint fixed = head.codec and head.log_append_time
    cdef int32_t its_type = -1 if head.magic == 0 else head.log_append_time
    cdef int64_t previous = -1
    cdef Outcome outcome = READ_ON
    cdef RecordAt r
    if not reserve(sink, sink.count + count):
        return NO_MEMORY
    sink.left = count
    while sink.left and outcome == READ_ON:
        sink.at = p
        sink.previous = previous
        if not read_message(p, limit, check_crcs, previous, &r):
            return DAMAGED
        outcome = put(sink, &r, base + r.offset, head.base_timestamp if fixed and r.begin[16] else r.timestamp, its_type)
        if outcome == READ_ON:
            p = r.end
            previous = r.offset
            sink.left -= 1
    sink.at = p
    sink.previous = previous
    return outcome


@cython.final
cdef class ColumnReader:
    """One call of decode_columns: the loop over buffers and batches."""

    cdef Sink sink
    cdef object topic, partition, skip, max_bytes, error
    cdef bint check_crcs, skip_calls, complete
    cdef int64_t spent   # bytes decompressed so far
    cdef int64_t budget
    cdef Py_ssize_t batches

    cdef bint read(self, object buffer):
        """Reads one buffer; false if reading ends here."""
        cdef object view = bytes_view(buffer)
        cdef bytes_at data = address_of(view)
        cdef Py_ssize_t pos = 0, size = size_of(view)
        cdef Head head
        if not expect(self.sink, data, size):
            raise MemoryError()
        while pos < size:
            if not read_head(data, pos, size, &head):
                if is_cut(data, pos, size):
                    return True
                self.error = bad_entry(view, pos, self.topic, self.partition)
                return False
            pos = head.end
            if head.last_offset < self.sink.start_offset:
                continue
            if head.count >= 0 and head.base_offset >= self.sink.end_offset:
                self.sink.next_offset = self.sink.end_offset
                self.complete = True
                return False
            if not self.read_batch(view, &head):
                return False
        return True

    cdef object place(self, const Head* head):
        """What errors of a batch are about. Made only for them: most topics have small batches."""
        return _damage.Place(self.topic, self.partition, head.base_offset, head.last_offset)

    cdef bint read_batch(self, object view, const Head* head):
        cdef object payload = view
        cdef bytes_at p = address_of(view) + head.start, limit = address_of(view) + head.end
        cdef int32_t count = head.count
        cdef int64_t base = 0
        cdef Outcome outcome
        if head.codec and self.batches and self.spent >= self.budget:
            return False
        try:
            if head.magic == 2:
                if self.left_out(view, head):
                    self.sink.next_offset = max(self.sink.next_offset, head.last_offset + 1)
                    return True
                p += V2_HEAD
                if head.codec or (not head.count and p < limit):
                    # The checksum was verified before the batch was asked about.
                    payload = open_payload(view, head, False, self.max_bytes, self.place(head))
            elif head.codec:
                payload = open_wrapper(view, head, self.check_crcs, self.max_bytes, self.place(head), &count, &base)
        except _KafkaException as error:
            self.error = error
            return False
        self.batches += 1
        if payload is not view:
            p = address_of(payload)
            limit = p + size_of(payload)
            self.spent += limit - p
        if limit - p < NOGIL_BYTES:
            outcome = self.put_batch(head, p, limit, count, base)
        else:
            with nogil:
                outcome = self.put_batch(head, p, limit, count, base)
        return self.settle(outcome, head, payload, limit, base)

    cdef Outcome put_batch(self, const Head* head, bytes_at p, bytes_at limit, int32_t count, int64_t base) noexcept nogil:
        if head.magic == 2:
            return put_records(self.sink, head, p, limit)
        return put_messages(self.sink, head, p, limit, count, base, self.check_crcs)

    cdef bint left_out(self, object view, const Head* head) except? False:
        """Whether the v2 batch is a control batch or skipped. Its checksum is verified first: it guards the offsets passed over."""
        cdef bytes_at data = address_of(view) + head.start
        cdef uint32_t stored, computed
        if self.check_crcs:
            stored = load_u32(data + 17)
            computed = batch_crc(data + 21, head.end - head.start - 21)
            if stored != computed:
                raise _damage.corrupt(_damage.explain_crc(stored, computed), self.place(head))
        if head.is_control:
            return True
        if self.skip is None:
            return False
        return bool(self.skip(header_of(head))) if self.skip_calls else head.base_offset in self.skip

    cdef bint settle(self, Outcome outcome, const Head* head, object payload, bytes_at limit, int64_t base) except? False:
        """After a batch: where reading goes on. False if it ends here."""
        cdef int64_t reached = (head.base_offset if head.magic == 2 else base) + self.sink.previous + 1
        cdef Py_ssize_t pos
        if outcome == NO_MEMORY:
            raise MemoryError()
        if outcome == READ_ON:
            self.sink.next_offset = max(self.sink.next_offset, head.last_offset + 1, reached)
            return True
        if outcome == AT_END:
            self.sink.next_offset = self.sink.end_offset
            self.complete = True
            return False
        if self.sink.previous >= 0:
            self.sink.next_offset = max(self.sink.next_offset, reached)
        if outcome == DAMAGED:
            pos = self.sink.at - address_of(payload)
            self.error = damaged_at(
                payload, pos, limit - address_of(payload), head, self.sink.left, head.base_offset if head.magic == 2 else base,
                self.sink.previous, self.check_crcs, self.place(head),
            )
        return False


def decode_columns(
    batches, *, int64_t start_offset, end_offset=None, bint keys=True, bint values=True, bint headers=False, bint check_crcs=True, skip=None,
    topic=None, partition=None, max_bytes=None, max_records=None, max_data_bytes=None,
):
    """The records of fetched batches from start_offset up to, not including, end_offset, as columns: see RawColumns.

    batches: a buffer or several, in offset order. keys, values, headers: which of these to build. skip: the base offsets of batches
    to leave out (a set; aborted ones), or a callable that is given each BatchHeader. Control batches are always left out.
    max_bytes: what one batch may decompress to (64 MiB or 8 times its buffer, whichever is more); once all together passed it, reading
    stops at the next compressed batch. max_records, max_data_bytes (2**31 - 1 at most): reading stops before they are passed, after one
    record at least.
    Raises CorruptRecordError or UnsupportedCodec if the first record cannot be read; a later one is the result's `error`.
    """
    cdef ColumnReader reader = ColumnReader()
    cdef Sink sink = Sink()
    cdef list buffers = list(batches) if isinstance(batches, (list, tuple)) else [batches]
    sink.want_keys, sink.want_values, sink.want_headers = keys, values, headers
    sink.start_offset = sink.next_offset = start_offset
    sink.end_offset = INT64_MAX if end_offset is None else end_offset
    sink.max_records = INT32_MAX - 1 if max_records is None else min(max(max_records, 1), INT32_MAX - 1)
    sink.max_data = _raw.MOST_DATA if max_data_bytes is None else min(max_data_bytes, _raw.MOST_DATA)
    reader.sink = sink
    reader.topic, reader.partition, reader.skip, reader.check_crcs = topic, partition, skip, check_crcs
    reader.skip_calls = callable(skip)
    if sink.start_offset >= sink.end_offset:
        reader.complete = True
    else:
        for buffer in buffers:
            reader.max_bytes = _unwrap.room_for(memoryview(buffer).nbytes) if max_bytes is None else max_bytes
            reader.budget = min(reader.max_bytes, INT64_MAX)
            if not reader.read(buffer):
                break
        else:
            reader.complete = True
    if reader.error is not None:
        _damage.bare(reader.error)
        if not sink.count:
            raise reader.error
    return raw_columns(reader, sink)


cdef object raw_columns(ColumnReader reader, Sink sink):
    cdef object headers = None
    cdef Py_ssize_t n = sink.count
    if not reserve(sink, n):
        raise MemoryError()
    if sink.want_headers:
        (<int32_t*> sink.header_offsets.at)[n] = <int32_t> sink.header_count
        headers = _raw.HeaderColumn(
            lend(sink.header_offsets, (n + 1) * 4, "i"),
            binary_column(sink.header_keys, sink.header_count),
            binary_column(sink.header_values, sink.header_count),
        )
    return _raw.RawColumns(
        n, sink.next_offset, reader.complete, reader.error,
        lend(sink.offsets, n * 8, "q"), lend(sink.timestamps, n * 8, "q"), lend(sink.types, n * 4, "i"),
        binary_column(sink.keys, n) if sink.want_keys else None,
        binary_column(sink.values, n) if sink.want_values else None,
        headers,
    )


def microseconds(milliseconds):
    """int64 milliseconds as int64 microseconds; what does not fit becomes the nearest number that does."""
    cdef const int64_t[::1] source = memoryview(milliseconds).cast("B").cast("q")
    cdef Block block = Block()
    cdef Py_ssize_t n = source.shape[0], i
    cdef int64_t* out
    cdef int64_t value, most = INT64_MAX // 1000
    if not room(block, n * 8):
        raise MemoryError()
    out = <int64_t*> block.at
    for i in range(n):
        value = source[i]
        out[i] = INT64_MAX if value > most else INT64_MIN if value < -most else value * 1000
    return lend(block, n * 8, "q")
