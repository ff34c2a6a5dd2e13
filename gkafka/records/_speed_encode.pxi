# Columns into open batches, without an object per record: the compiled twin of `_pure_encode.py`. Included by `_speed_write.pxi`.
#
# Choosing partitions reads nothing but the columns and runs without the GIL. Appending holds it: it is the open batches' lock, and a call ends
# with the first batch that is full.

from cpython.unicode cimport PyUnicode_DecodeUTF8

from gkafka.records.recordcolumns import bad_partition, checked_strings, len_of


@cython.final
cdef class Lent:
    """Strings of a column, read where they stand: see `_raw.BinaryColumn`."""

    cdef object holds  # the buffers
    cdef bytes_at offsets, data, valid
    cdef int64_t size
    cdef Py_ssize_t first


cdef Lent lent(str name, object column, Py_ssize_t count):
    """None for no column. Raises ValueError if its buffers are too small for count strings."""
    cdef Lent strings
    if column is None:
        return None
    checked_strings(name, column, count)
    strings = Lent.__new__(Lent)
    offsets, data = bytes_view(column.offsets), bytes_view(column.data)
    valid = None if column.validity is None else bytes_view(column.validity)
    strings.holds = (offsets, data, valid)
    strings.offsets = address_of(offsets)
    strings.data = address_of(data)
    strings.size = size_of(data)
    if valid is not None:
        strings.valid = address_of(valid)
    strings.first = column.first
    return strings


cdef inline bint is_valid(bytes_at valid, Py_ssize_t i) noexcept nogil:
    return valid == NULL or (valid[i >> 3] >> <int> (i & 7)) & 1


cdef inline bint string_at(Lent strings, Py_ssize_t i, bytes_at* p, Py_ssize_t* n) noexcept nogil:
    """n: -1 for null. False if its offsets are not within its bytes."""
    cdef int32_t ends[2]
    p[0] = NULL
    n[0] = -1
    if strings is None:
        return True
    i += strings.first
    if not is_valid(strings.valid, i):
        return True
    memcpy(ends, strings.offsets + 4 * i, 8)
    if ends[0] < 0 or ends[1] < ends[0] or ends[1] > strings.size:
        return False
    p[0] = strings.data + ends[0]
    n[0] = ends[1] - ends[0]
    return True


# -- partitions ----------------------------------------------------------------------------------------------------------
@cython.final
cdef class LentNumbers:
    """The partitions given for records. at: NULL where none is given."""

    cdef object holds
    cdef bytes_at at, valid
    cdef Py_ssize_t first

    def __cinit__(self, column, Py_ssize_t count):
        if column is None:
            return
        numbers, bits = bytes_view(column.values), None if column.validity is None else bytes_view(column.validity)
        self.first = column.first
        if self.first < 0 or size_of(numbers) < 4 * (self.first + count) or (bits is not None and 8 * size_of(bits) < self.first + count):
            raise ValueError(f"partitions: not {count} numbers from number {self.first} on")
        self.holds = (numbers, bits)
        self.at = address_of(numbers)
        if bits is not None:
            self.valid = address_of(bits)

    cdef inline bint get(self, Py_ssize_t row, int32_t* number) noexcept nogil:
        """False: none is given for that record."""
        row += self.first
        if self.at == NULL or not is_valid(self.valid, row):
            return False
        memcpy(number, self.at + 4 * row, 4)
        return True


def choose_partitions(columns not None, int partition_count, *, bint by_crc32=False):
    """int32 for each record: the partition given with it, else its key's by murmur2 as in Java (or CRC-32 as librdkafka's consistent_random),
    -1 without a key: then the topic's sticky one of the moment takes it.

    partition_count: of the topic, 1 or more. Raises ConfigurationError naming the row of a partition that the topic does not have.
    """
    cdef Py_ssize_t count = columns.count, bad
    cdef Lent keys = lent("keys", columns.keys, count)
    cdef LentNumbers given = LentNumbers.__new__(LentNumbers, columns.partitions, count)
    cdef Block chosen = Block()
    if partition_count < 1:
        raise ValueError(f"partition_count={partition_count}: must be 1 or more")
    if not room(chosen, 4 * count + 1):
        raise MemoryError()
    with nogil:
        bad = choose(keys, given, count, <int32_t*> chosen.at, partition_count, by_crc32)
    if bad >= 0:
        raise bad_partition(bad, columns.partition(bad), partition_count)
    return lend(chosen, 4 * count, "i")


