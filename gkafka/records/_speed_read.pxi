# Reading record batches: headers, messages and the records of one batch. Included by _speed.pyx.
#
# The C code only finds that something is wrong and where; gkafka.records._damage says what, in the same words for both
# implementations. Bytes are checked again wherever they are read again: a caller's bytearray may have changed since.

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8

from gkafka import common as _common
from gkafka.common import CompressionType as _CompressionType, TimestampType as _TimestampType
from gkafka.exceptions import KafkaException as _KafkaException
from gkafka.records import _damage, _message, _unwrap

ctypedef const unsigned char* bytes_at

cdef enum:
    V2_HEAD = 61
    SMALLEST_V0 = 14
    SMALLEST_V1 = 22
    SMALLEST_V2 = 49
    SMALLEST_RECORD = 7
    ENTRY_HEAD = 17

cdef int64_t INT64_MAX = 0x7fffffffffffffff
cdef int64_t INT64_MIN = -INT64_MAX - 1
cdef int64_t INT32_MAX = 0x7fffffff

cdef object CREATE_TIME = _TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = _TimestampType.LOG_APPEND_TIME
cdef object NO_TIMESTAMP = _TimestampType.NONE
cdef tuple CODECS = tuple(_CompressionType)
cdef object NO_CODEC = _CompressionType.NONE


cdef inline object bytes_view(object buffer):
    """A memoryview of bytes that is ours alone: nobody else can release it."""
    cdef object view = PyMemoryView_FromObject(buffer)
    cdef Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.ndim != 1 or raw.itemsize != 1 or (raw.strides != NULL and raw.strides[0] != 1):
        view = view.cast("B")
    return view


cdef inline bytes_at address_of(object view):
    return <bytes_at> PyMemoryView_GET_BUFFER(view).buf


cdef inline Py_ssize_t size_of(object view):
    return PyMemoryView_GET_BUFFER(view).len


# -- headers -----------------------------------------------------------------------------------------------------------
cdef struct Head:
    Py_ssize_t start
    Py_ssize_t end
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t count
    int32_t base_sequence
    int32_t leader_epoch
    int16_t producer_epoch
    uint8_t magic
    uint8_t attributes
    uint8_t codec
    uint8_t log_append_time
    uint8_t is_control
    uint8_t is_transactional


cdef inline int32_t smallest(unsigned char magic) noexcept nogil:
    return SMALLEST_V2 if magic == 2 else SMALLEST_V1 if magic == 1 else SMALLEST_V0


cdef bint read_head(bytes_at data, Py_ssize_t pos, Py_ssize_t size, Head* head) noexcept nogil:
    """The batch at pos; false if it is cut or damaged."""
    cdef bytes_at p = data + pos
    cdef Py_ssize_t left = size - pos
    cdef int64_t offset
    cdef int32_t length
    if left < 12 + SMALLEST_V0:
        return False
    offset = <int64_t> load_u64(p)
    length = <int32_t> load_u32(p + 8)
    if p[16] > 2 or length < smallest(p[16]) or left - 12 < length or offset < 0 or offset == INT64_MAX:
        return False
    head.start = pos
    head.magic = p[16]
    if p[16] == 2:
        return read_batch_head(p, offset, length, head)
    read_message_head(data, pos, size, head)
    return True


cdef bint read_batch_head(bytes_at p, int64_t offset, int32_t length, Head* head) noexcept nogil:
    cdef int32_t last_delta = <int32_t> load_u32(p + 23)
    head.attributes = p[22]
    head.codec = p[22] & 7
    head.count = <int32_t> load_u32(p + 57)
    if last_delta < 0 or offset > INT64_MAX - 1 - last_delta or head.count < 0:
        return False
    if head.codec == 0 and <int64_t> head.count * SMALLEST_RECORD > length - SMALLEST_V2:
        return False
    head.end = head.start + 12 + length
    head.base_offset = offset
    head.last_offset = offset + last_delta
    head.leader_epoch = <int32_t> load_u32(p + 12)
    head.log_append_time = p[22] >> 3 & 1
    head.is_transactional = p[22] >> 4 & 1
    head.is_control = p[22] >> 5 & 1
    head.base_timestamp = <int64_t> load_u64(p + 27)
    head.max_timestamp = <int64_t> load_u64(p + 35)
    head.producer_id = <int64_t> load_u64(p + 43)
    head.producer_epoch = <int16_t> load_u16(p + 51)
    head.base_sequence = <int32_t> load_u32(p + 53)
    return True


