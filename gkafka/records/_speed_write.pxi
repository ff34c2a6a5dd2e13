# Writing record batches, the compiled half: the twin of `_pure_write.py`. Its memory is in `_speed_memory.pxi`, its batch in `_speed_batch.pxi`,
# columns into batches in `_speed_encode.pxi`.
#
# What is hot is `Appender.produce` > `_put` > a `Delivery`: no lock (the GIL is held and nothing on the way runs other code), no
# Python object but the Delivery. State is consistent before every call that may run other code or switch greenlets: `owner.*`,
# `compress`, and `with nogil`.

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdlib cimport free, malloc, realloc

from collections import deque

from gkafka.common import TopicPartition
from gkafka.exceptions import BrokerError, BufferFull, KafkaTimeoutError, RecordTooLarge
from gkafka.records._check import LEAST_BEYOND, MIN_BATCH_BYTES, check_capacity, check_record, check_seal, check_sizes, check_timestamp, no_memory, nothing_to_send, record_size, too_large
from gkafka.records._legacy_write import check_legacy, decode_message_set, encode_message_set
from gkafka.records._results import OF_ASYNCIO, Record, RecordMetadata, fresh_error, not_for_asyncio, not_for_executors, run_callback
from gkafka.records._split import cuts
from gkafka.records.compression import compress, decompress

include "_speed_memory.pxi"
include "_speed_batch.pxi"


# -- what is not exactly of the types that are appended, and may be -----------------------------------------------------
# None of it raises: what cannot be taken stays what it is, and the slow way of a record says why.
cdef inline bint is_plain(topic, value, key) noexcept:
    return (
        PyUnicode_CheckExact(topic)
        and (value is None or PyBytes_CheckExact(value))
        and (key is None or PyBytes_CheckExact(key))
    )


cdef object plain(data):
    """What is bytes-like, as bytes."""
    if data is None or PyBytes_CheckExact(data) or not PyObject_CheckBuffer(data):
        return data
    try:
        return bytes(memoryview(data))
    except (TypeError, ValueError, BufferError):
        return data


cdef object plain_topic(topic):
    if PyUnicode_CheckExact(topic):
        return topic
    if isinstance(topic, str):
        return str.__str__(topic)
    try:
        return topic.decode() if isinstance(topic, bytes) else topic
    except UnicodeDecodeError:
        return topic


cdef object plain_headers(headers):
    return [plain_header(pair) for pair in headers] if isinstance(headers, (list, tuple)) else headers


cdef object plain_header(pair):
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return pair
    name, value = pair
    return str.__str__(name) if isinstance(name, str) else name, plain(value)