cdef Py_ssize_t choose(Lent keys, LentNumbers given, Py_ssize_t count, int32_t* chosen, int partitions, bint by_crc32) noexcept nogil:
    """Returns the row of a partition that is none, else -1."""
    cdef Py_ssize_t row, size
    cdef bytes_at key
    cdef int32_t number
    for row in range(count):
        if given.get(row, &number):
            if number < 0 or number >= partitions:
                return row
        elif not string_at(keys, row, &key, &size) or size < 0 or (by_crc32 and not size):
            number = -1  # encode_columns stops at what is not within its bytes
        elif by_crc32:
            number = <int32_t> (gkafka_crc32(key, size, 0) % <uint32_t> partitions)
        else:
            number = <int32_t> ((c_murmur2(key, size) & 0x7FFFFFFF) % <uint32_t> partitions)
        chosen[row] = number
    return -1


# -- records -------------------------------------------------------------------------------------------------------------
@cython.final
cdef class LentColumns:
    """Columns of one call."""

    cdef Lent values, keys, header_keys, header_values
    cdef object holds
    cdef bytes_at header_offsets, header_valid
    cdef Py_ssize_t first_header, headers

    def __cinit__(self, columns, Py_ssize_t count):
        self.values = lent("values", columns.values, count)
        self.keys = lent("keys", columns.keys, count)
        headers = columns.headers
        if headers is None:
            return
        offsets, valid = bytes_view(headers.offsets), None if headers.validity is None else bytes_view(headers.validity)
        self.first_header = headers.first
        if self.first_header < 0 or size_of(offsets) < 4 * (self.first_header + count + 1) or (valid is not None and 8 * size_of(valid) < self.first_header + count):
            raise ValueError(f"headers: not {count} lists from number {self.first_header} on")
        self.headers = min(len_of(headers.keys), len_of(headers.values))
        self.header_keys = lent("header keys", headers.keys, self.headers)
        self.header_values = lent("header values", headers.values, self.headers)
        self.holds = (offsets, valid)
        self.header_offsets = address_of(offsets)
        if valid is not None:
            self.header_valid = address_of(valid)

    cdef inline bint headers_of(self, Py_ssize_t row, Py_ssize_t* begin, Py_ssize_t* end) noexcept:
        """Which headers a row has. False if they are not there."""
        cdef int32_t ends[2]
        begin[0] = end[0] = 0
        row += self.first_header
        if self.header_offsets == NULL or not is_valid(self.header_valid, row):
            return True
        memcpy(ends, self.header_offsets + 4 * row, 8)
        begin[0] = ends[0]
        end[0] = ends[1]
        return 0 <= ends[0] <= ends[1] <= self.headers

    cdef Py_ssize_t header_bytes(self, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t most) noexcept:
        """Bytes that these headers take, a little more than `most` if it is more; -1 if a record cannot have them."""
        cdef Py_ssize_t total = varint_bytes(<uint64_t> (end - begin) << 1), i, n
        cdef bytes_at p
        for i in range(begin, end):
            if not string_at(self.header_keys, i, &p, &n) or n < 0 or not is_utf8(p, n):
                return -1
            total += blob_bytes(n)
            if not string_at(self.header_values, i, &p, &n):
                return -1
            total += blob_bytes(n)
            if total > most:
                break
        return total

    cdef unsigned char* put_headers(self, unsigned char* at, Py_ssize_t begin, Py_ssize_t end) noexcept:
        cdef Py_ssize_t i, n
        cdef bytes_at p
        at = put_varint(at, <uint64_t> (end - begin) << 1)
        for i in range(begin, end):
            string_at(self.header_keys, i, &p, &n)
            at = put_blob(at, <const char*> p, n)
            string_at(self.header_values, i, &p, &n)
            at = put_blob(at, <const char*> p, n)
        return at