cdef void read_message_head(bytes_at data, Py_ssize_t pos, Py_ssize_t size, Head* head) noexcept nogil:
    """One compressed message, or the run of plain ones with the same attributes and rising offsets that begins at pos."""
    cdef bytes_at p = data + pos
    cdef unsigned char magic = p[16]
    cdef unsigned char attributes = p[17]
    cdef Py_ssize_t end = pos + 12 + <int32_t> load_u32(p + 8)
    cdef int64_t offset, timestamp
    cdef int32_t length
    head.attributes = attributes
    head.codec = attributes & 7
    head.log_append_time = magic and (attributes >> 3 & 1)
    head.is_transactional = head.is_control = False
    head.producer_id = head.producer_epoch = head.base_sequence = head.leader_epoch = -1
    head.base_timestamp = head.max_timestamp = <int64_t> load_u64(p + 18) if magic else -1
    head.base_offset = head.last_offset = <int64_t> load_u64(p)
    head.count = 1
    while not head.codec and size - end >= 12 + smallest(magic) and head.count < INT32_MAX:
        p = data + end
        offset = <int64_t> load_u64(p)
        length = <int32_t> load_u32(p + 8)
        if p[16] != magic or p[17] != attributes or offset <= head.last_offset or offset == INT64_MAX:
            break
        if length < smallest(magic) or length > size - end - 12:
            break
        if magic:
            timestamp = <int64_t> load_u64(p + 18)
            if timestamp > head.max_timestamp:
                head.max_timestamp = timestamp
        head.last_offset = offset
        head.count += 1
        end += 12 + length
    head.end = end
    if head.codec:
        head.count = -1