# -- from a topic to its open batch --------------------------------------------------------------------------------------
@cython.final
@cython.no_gc_clear
cdef class _Topic:
    cdef str name
    cdef int partitions  # 0: the fast path does not take this topic
    cdef int sticky
    cdef Py_ssize_t limit  # bytes of a batch: batch_bytes, less where the broker takes less
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
    `produce` goes to the owner; initial_bytes: what a batch starts with. lock: for the Python twin; here the GIL is the lock. budget:
    memory shared with other appenders, None for none. news: batches that were begun, and again as they are rolled, in that order: for the owner's worker.
    rolled_bytes: of all that were rolled.
    """

    cdef readonly object owner
    cdef readonly object news
    cdef readonly int64_t rolled_bytes
    cdef readonly Py_ssize_t batch_bytes, buffer_bytes, max_record_bytes, initial_bytes
    cdef public bint fast
    cdef public bint crc32  # choose by CRC-32 of the key in place of murmur2; an empty key is none then
    cdef long every, left
    cdef long forks
    cdef _Pool pool
    cdef dict topics
    cdef public tuple hooks  # called for each record that has an outcome; None: nothing is
    cdef type future_class
    cdef object refused
    cdef object last_name  # the str object that was looked up last, and what it led to
    cdef _Topic last_topic
    cdef object __weakref__

    def __cinit__(self, owner, *, batch_bytes, buffer_bytes, max_record_bytes, initial_bytes=4096, lock=None, Budget budget=None):
        check_sizes(batch_bytes, buffer_bytes, max_record_bytes, initial_bytes)
        self.owner = owner
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.max_record_bytes = max_record_bytes
        self.initial_bytes = min(initial_bytes, batch_bytes, buffer_bytes)
        self.fast = True
        self.news = deque()
        self.future_class = Delivery
        self.forks = gkafka_forks
        self.topics = {}
        self.pool = _Pool.__new__(_Pool)
        self.pool.limit = buffer_bytes
        self.pool.forks = gkafka_forks
        self.pool.unit = batch_bytes
        self.pool.budget = budget
        if budget is not None:
            budget.pools.append(self.pool)

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.retire()

    def produce(self, topic, value, key=None, partition=None, timestamp=None, headers=None):
        """Append one record to its partition's open batch; what needs more than that goes to `owner.produce_slow`.

        partition None: by murmur2 of the key (or `crc32`), without a key the topic's sticky one. timestamp: ms, None for now.
        """
        cdef Batch batch
        if not is_plain(topic, value, key):
            topic, value, key = plain_topic(topic), plain(value), plain(key)
        batch = self.append_fast(topic, value, key, partition, timestamp, headers)
        if batch is None and headers is not None:
            batch = self.append_fast(topic, value, key, partition, timestamp, plain_headers(headers))
        if batch is None:
            return self.owner.produce_slow(topic, value, key, partition, timestamp, headers)
        return new_delivery(batch)

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """The same with the arguments in kafka-python's order, and with what `answer_with` says. Value and key cannot both be None."""
        cdef Batch batch
        cdef Delivery delivery
        if value is None and key is None:
            raise nothing_to_send(topic)
        if not is_plain(topic, value, key):
            topic, value, key = plain_topic(topic), plain(value), plain(key)
        batch = self.append_fast(topic, value, key, partition, timestamp_ms, headers)
        if batch is None and headers is not None:
            batch = self.append_fast(topic, value, key, partition, timestamp_ms, plain_headers(headers))
        if batch is not None:
            return delivery_of(self.future_class, batch, batch.count - 1)
        try:
            delivery = <Delivery?> self.owner.produce_slow(topic, value, key, partition, timestamp_ms, headers)
        except (BrokerError, RecordTooLarge) as error:
            if self.refused is None:
                raise
            return self.refused(error)
        return delivery_of(self.future_class, delivery.batch, delivery.index)

    def answer_with(self, type future_class not None, refused=None):
        """What `send` gives back: a delivery of this subclass of Delivery; for a record that the broker or a size limit refuses refused(error)."""
        if not issubclass(future_class, Delivery):
            raise TypeError(f"future_class={future_class!r}: must be Delivery or a subclass of it")
        self.future_class, self.refused = future_class, refused

    cdef inline Batch append_fast(self, topic, value, key, partition, timestamp, headers):
        """The batch whose last record it is now; None: it needs more."""
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
            return None

        found = self.last_topic
        if topic is not self.last_name or found is None:
            if not PyUnicode_CheckExact(topic):
                return None
            entry = PyDict_GetItemWithError(self.topics, topic)
            if entry == NULL:
                return None
            found = <_Topic> entry
            self.last_name = topic
            self.last_topic = found

        if partition is None:
            if key is None:
                number = found.sticky
            elif PyBytes_CheckExact(key) and found.partitions and self.crc32:
                number = found.sticky if not PyBytes_GET_SIZE(key) else gkafka_crc32(<const unsigned char*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), 0) % <uint32_t> found.partitions
            elif PyBytes_CheckExact(key) and found.partitions:
                number = (c_murmur2(<const unsigned char*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % <uint32_t> found.partitions
            else:
                number = -1
        elif PyLong_CheckExact(partition):
            number = PyLong_AsLongAndOverflow(partition, &overflow)
        else:
            number = -1
        if number < 0 or number >= found.partitions:
            return None
        entry = <PyObject*> PyList_GET_ITEM(found.batches, number)
        if <object> entry is None:
            return None
        batch = <Batch> entry

        if timestamp is None:
            stamp = gkafka_wall_ms()
        elif PyLong_CheckExact(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        else:
            stamp = -1
        if stamp < 0 or _put(batch, value, key, headers, stamp, self.max_record_bytes) != DONE:
            return None
        return batch

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

    def is_open(self, str topic not None, int partition):
        """Has the partition a batch that takes records?"""
        return self.open_batch(topic, partition) is not None

    cpdef Batch open_batch(self, str topic, Py_ssize_t partition):
        """The partition's batch that takes records, if there is one."""
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

    def set_limit(self, str topic not None, Py_ssize_t size):
        """Batches of the topic that are opened from now on hold at most so many bytes (at least 128, at most batch_bytes)."""
        self.topic(topic).limit = min(max(size, MIN_BATCH_BYTES), self.batch_bytes)

    def limit(self, str topic not None):
        """Bytes that a new batch of the topic may hold; a larger record gets one of its own."""
        cdef _Topic found = self.topics.get(topic)
        return self.batch_bytes if found is None else found.limit

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
            found.limit = self.batch_bytes
            found.batches = []
            found.hot = bytearray()
            self.topics[name] = found
        return found

    # -- batches
    def open(self, str topic not None, int partition, double created, capacity=None, Py_ssize_t beyond=0):
        """Make a partition's open batch. created: monotonic seconds; capacity: bytes it must be able to hold (`record_size`);
        beyond: bytes over buffer_bytes, and over what is shared, that may be taken for it; then it holds little more than `capacity`.

        Raises BufferFull if the memory is not there now, RecordTooLarge if it never can be, ValueError if one is open.
        """
        cdef Batch batch = self.made(topic, partition, created, 0 if capacity is None else capacity, beyond)
        self.set_open(batch)
        return batch

    def begin(self, str topic not None, int partition, double created, Py_ssize_t capacity, value, key, timestamp_ms, headers, Py_ssize_t beyond=0):
        """The same with a first record: nobody sees the batch without it. Returns its delivery; raises what `open` and `append` raise."""
        cdef Batch batch
        cdef Put put
        cdef int64_t stamp
        check_timestamp(timestamp_ms, topic)
        stamp = timestamp_ms
        batch = self.made(topic, partition, created, capacity, beyond)
        put = _put(batch, value, key, headers, stamp, 1 << 30)
        if put == ODD:
            value, key, headers = check_record(topic, value, key, headers)
            put = _put(batch, value, key, headers, stamp, 1 << 30)
        if put == BIG:
            raise too_large(topic, partition)
        if put != DONE:
            raise no_memory(topic, partition, capacity, self.available, self.buffer_bytes)
        self.set_open(batch)  # no other code runs from here on
        self.news.append(batch)
        return new_delivery(batch)

    cdef int set_open(self, Batch batch) except -1:
        cdef _Topic found = self.topic(batch.topic)
        if found.batch(batch.partition) is not None:
            raise ValueError(f"{batch.topic}-{batch.partition} has an open batch: roll it first")
        found.widen(batch.partition + 1)
        found.batches[batch.partition] = batch

    cdef Batch made(self, str topic, int partition, double created, Py_ssize_t need, Py_ssize_t beyond):
        """A batch that nobody knows yet."""
        cdef Batch batch
        cdef _Topic found
        cdef Py_ssize_t start
        if partition < 0:
            raise ValueError(f"{topic}: partition {partition} is negative")
        check_capacity(need, self.buffer_bytes, topic, partition)
        if self.open_batch(topic, partition) is not None:
            raise ValueError(f"{topic}-{partition} has an open batch: roll it first")
        found = self.topic(topic)
        start = self.first_capacity(found, partition, need)
        if beyond and start > self.pool.free_bytes():
            start = max(need, LEAST_BEYOND)
        if not self.pool.reserve(start, beyond):
            raise no_memory(topic, partition, start, self.available, self.buffer_bytes)
        batch = Batch.__new__(Batch)
        batch.memory = new_memory(self.pool, start)
        batch.pool = self.pool
        batch.owner = self.owner
        batch.topic = topic
        batch.partition = partition
        batch.created = created
        batch.hooks = self.hooks
        batch.data = batch.memory.data
        batch.capacity = start
        batch.limit = max(start, found.limit)
        batch.size = HEADER
        return batch

    cdef Py_ssize_t first_capacity(self, _Topic found, Py_ssize_t partition, Py_ssize_t need):
        cdef Py_ssize_t start = min(self.initial_bytes, found.limit)
        cdef Py_ssize_t least
        # A partition that fills its batches gets the next one whole: growing would copy every record twice. Not when memory is
        # scarce, there many partitions must share it.
        if partition < len(found.hot) and found.hot[partition]:
            if found.limit <= self.pool.free_bytes() - self.buffer_bytes // 2:
                start = found.limit
        while start < need and start < found.limit:
            start = min(start * 2, found.limit)
        least = max(need, min(self.initial_bytes, found.limit))
        return least if start > self.pool.free_bytes() else max(start, need)

    def sum_up(self, str topic not None, int partition):
        """Take the checksum of the records in a partition's open batch: whoever just filled it has them in the processor's cache. It counts if
        the batch is sealed as it is now, uncompressed.
        """
        cdef _Topic found = self.topics.get(topic)
        cdef Batch batch = None if found is None else found.batch(partition)
        if batch is not None and HEADER < batch.size < NOGIL_CRC_BYTES:
            batch.memory.sum = c_crc32c(batch.data + HEADER, batch.size - HEADER, 0)
            batch.memory.summed = batch.size - HEADER

    def roll(self, str topic not None, int partition):
        """Let a partition's open batch take no more records, and tell the owner's worker of it; None if there is none. The next one must be opened."""
        cdef Batch batch = self.taken(topic, partition)
        if batch is not None:
            self.rolled_bytes += batch.size
            self.news.append(batch)
        return batch

    def take(self, str topic not None, int partition):
        """The same, by the worker itself, which seals and sends it."""
        return self.taken(topic, partition)

    cdef Batch taken(self, str topic, int partition):
        cdef _Topic found = self.topics.get(topic)
        cdef Batch batch = None if found is None else found.batch(partition)
        if batch is not None:
            found.batches[partition] = None
            found.hot[partition] = 1 if batch.size > found.limit // 2 else 0
            batch.close()
        return batch

    def open_batches(self):
        """Every open batch."""
        cdef _Topic found
        return [batch for found in self.topics.values() for batch in found.batches if batch is not None]

    @property
    def available(self):
        """Bytes that batches may still take: of buffer_bytes, and of the budget that is shared with others."""
        return self.pool.free_bytes()

    @property
    def own_available(self):
        """Bytes of buffer_bytes that no batch holds, whatever others hold; below 0 while batches hold more."""
        return self.pool.limit - self.pool.reserved

    def release(self, Batch batch not None):
        """Give a batch's memory back: at once, or when the last view of its `wire` is gone. Its result stays."""
        self.forget(batch)
        batch.release()

    def set_apart(self, Batch batch not None):
        """The same, but its records can still be read: from a copy that is not counted. It cannot be sent any more."""
        self.forget(batch)
        batch.set_apart()

    cdef forget(self, Batch batch):
        cdef _Topic found
        if batch.pool is not self.pool:
            raise ValueError(f"{batch!r} is not of this appender")
        found = self.topics.get(batch.topic)
        if found is not None and found.batch(batch.partition) is batch:
            found.batches[batch.partition] = None

    @property
    def checkpoint_every(self):
        """After that many calls of `produce` the next one begins with `owner.checkpoint()`; 0: never."""
        return self.every

    @checkpoint_every.setter
    def checkpoint_every(self, long calls):
        if calls < 0:
            raise ValueError(f"checkpoint_every={calls}: must be 0 or more")
        self.every = self.left = calls


include "_speed_encode.pxi"
include "_speed_sums.pxi"
include "_speed_lane.pxi"
