# Reading record batches, second part: one record found in its bytes, and the message made of it. Included by _speed.pyx.


@cython.final
cdef class Source:
    """What all messages of a batch have in common: the bytes they are cut from, kept alive, and where they came from."""

    cdef object keeper  # a memoryview: the buffer under it stays exported as long as a message lives
    cdef object context
    cdef object timestamp_type
    cdef object compression_type


cdef Source new_source(object keeper, object context, object timestamp_type, object compression_type):
    cdef Source source = Source.__new__(Source)
    source.keeper = keeper
    source.context = context
    source.timestamp_type = timestamp_type
    source.compression_type = compression_type
    return source


cdef inline bytes_at varint32(bytes_at p, bytes_at end, int32_t* value) noexcept nogil:
    """Reads a zigzag varint; the position behind it, NULL if there is none before end."""
    cdef uint32_t number, byte
    if p >= end:
        return NULL
    number = p[0]
    if number < 0x80:
        value[0] = <int32_t> (number >> 1) ^ -<int32_t> (number & 1)
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        number = (number & 0x7f) | <uint32_t> p[1] << 7
        value[0] = <int32_t> (number >> 1) ^ -<int32_t> (number & 1)
        return p + 2
    return long_varint32(p, end, value)


cdef bytes_at long_varint32(bytes_at p, bytes_at end, int32_t* value) noexcept nogil:
    cdef uint32_t number = 0, byte
    cdef int shift = 0
    while p < end:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0f:
            return NULL
        number |= (byte & 0x7f) << shift
        if byte < 0x80:
            value[0] = <int32_t> (number >> 1) ^ -<int32_t> (number & 1)
            return p
        shift += 7
    return NULL


cdef inline bytes_at varint64(bytes_at p, bytes_at end, int64_t* value) noexcept nogil:
    cdef uint32_t number
    if end - p >= 2:
        number = p[0]
        if number < 0x80:
            value[0] = <int32_t> (number >> 1) ^ -<int32_t> (number & 1)
            return p + 1
        if p[1] < 0x80:
            number = (number & 0x7f) | <uint32_t> p[1] << 7
            value[0] = <int32_t> (number >> 1) ^ -<int32_t> (number & 1)
            return p + 2
    return long_varint64(p, end, value)


cdef bytes_at long_varint64(bytes_at p, bytes_at end, int64_t* value) noexcept nogil:
    cdef uint64_t number = 0, byte
    cdef int shift = 0
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        number |= (byte & 0x7f) << shift
        if byte < 0x80:
            value[0] = <int64_t> (number >> 1) ^ -<int64_t> (number & 1)
            return p
        shift += 7
    return NULL


cdef struct RecordAt:
    bytes_at begin
    bytes_at end
    bytes_at key      # where it is, or would be
    bytes_at value    # the headers follow it in a v2 record
    int64_t timestamp
    int64_t offset    # a delta in a v2 record, as it stands in a message
    int32_t key_size    # -1: null
    int32_t value_size
    int32_t header_count


cdef inline bytes_at headers_of(const RecordAt* record) noexcept nogil:
    return record.value + (record.value_size if record.value_size > 0 else 0)


cdef inline bint read_record(bytes_at p, bytes_at limit, int64_t base_timestamp, int32_t previous, int32_t last_delta, RecordAt* r) noexcept nogil:
    """The v2 record at p, checked to its last byte; false if it is damaged."""
    cdef int32_t length, delta
    cdef int64_t timestamp
    cdef bytes_at end
    r.begin = p
    p = varint32(p, limit, &length)
    if p == NULL or length < 1 or length > limit - p:
        return False
    end = p + length
    r.end = end
    p = varint64(p + 1, end, &timestamp)
    if p == NULL:
        return False
    if (timestamp > 0 and base_timestamp > INT64_MAX - timestamp) or (timestamp < 0 and base_timestamp < INT64_MIN - timestamp):
        return False
    r.timestamp = base_timestamp + timestamp
    p = varint32(p, end, &delta)
    if p == NULL or delta <= previous or delta > last_delta:
        return False
    r.offset = delta
    p = varint32(p, end, &r.key_size)
    if p == NULL or r.key_size < -1 or r.key_size > end - p:
        return False
    r.key = p
    if r.key_size > 0:
        p += r.key_size
    p = varint32(p, end, &r.value_size)
    if p == NULL or r.value_size < -1 or r.value_size > end - p:
        return False
    r.value = p
    if r.value_size > 0:
        p += r.value_size
    if p < end and p[0] == 0:
        r.header_count = 0
        return p + 1 == end
    return check_headers(p, end, &r.header_count)