cdef bint is_utf8(bytes_at p, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if p[i] >= 0x80:
            break
    else:
        return True
    try:
        PyUnicode_DecodeUTF8(<char*> p, n, NULL)
    except Exception:
        return False
    return True


def encode_columns(Appender appender not None, str topic not None, columns not None, targets not None, Py_ssize_t first, int64_t timestamp_ms):
    """Append records, from number `first` on, to the open batches of their partitions, as many as go. Returns the number of the one that does
    not: its partition has no open batch or a full one, it is too large or cannot be a record, or the appender's fast path is closed.
    `produce` it, which begins a batch or raises, and go on behind it. All of them are in when it returns `columns.count`.

    targets: int32, a partition each, -1 for the topic's sticky one (`choose_partitions`). timestamp_ms: of all of them, 0 or more.
    """
    cdef Py_ssize_t count = columns.count, row
    cdef object numbers = bytes_view(targets)
    cdef LentColumns given
    cdef _Topic found
    cdef Batch batch
    cdef int32_t number
    if size_of(numbers) < 4 * count:
        raise ValueError(f"targets: {size_of(numbers) // 4} partitions for {count} records")
    if not 0 <= first <= count or timestamp_ms < 0:
        raise ValueError(f"first={first}, timestamp_ms={timestamp_ms}: must be 0 to {count}, and 0 to 2**63 - 1")
    given = LentColumns.__new__(LentColumns, columns, count)
    found = appender.topics.get(topic)
    if found is None or not appender.fast or appender.forks != gkafka_forks:
        return first
    for row in range(first, count):
        memcpy(&number, address_of(numbers) + 4 * row, 4)
        if number == -1:
            number = found.sticky
        if number < 0 or number >= found.partitions:
            return row
        batch = <Batch> found.batches[number]
        if batch is None or not put_row(batch, given, row, timestamp_ms, appender.max_record_bytes):
            return row
    return count


cdef bint put_row(Batch batch, LentColumns given, Py_ssize_t row, int64_t timestamp, Py_ssize_t most) noexcept:
    """What `_put` does, with a row of columns. False: it does not fit, or cannot be a record."""
    cdef bytes_at key
    cdef bytes_at value
    cdef Py_ssize_t key_size, value_size, begin, end, body, size, need, headers = 1
    cdef int64_t base = batch.base_timestamp if batch.count else timestamp
    cdef uint64_t delta = zigzag(<int64_t> (<uint64_t> timestamp - <uint64_t> base))
    cdef unsigned char* p
    if not string_at(given.keys, row, &key, &key_size) or not string_at(given.values, row, &value, &value_size):
        return False
    if not given.headers_of(row, &begin, &end):
        return False
    if begin < end:
        headers = given.header_bytes(begin, end, most)
        if headers < 0:
            return False
    body = 1 + varint_bytes(delta) + varint_bytes(<uint64_t> batch.count << 1) + blob_bytes(key_size) + blob_bytes(value_size) + headers
    size = varint_bytes(<uint64_t> body << 1) + body
    need = batch.size + size
    if HEADER + size > most or (need > batch.capacity and not grow(batch, need)):
        return False
    if batch.count and timestamp != batch.last_timestamp and not batch.add_run(timestamp):
        return False
    p = put_varint(batch.data + batch.size, <uint64_t> body << 1)
    p[0] = 0
    p = put_varint(p + 1, delta)
    p = put_varint(p, <uint64_t> batch.count << 1)
    p = put_blob(p, <const char*> key, key_size)
    p = put_blob(p, <const char*> value, value_size)
    given.put_headers(p, begin, end)
    if begin < end:
        batch.has_headers = True
    if not batch.count:
        batch.base_timestamp = batch.max_timestamp = timestamp
    elif timestamp > batch.max_timestamp:
        batch.max_timestamp = timestamp
    batch.last_timestamp = timestamp
    batch.size = need
    batch.count += 1
    return True
