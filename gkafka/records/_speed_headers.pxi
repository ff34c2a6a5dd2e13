# Reading record batches, first part: what reading shares, headers and spans. Included by _speed.pyx.
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
from gkafka.records import _damage, _message, _rows, _unwrap, compression as _compression, lz4frame as _lz4frame

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
cdef int64_t MESSAGE_BYTES = _message.MESSAGE_BYTES
cdef int64_t INT32_MAX = 0x7fffffff

cdef object CREATE_TIME = _TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = _TimestampType.LOG_APPEND_TIME
cdef object NO_TIMESTAMP = _TimestampType.NONE
cdef tuple CODECS = tuple(_CompressionType)
cdef uint8_t LZ4 = _CompressionType.LZ4
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


def scan(buffer, *, topic=None, partition=None, bint strict=False, Py_ssize_t start=0, Py_ssize_t most=PY_SSIZE_T_MAX):
    """The headers of the whole batches in a fetched buffer, `most` at most, from the byte `start` on. The tail that a broker cuts off is left out.

    Where no batch can begin, what stands before is returned if there is any: the next scan, from there, raises. So a good
    batch is always handed out before the error of a bad one. strict: raise at once, also for a cut tail.
    Raises CorruptRecordError with topic, partition and offset.
    """
    cdef object view = bytes_view(buffer)
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t pos = max(start, 0), size = size_of(view)
    cdef list headers = []
    cdef Head head
    while pos < size and len(headers) < most:
        if not read_head(data, pos, size, &head):
            if strict or not (headers or is_cut(data, pos, size)):
                raise bad_entry(view, pos, topic, partition)
            break
        headers.append(header_of(&head))
        pos = head.end
    return headers


# -- spans -------------------------------------------------------------------------------------------------------------
cdef enum:
    SPAN_BATCHES = 10000  # of one span, found in 0.1 ms
    SPAN_BYTES = 1 << 20  # of one span, what greenlets make columns of at once; a larger batch stands alone


@cython.final
cdef class Span:
    """Batches of a fetched buffer that follow each other and are read together. `span_at` makes it.

    start, end: where they stand in the buffer. base_offset: of the first batch, last_offset: of the
    last one. leader_epoch: of all of them. batches: how many. count: records in all, -1 for a
    compressed message of format 0 or 1. first: the header of the first batch.
    """

    cdef Head head  # of the first batch
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t batches
    cdef readonly int64_t last_offset
    cdef readonly int64_t count

    @property
    def start(self): return self.head.start

    @property
    def base_offset(self): return self.head.base_offset

    @property
    def next_offset(self): return self.last_offset + 1

    @property
    def leader_epoch(self): return self.head.leader_epoch

    @property
    def first(self): return header_of(&self.head)

    def __repr__(self):
        return f"<Span of {self.batches} offsets {self.base_offset}-{self.last_offset} count {self.count} bytes {self.start}-{self.end}>"


cdef Span span_of(const Head* head):
    """One batch as a span."""
    cdef Span span = Span.__new__(Span)
    span.head = head[0]
    span.end = head.end
    span.batches = 1
    span.last_offset = head.last_offset
    span.count = head.count
    return span


def span_at(buffer, Py_ssize_t start=0, *, int64_t offset=-1, bint alone=False, topic=None, partition=None, Py_ssize_t most=SPAN_BATCHES):
    """Return the span that begins at the byte `start` of a fetched buffer, or None.

    A span has `most` batches at most. It ends before a batch that is not of format 2, that is a
    control batch, whose leader epoch is another one, or whose offsets do not follow. Batches wholly
    below `offset` do not stand in one span with others. alone: nor do transactional ones.

    None: no whole batch begins there, but nothing, a cut tail or damage; the next fetch begins with
    it, and some brokers fill an answer up (LazyDownConversionRecordsSend.buildOverflowBatch, Kafka
    2.0 and newer). Raises CorruptRecordError for a buffer that begins with damage.
    """
    cdef object view = bytes_view(buffer)
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t size = size_of(view)
    cdef Head head
    cdef Span span
    if start < 0 or start >= size:
        return None
    if not read_head(data, start, size, &head):
        if start or is_cut(data, start, size):
            return None
        raise bad_entry(view, start, topic, partition)
    span = span_of(&head)
    if not stands_alone(&head, alone):
        extend_span(span, data, size, offset, alone, most)
    return span


cdef inline bint stands_alone(const Head* head, bint alone) noexcept nogil:
    return head.magic != 2 or head.is_control or (alone and head.is_transactional)


cdef void extend_span(Span span, bytes_at data, Py_ssize_t size, int64_t offset, bint alone, Py_ssize_t most) noexcept nogil:
    cdef bint is_below = span.last_offset < offset
    cdef Head head
    while span.batches < most and read_head(data, span.end, size, &head):
        if stands_alone(&head, alone) or head.base_offset <= span.last_offset or head.leader_epoch != span.head.leader_epoch:
            return
        if (head.last_offset < offset) != is_below or head.end - span.head.start > SPAN_BYTES:
            return
        span.end = head.end
        span.last_offset = head.last_offset
        span.count += head.count
        span.batches += 1


cdef object bad_entry(object view, Py_ssize_t pos, object topic, object partition):
    cdef object offset = <int64_t> load_u64(address_of(view) + pos) if size_of(view) - pos >= 8 else -1
    return _damage.unreadable(_damage.explain_entry(view, pos, whole=True), topic, partition, offset)