cdef bint check_headers(bytes_at p, bytes_at end, int32_t* count) noexcept nogil:
    cdef int32_t size, n
    p = varint32(p, end, count)
    if p == NULL or count[0] < 0 or count[0] > (end - p) // 2:
        return False
    for n in range(count[0]):
        p = varint32(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            return False
        p = varint32(p + size, end, &size)
        if p == NULL or size < -1 or size > end - p:
            return False
        if size > 0:
            p += size
    return p == end


cdef inline bint read_message(bytes_at p, bytes_at limit, bint check_crcs, int64_t previous, RecordAt* r) noexcept nogil:
    """The message of format 0 or 1 at p, checked to its last byte; false if it is damaged."""
    cdef Py_ssize_t left = limit - p
    cdef int32_t length
    cdef unsigned char magic
    if left < 12 + SMALLEST_V0:
        return False
    length = <int32_t> load_u32(p + 8)
    magic = p[16]
    if magic > 1 or length < smallest(magic) or length > left - 12:
        return False
    r.begin = p
    r.end = p + 12 + length
    if check_crcs and gkafka_crc32(p + 16, length - 4, 0) != load_u32(p + 12):
        return False
    r.offset = <int64_t> load_u64(p)
    if r.offset <= previous:
        return False
    r.timestamp = <int64_t> load_u64(p + 18) if magic else -1
    r.key = p + (30 if magic else 22)
    r.key_size = <int32_t> load_u32(r.key - 4)
    if r.key_size < -1 or r.key_size > r.end - r.key - 4:
        return False
    r.value = r.key + (r.key_size if r.key_size > 0 else 0) + 4
    r.value_size = <int32_t> load_u32(r.value - 4)
    r.header_count = 0
    return r.value_size >= -1 and headers_of(r) == r.end


@cython.no_gc
@cython.freelist(1024)
cdef class Message:
    """A record as read: a view of the fetched buffer. Key, value and headers are cut when asked for, each time anew.

    A message keeps its buffer alive; `detach()` gives one that does not. A subclass adds methods, and no attributes (`__slots__ = ()`).
    """

    cdef Source source
    cdef bytes_at key_at
    cdef bytes_at value_at
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly Py_ssize_t size
    cdef int32_t key_size
    cdef int32_t value_size
    cdef Py_ssize_t tail  # bytes behind the value: the headers

    def __init__(self):
        raise TypeError("messages are made by Records and make_message")

    @property
    def value(self):
        if self.value_size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*> self.value_at, self.value_size)

    @property
    def key(self):
        if self.key_size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*> self.key_at, self.key_size)

    @property
    def payload(self):
        """The value, under pykafka's older name."""
        return self.value

    @property
    def partition_key(self):
        """The key, under pykafka's name."""
        return self.key

    @property
    def topic(self):
        return source_of(self).context.topic

    @property
    def partition_id(self):
        return source_of(self).context.partition_id

    @property
    def partition(self):
        """The Partition it came from, where the consumer knows one (pykafka)."""
        return source_of(self).context.partition

    @property
    def timestamp_type(self):
        return source_of(self).timestamp_type

    @property
    def compression_type(self):
        """How its batch was compressed."""
        return source_of(self).compression_type

    @property
    def response_code(self):
        """0: a message that could not be fetched is an exception (pykafka's name)."""
        return 0

    @property
    def produce_attempt(self):
        """0 for what was consumed (pykafka's name)."""
        return 0

    @property
    def headers(self):
        cdef bytes_at p = self.value_at + (self.value_size if self.value_size > 0 else 0)
        cdef bytes_at end = p + self.tail
        cdef int32_t count = 0, key_size = 0, size = 0, n
        cdef bytes_at key
        cdef list headers = []
        if self.tail <= 1:
            return headers
        p = varint32(p, end, &count)
        if p == NULL:
            raise ValueError("the buffer of this message was changed since it was read")
        for n in range(count):
            key = varint32(p, end, &key_size)
            if key == NULL or key_size < 0 or key_size > end - key:
                raise ValueError("the buffer of this message was changed since it was read")
            p = varint32(key + key_size, end, &size)
            if p == NULL or size < -1 or size > end - p:
                raise ValueError("the buffer of this message was changed since it was read")
            name = PyUnicode_DecodeUTF8(<char*> key, key_size, "replace")
            headers.append((name, PyBytes_FromStringAndSize(<const char*> p, size) if size >= 0 else None))
            if size > 0:
                p += size
        return headers

    def detach(self):
        """A message with its own copy of key, value and headers, which does not keep the fetched buffer alive."""
        cdef Message message = new_message(type(self))
        cdef Source source = source_of(self)
        cdef Py_ssize_t to_value = self.value_at - self.key_at
        cdef Py_ssize_t size = to_value + (self.value_size if self.value_size > 0 else 0) + self.tail
        cdef object copy = bytes_view(PyBytes_FromStringAndSize(<const char*> self.key_at, size))
        message.source = new_source(copy, source.context, source.timestamp_type, source.compression_type)
        message.key_at = address_of(copy)
        message.value_at = message.key_at + to_value
        message.offset = self.offset
        message.timestamp = self.timestamp
        message.size = self.size
        message.key_size = self.key_size
        message.value_size = self.value_size
        message.tail = self.tail
        return message

    def __copy__(self):
        return self.detach()

    def __deepcopy__(self, memo):
        return self.detach()

    def __reduce__(self):
        fields = (self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers, self.compression_type, self.size)
        return _message.restore, (self.topic, self.partition_id, *fields)

    def __repr__(self):
        return f"<{type(self).__name__} {self.topic}[{self.partition_id}] offset {self.offset}, {self.size} bytes>"