cdef bint is_cut(bytes_at data, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    """Whether the entry at pos, which is not a whole good one, is the beginning of one."""
    cdef bytes_at p = data + pos
    cdef Py_ssize_t left = size - pos
    cdef int64_t offset
    cdef int32_t length
    if left < 12:
        return True
    offset = <int64_t> load_u64(p)
    length = <int32_t> load_u32(p + 8)
    if length < SMALLEST_V0:
        return False
    if left < ENTRY_HEAD:
        return True
    return p[16] <= 2 and length >= smallest(p[16]) and 0 <= offset < INT64_MAX and left - 12 < length


@cython.final
cdef class BatchHeader:
    """What a batch says about itself. `scan` makes it; its numbers are checked against each other, not by the checksum.

    start, end: where the batch stands in the scanned buffer. count: -1 for a compressed message of format 0 or 1, whose
    base_offset is also unknown and given as its last. A run of uncompressed messages of format 0 or 1 is one batch.
    """

    cdef Head head

    @property
    def start(self): return self.head.start

    @property
    def end(self): return self.head.end

    @property
    def magic(self): return self.head.magic

    @property
    def base_offset(self): return self.head.base_offset

    @property
    def last_offset(self): return self.head.last_offset

    @property
    def next_offset(self): return self.head.last_offset + 1

    @property
    def count(self): return self.head.count

    @property
    def codec(self): return self.head.codec

    @property
    def timestamp_type(self): return timestamp_type(&self.head)

    @property
    def base_timestamp(self): return self.head.base_timestamp

    @property
    def max_timestamp(self): return self.head.max_timestamp

    @property
    def producer_id(self): return self.head.producer_id

    @property
    def producer_epoch(self): return self.head.producer_epoch

    @property
    def base_sequence(self): return self.head.base_sequence

    @property
    def is_control(self): return bool(self.head.is_control)

    @property
    def is_transactional(self): return bool(self.head.is_transactional)

    @property
    def leader_epoch(self): return self.head.leader_epoch

    def __repr__(self):
        return (
            f"<BatchHeader v{self.magic} offsets {self.base_offset}-{self.last_offset} count {self.count} bytes {self.start}-{self.end}>"
        )


cdef inline object timestamp_type(const Head* head):
    return NO_TIMESTAMP if head.magic == 0 else LOG_APPEND_TIME if head.log_append_time else CREATE_TIME


cdef inline BatchHeader header_of(const Head* head):
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    header.head = head[0]
    return header


def scan(buffer, *, topic=None, partition=None, bint strict=False):
    """The headers of the whole batches in a fetched buffer. The tail that a broker cuts off is left out.

    Where no batch can begin, what stands before is returned if there is any: the next scan, from there, raises. So a good
    batch is always handed out before the error of a bad one. strict: raise at once, also for a cut tail.
    Raises CorruptRecordError with topic, partition and offset.
    """
    cdef object view = bytes_view(buffer)
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t pos = 0, size = size_of(view)
    cdef list headers = []
    cdef Head head
    while pos < size:
        if not read_head(data, pos, size, &head):
            if strict or not (headers or is_cut(data, pos, size)):
                raise bad_entry(view, pos, topic, partition)
            break
        headers.append(header_of(&head))
        pos = head.end
    return headers


cdef object bad_entry(object view, Py_ssize_t pos, object topic, object partition):
    cdef object offset = <int64_t> load_u64(address_of(view) + pos) if size_of(view) - pos >= 8 else -1
    return _damage.corrupt(_damage.explain_entry(view, pos, whole=True), _damage.Place(topic, partition, offset, offset))


# -- messages ----------------------------------------------------------------------------------------------------------
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


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Message:
    """A record as read: a view of the fetched buffer. Key, value and headers are cut when asked for, each time anew.

    A message keeps its buffer alive; `detach()` gives one that does not.
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
        cdef Message message = Message.__new__(Message)
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
        return f"<Message {self.topic}[{self.partition_id}] offset {self.offset}, {self.size} bytes>"


cdef inline Source source_of(Message message):
    if message.source is None:  # made by Message.__new__, around Records
        raise TypeError("this message was not read from anywhere")
    return message.source


_common.Message.register(Message)


def make_message(context, offset, timestamp, timestamp_type, key, value, headers, *, compression_type=_CompressionType.NONE, size=0):
    """A message of given parts, as if it had been read."""
    cdef Message message = Message.__new__(Message)
    cdef bytes tail = _message.pack_headers(headers) if headers else b""
    cdef object copy = bytes_view((key or b"") + (value or b"") + tail)
    message.source = new_source(copy, context, _TimestampType(timestamp_type), _CompressionType(compression_type))
    message.key_at = address_of(copy)
    message.key_size = -1 if key is None else len(key)
    message.value_at = message.key_at + (0 if key is None else len(key))
    message.value_size = -1 if value is None else len(value)
    message.tail = len(tail)
    message.offset = offset
    message.timestamp = timestamp
    message.size = size
    return message


# -- records -----------------------------------------------------------------------------------------------------------
cdef object open_payload(object view, const Head* head, bint check_crcs, object max_bytes, object place):
    """The records of a v2 batch as a memoryview, decompressed, with a count that they have room for."""
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t size = head.end - head.start - 21
    cdef uint32_t stored, computed
    cdef object payload
    if check_crcs:
        stored = load_u32(data + head.start + 17)
        computed = batch_crc(data + head.start + 21, size)
        if stored != computed:
            raise _damage.corrupt(_damage.explain_crc(stored, computed), place)
    size = head.end - head.start - V2_HEAD
    payload = view
    if head.codec and (head.count or size):
        payload = view[head.start + V2_HEAD : head.end]
        payload = bytes_view(_unwrap.decompress(head.codec, payload, 2, max_bytes, place))
        size = size_of(payload)
    if <int64_t> head.count * SMALLEST_RECORD > size:
        raise _damage.corrupt(_damage.explain_count(head.count, size), place)
    if not head.count and size:
        raise _damage.corrupt(_damage.explain_rest(size), place)
    return payload


cdef inline uint32_t batch_crc(bytes_at data, Py_ssize_t size):
    cdef uint32_t crc
    if size < NOGIL_BYTES:
        return gkafka_crc32c(data, size, 0)
    with nogil:
        crc = gkafka_crc32c(data, size, 0)
    return crc


cdef bint survey_set(bytes_at p, Py_ssize_t size, int32_t* count, int64_t* last) noexcept nogil:
    """Counts the messages of a set. False if any is damaged or compressed: then _unwrap.open_set finds out."""
    cdef bytes_at limit = p + size
    cdef int32_t length
    count[0] = 0
    while p < limit:
        if limit - p < 12 + SMALLEST_V0:
            return False
        last[0] = <int64_t> load_u64(p)
        length = <int32_t> load_u32(p + 8)
        if p[16] > 1 or p[17] & 7 or length < smallest(p[16]) or length > limit - p - 12 or last[0] < 0 or last[0] == INT64_MAX:
            return False
        count[0] += 1
        p += 12 + length
    return count[0] > 0


cdef object open_wrapper(object view, const Head* head, bint check_crcs, object max_bytes, object place, int32_t* count, int64_t* base):
    """The messages inside a compressed one as a memoryview; their number, and what is added to their offsets."""
    cdef object payload, plain, inner
    cdef int64_t last = 0
    payload = _unwrap.wrapped(view, head.start, head.end, place, check_crcs=check_crcs)
    plain = bytes_view(_unwrap.decompress(head.codec, payload, head.magic, max_bytes, place))
    if survey_set(address_of(plain), size_of(plain), count, &last) and last <= head.last_offset and head.last_offset:
        base[0] = head.last_offset - last if head.magic else 0
        return plain
    inner = _unwrap.open_set(plain, head.magic, head.last_offset, place, check_crcs=check_crcs, max_bytes=max_bytes - size_of(plain))
    count[0] = inner.messages
    base[0] = inner.base
    return bytes_view(inner.data)


@cython.final
cdef class Records:
    """The records of one batch, decoded as they are taken.

    buffer, header: what was scanned. context: the messages' `.topic`, `.partition_id` and `.partition`. min_offset: records
    before it are left out (a fetch answers with whole batches). max_bytes: what the batch may decompress to,
    by default 64 MiB or 8 times the buffer, whichever is more.

    The checksum is verified by the first take. What is found damaged raises CorruptRecordError once all good records before it were
    taken, and again in each take after that. An unknown or missing codec is UnsupportedCodec.
    """

    cdef object view         # the scanned buffer, until the batch is opened
    cdef Source source       # the opened batch, until its last record was taken
    cdef object context
    cdef object error
    cdef object max_bytes
    cdef Head head
    cdef bint check_crcs
    cdef int64_t min_offset
    cdef readonly int64_t next_offset
    cdef bytes_at begin      # of the records
    cdef bytes_at at
    cdef bytes_at limit
    cdef int32_t left        # records not yet decoded
    cdef int64_t base        # what is added to a message's offset
    cdef int64_t previous    # the last offset as it stands, -1 before the first

    def __init__(self, buffer, BatchHeader header not None, context, *, bint check_crcs=True, int64_t min_offset=-1, max_bytes=None):
        self.view = bytes_view(buffer)
        self.head = header.head
        check_bounds(self.view, header)
        self.context = context
        self.check_crcs = check_crcs
        self.min_offset = min_offset
        self.max_bytes = _unwrap.room_for(size_of(self.view)) if max_bytes is None else max_bytes
        self.next_offset = max(header.head.base_offset, min_offset)
        self.previous = -1
        if header.head.last_offset < min_offset:
            self.close()

    @property
    def remaining(self):
        """How many messages are left at most: 2**31 - 1 where a batch does not say and was not opened, 0 only at the end."""
        if self.error is not None:
            return 1
        if self.source is not None:
            return self.left
        if self.view is None:
            return 0
        # Also an empty batch is opened, by a take: its checksum guards the offsets that it stands for.
        return max(self.head.count, 1) if self.head.count >= 0 else INT32_MAX

    def take(self, Py_ssize_t n):
        """The next n messages, fewer at the end of the batch, none behind it."""
        cdef list messages
        cdef bint good
        if self.error is not None:
            raise self.error.with_traceback(None)
        if n <= 0 or (self.view is None and self.source is None):
            return []
        if self.source is None:
            try:
                self.open()
            except _KafkaException as error:
                self.fail(error)
                raise
        messages = []
        good = self.read_records(n, messages) if self.head.magic == 2 else self.read_messages(n, messages)
        if messages:
            self.next_offset = (<Message> messages[len(messages) - 1]).offset + 1
        if not good:
            self.fail(self.explain())
            if not messages:
                raise self.error
        elif not self.left:
            self.close()
        return messages

    cdef object place(self):
        return _damage.Place(self.context.topic, self.context.partition_id, self.head.base_offset, self.head.last_offset)

    cdef object open(self):
        cdef object place = self.place(), payload
        cdef int32_t count = self.head.count
        self.base = 0
        if self.head.magic == 2:
            payload = open_payload(self.view, &self.head, self.check_crcs, self.max_bytes, place)
            self.base = self.head.base_offset
        elif self.head.codec:
            payload = open_wrapper(self.view, &self.head, self.check_crcs, self.max_bytes, place, &count, &self.base)
        else:
            payload = self.view
        if payload is self.view:
            self.begin = address_of(payload) + self.head.start + (V2_HEAD if self.head.magic == 2 else 0)
            self.limit = address_of(payload) + self.head.end
        else:
            self.begin = address_of(payload)
            self.limit = self.begin + size_of(payload)
        self.at = self.begin
        self.left = count
        # An empty batch may name a codec that we do not know.
        codec = CODECS[self.head.codec] if count else NO_CODEC
        self.source = new_source(payload, self.context, timestamp_type(&self.head), codec)
        self.view = None

    cdef void fail(self, object error):
        self.error = error
        self.view = self.source = None

    cdef void close(self):
        self.view = self.source = None
        self.next_offset = max(self.head.last_offset + 1, self.min_offset, self.next_offset)

    cdef bint read_records(self, Py_ssize_t n, list messages):
        """Takes up to n; false if what follows them is damaged."""
        cdef bytes_at p = self.at, limit = self.limit
        cdef int32_t left = self.left, previous = <int32_t> self.previous
        cdef int32_t last_delta = <int32_t> (self.head.last_offset - self.head.base_offset)
        cdef int64_t base = self.base, base_timestamp = self.head.base_timestamp
        cdef int64_t fixed = self.head.max_timestamp, min_offset = self.min_offset
        cdef bint log_append_time = self.head.log_append_time, good = True
        cdef Source source = self.source
        cdef Message message
        cdef RecordAt r
        while left and n:
            if not read_record(p, limit, base_timestamp, previous, last_delta, &r):
                good = False
                break
            p = r.end
            previous = <int32_t> r.offset
            left -= 1
            if base + r.offset >= min_offset:
                message = Message.__new__(Message)
                message.source = source
                message.key_at = r.key
                message.value_at = r.value
                message.offset = base + r.offset
                message.timestamp = fixed if log_append_time else r.timestamp
                message.size = r.end - r.begin
                message.key_size = r.key_size
                message.value_size = r.value_size
                message.tail = r.end - headers_of(&r)
                messages.append(message)
                n -= 1
        self.at = p
        self.left = left
        self.previous = previous
        return good and (left > 0 or p == limit)

    cdef bint read_messages(self, Py_ssize_t n, list messages):
        # Messages compressed together share their wrapper's LogAppendTime (KIP-32).
        cdef bint fixed = self.head.codec and self.head.log_append_time
        cdef Message message
        cdef RecordAt r
        while self.left and n:
            if not read_message(self.at, self.limit, self.check_crcs, self.previous, &r):
                return False
            self.at = r.end
            self.previous = r.offset
            self.left -= 1
            if self.base + r.offset >= self.min_offset:
                message = Message.__new__(Message)
                message.source = self.source
                message.key_at = r.key
                message.value_at = r.value
                message.offset = self.base + r.offset
                message.timestamp = self.head.base_timestamp if fixed and r.begin[16] else r.timestamp
                message.size = r.end - r.begin
                message.key_size = r.key_size
                message.value_size = r.value_size
                message.tail = 0
                messages.append(message)
                n -= 1
        return True

    cdef object explain(self):
        """The error for what stands at self.at."""
        cdef object data = self.source.keeper
        cdef Py_ssize_t pos = self.at - address_of(data), limit = self.limit - address_of(data)
        return damaged_at(data, pos, limit, &self.head, self.left, self.base, self.previous, self.check_crcs, self.place())


cdef object damaged_at(
    object data, Py_ssize_t pos, Py_ssize_t limit, const Head* head, int32_t left, int64_t base, int64_t previous, bint check_crcs, object place
):
    cdef int32_t length
    cdef object why
    if head.magic == 2:
        if not left:
            return _damage.corrupt(_damage.explain_rest(limit - pos), place)
        why = _damage.explain_record(data, pos, limit, head.base_timestamp, previous, head.last_offset - head.base_offset)
        return _damage.corrupt(why, place, base + previous + 1)
    if limit - pos < ENTRY_HEAD or not read_length(address_of(data) + pos, limit - pos, &length):
        return _damage.corrupt("the buffer was changed since it was scanned", place)
    why = _damage.explain_message(data, pos, pos + 12 + length, previous, check_crcs=check_crcs)
    return _damage.corrupt(why, place, base + previous + 1 if previous >= 0 else None)


cdef bint read_length(bytes_at p, Py_ssize_t left, int32_t* length):
    length[0] = <int32_t> load_u32(p + 8)
    return p[16] < 2 and smallest(p[16]) <= length[0] <= left - 12


cdef object check_bounds(object view, BatchHeader header):
    """Refuses a header that was scanned from another buffer: ValueError."""
    cdef Head* head = &header.head
    cdef Py_ssize_t least = V2_HEAD if head.magic == 2 else 12 + smallest(head.magic)
    if not (0 <= head.start and head.start + least <= head.end <= size_of(view)):
        raise ValueError(f"{header!r} does not lie in this buffer of {size_of(view)} bytes")


def control_type(buffer, BatchHeader header not None, *, check_crcs=True):
    """What a control batch marks (KIP-98): 0 abort, 1 commit, other numbers are unknown to us; -1 if its record was compacted away."""
    messages = Records(buffer, header, _message.Origin("", -1), check_crcs=check_crcs).take(1)
    return _message.marker_of(messages, header.head.base_offset, header.head.last_offset)