@cython.no_gc
@cython.collection_type("sequence")
cdef class Row(Message):
    """A message that behaves as kafka-python's namedtuple: fields by name and by number, unpacking, equality, `_asdict()`, `_replace()`.

    To isinstance() it is such a tuple: it says so by __class__, as proxies do.
    """

    _fields = _rows.ConsumerRecord._fields
    _field_defaults = _rows.ConsumerRecord._field_defaults
    __match_args__ = _rows.ConsumerRecord._fields
    _make = _rows.ConsumerRecord._make
    _asdict = _rows.as_dict
    _replace = _rows.replace
    index = _rows.index
    count = _rows.count
    checksum = None

    @property
    def __class__(self):
        """Not type(row)."""
        return _rows.ConsumerRecord

    @property
    def partition(self):
        """The partition's id."""
        return source_of(self).context.partition_id

    @property
    def timestamp_type(self):
        """0 the producer's, 1 the broker's, -1 none."""
        return int(source_of(self).timestamp_type)

    @property
    def serialized_key_size(self):
        """Bytes of the key, -1 for None."""
        return self.key_size

    @property
    def serialized_value_size(self):
        """Bytes of the value, -1 for None."""
        return self.value_size

    @property
    def serialized_header_size(self):
        """Bytes of the headers, -1 for none."""
        return _rows.header_size(self.headers)

    def with_values(self, key, value):
        """It as a tuple, with a key and a value that may be deserialized."""
        cdef object headers = self.headers
        cdef object found = PyType_GenericAlloc(<PyTypeObject*> _rows.ConsumerRecord, 12)
        set_item(found, 0, self.topic)
        set_item(found, 1, self.partition)
        set_item(found, 2, self.offset)
        set_item(found, 3, self.timestamp)
        set_item(found, 4, self.timestamp_type)
        set_item(found, 5, key)
        set_item(found, 6, value)
        set_item(found, 7, headers)
        set_item(found, 8, None)
        set_item(found, 9, self.key_size)
        set_item(found, 10, self.value_size)
        set_item(found, 11, _rows.header_size(headers) if headers else -1)
        return found

    def __len__(self):
        return len(self._fields)

    def __iter__(self):
        return iter(_rows.whole(self))

    def __getitem__(self, index):
        return _rows.whole(self)[index]

    def __contains__(self, value):
        return value in _rows.whole(self)

    def __eq__(self, other):
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] == pair[1]

    def __lt__(self, other):
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] < pair[1]

    def __le__(self, other):
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] <= pair[1]

    def __gt__(self, other):
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] > pair[1]

    def __ge__(self, other):
        pair = _rows.compare(self, other)
        return NotImplemented if pair is None else pair[0] >= pair[1]

    def __add__(self, other):
        return _rows.joined(self, other)

    def __radd__(self, other):
        return _rows.joined(other, self)

    def __mul__(self, number):
        return tuple(_rows.whole(self)) * number

    def __rmul__(self, number):
        return tuple(_rows.whole(self)) * number

    def __hash__(self):
        return hash(_rows.whole(self))

    def __repr__(self):
        return repr(_rows.whole(self))

    def __reduce__(self):
        return _rows.ConsumerRecord, tuple(_rows.whole(self))


_rows.ConsumerRecord.register(Row)


cdef inline Message new_message(type its_class):
    if its_class is Row:
        return Row.__new__(Row)
    return Message.__new__(Message) if its_class is Message else <Message> its_class.__new__(its_class)


cdef inline Source source_of(Message message):
    if message.source is None:  # made by Message.__new__, around Records
        raise TypeError("this message was not read from anywhere")
    return message.source


_common.Message.register(Message)


def make_message(context, offset, timestamp, timestamp_type, key, value, headers, *, compression_type=_CompressionType.NONE, size=0):
    """A message of given parts, as if it had been read."""
    return message_of(context, offset, timestamp, _TimestampType(timestamp_type), key, value, headers, _CompressionType(compression_type), size)


cdef Message message_of(context, offset, timestamp, timestamp_type, key, value, headers, compression_type, size):
    cdef Message message = Message.__new__(Message)
    cdef bytes tail = _message.pack_headers(headers) if headers else b""
    cdef object copy = bytes_view((key or b"") + (value or b"") + tail)
    message.source = new_source(copy, context, timestamp_type, compression_type)
    message.key_at = address_of(copy)
    message.key_size = -1 if key is None else len(key)
    message.value_at = message.key_at + (0 if key is None else len(key))
    message.value_size = -1 if value is None else len(value)
    message.tail = len(tail)
    message.offset = offset
    message.timestamp = timestamp
    message.size = size
    return message
