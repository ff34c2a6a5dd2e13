# Reading record batches, third part: the records of one batch, opened and taken. Included by _speed.pyx.


cdef object open_payload(object view, const Head* head, bint check_crcs, object max_bytes, object place):
    """The records of a v2 batch as a memoryview, decompressed, with a count that they have room for."""
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t size = head.end - head.start - 21
    cdef uint32_t stored, computed
    cdef object payload, plain
    if check_crcs:
        stored = load_u32(data + head.start + 17)
        computed = batch_crc(data + head.start + 21, size)
        if stored != computed:
            raise _damage.corrupt(_damage.explain_crc(stored, computed), place)
    size = head.end - head.start - V2_HEAD
    payload = view
    if head.codec and (head.count or size):
        payload = view[head.start + V2_HEAD : head.end]
        plain = unpack_lz4(payload, max_bytes) if head.codec == LZ4 else None
        payload = bytes_view(_unwrap.decompress(head.codec, payload, 2, max_bytes, place) if plain is None else plain)
        size = size_of(payload)
    if <int64_t> head.count * SMALLEST_RECORD > size:
        raise _damage.corrupt(_damage.explain_count(head.count, size), place)
    if not head.count and size:
        raise _damage.corrupt(_damage.explain_rest(size), place)
    return payload


cdef inline uint32_t batch_crc(bytes_at data, Py_ssize_t size):
    cdef uint32_t crc
    if size < NOGIL_CRC_BYTES:
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


cdef inline void fill(Message message, Source source, const RecordAt* r, int64_t base, int64_t timestamp):
    """A message is a v2 record."""
    message.source = source
    message.key_at = r.key
    message.value_at = r.value
    message.offset = base + r.offset
    message.timestamp = timestamp
    message.size = r.end - r.begin
    message.key_size = r.key_size
    message.value_size = r.value_size
    message.tail = r.end - headers_of(r)


cdef struct Spot:
    # Between two records of a batch: behind the one with the offset `previous`, as it stands, before so many others.
    bytes_at at
    int64_t previous
    int32_t left


@cython.final
cdef class Records:
    """The records of one batch, decoded as they are taken.

    buffer, header: what was scanned. context: the messages' `.topic`, `.partition_id` and `.partition`. min_offset: records
    before it are left out (a fetch answers with whole batches). max_bytes: what the batch may decompress to,
    by default 64 MiB or 8 times the buffer, whichever is more. message_class: Message, or a subclass of it, of what is taken.

    The checksum is verified by the first take. What is found damaged raises CorruptRecordError once all good records before it were
    taken, and again in each take after that. An unknown or missing codec is UnsupportedCodec. taken_bytes: of the records that the last
    take has returned, decompressed, and MESSAGE_BYTES for each.
    """

    cdef object view         # the scanned buffer, until the batch is opened
    cdef Source source       # the opened batch, until its last record was taken
    cdef object context
    cdef object error
    cdef object max_bytes
    cdef type message_class
    cdef Head head
    cdef bint check_crcs
    cdef bint taking         # take() is under way: an allocation in there may let another thread run
    cdef int64_t min_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t taken_bytes
    cdef bytes_at begin      # of the records
    cdef bytes_at at
    cdef bytes_at limit
    cdef int32_t left        # records not yet decoded
    cdef int64_t base        # what is added to a message's offset
    cdef int64_t previous    # the last offset as it stands, -1 before the first

    def __init__(self, buffer, BatchHeader header not None, context, *, bint check_crcs=True, int64_t min_offset=-1, max_bytes=None, message_class=Message):
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"message_class={message_class!r}: must be Message or a subclass of it")
        self.message_class = message_class
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

    def take(self, Py_ssize_t n, int64_t max_bytes=INT64_MAX, Py_ssize_t least=1):
        """Return the next n messages at most, decoded.

        max_bytes: stop before the message that passes it, as `taken_bytes` counts, but not before there are `least`. Fewer than n
        come for that, at the end of the batch, and before damage: `remaining` is 0 only at the end.
        """
        cdef list messages
        cdef bint good
        self.taken_bytes = 0
        if self.error is not None:
            raise _damage.bare(self.error)
        if n <= 0 or (self.view is None and self.source is None):
            return []
        if self.source is None:
            try:
                self.open()
            except _KafkaException as error:
                self.fail(error)
                raise self.error
        messages = []
        self.taking = True
        try:
            if self.head.magic == 2:
                good = self.read_records(n, max_bytes, least, messages)
            else:
                good = self.read_messages(n, max_bytes, least, messages)
        finally:
            self.taking = False
        if messages:
            self.next_offset = (<Message> messages[len(messages) - 1]).offset + 1
        if not good:
            self.fail(self.explain())
            if not messages:
                raise self.error
        elif not self.left:
            self.close()
        return messages

    def step(self, queue not None):
        """The next message, with the position of the queue moved behind it, as one step: no other thread runs in between. None: see take().

        queue: `reader`, which must be this, `epoch`, and `position` with the same `epoch`, `paused` and `consumed`. Takes from batches of
        format 2 that were opened, and leaves the last record.
        """
        cdef Message message = new_message(self.message_class)  # the only thing in here that may let others run
        cdef Spot spot = self.spot()
        cdef RecordAt r
        if not self.may_step(queue) or not self.read_on(&spot, &r):
            return None
        self.tell(message, &r)
        self.move(queue, &spot, message.offset)
        return message

    def steps(self, queue not None, Py_ssize_t most, int64_t max_bytes, *, bint stay=False):
        """The messages of so many step()s, as one step. None of them if the batch has no more than that, or if what is left of it may be more than
        max_bytes, as take() counts. stay: nothing is moved.
        """
        cdef list messages
        cdef Py_ssize_t count = 0
        cdef Spot spot
        cdef RecordAt r
        if self.remaining <= most or self.limit - self.at + most * MESSAGE_BYTES > max_bytes:
            return []
        messages = [new_message(self.message_class) for _ in range(most)]  # the only thing in here that may let others run
        spot = self.spot()
        if not self.may_step(queue):
            return []
        while count < most and self.read_on(&spot, &r):
            self.tell(<Message> messages[count], &r)
            count += 1
        del messages[count:]
        if count and not stay:
            self.move(queue, &spot, (<Message> messages[count - 1]).offset)
        return messages

    def step_to(self, queue not None, list messages not None):
        """The steps that give these messages. False: they are not the next ones, and nothing has moved."""
        cdef Spot spot = self.spot()
        cdef RecordAt r
        cdef Message message
        if not messages or not self.may_step(queue):
            return False
        for message in messages:
            if not self.read_on(&spot, &r) or self.base + r.offset != message.offset:
                return False
        self.move(queue, &spot, message.offset)
        return True

    cdef Spot spot(self):
        cdef Spot here
        here.at, here.previous, here.left = self.at, self.previous, self.left
        return here

    cdef bint may_step(self, queue) except -1:
        cdef object position = queue.position
        if self.taking or self.source is None or self.head.magic != 2:
            return False
        return queue.reader is self and position.epoch == queue.epoch and not position.paused

    cdef bint read_on(self, Spot* spot, RecordAt* r):
        """Move the spot behind the next record that is to be handed out. False: take() tells why there is none."""
        while spot.left > 1:
            if not read_record(
                spot.at, self.limit, self.head.base_timestamp, <int32_t> spot.previous, <int32_t> (self.head.last_offset - self.head.base_offset), r
            ):
                return False
            spot.at, spot.previous = r.end, r.offset
            spot.left -= 1
            if self.base + r.offset >= self.min_offset:
                return True
        return False

    cdef void tell(self, Message message, RecordAt* r):
        fill(message, self.source, r, self.base, self.head.max_timestamp if self.head.log_append_time else r.timestamp)

    cdef int move(self, queue, Spot* spot, int64_t offset) except -1:
        """To this spot, behind the record of this offset."""
        self.at, self.previous, self.left = spot.at, spot.previous, spot.left
        self.next_offset = offset + 1
        queue.position.consumed = self.next_offset
        return 0

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
        self.error = _damage.bare(error)
        self.view = self.source = None

    cdef void close(self):
        self.view = self.source = None
        self.next_offset = max(self.head.last_offset + 1, self.min_offset, self.next_offset)

    cdef bint read_records(self, Py_ssize_t n, int64_t room, Py_ssize_t least, list messages):
        """Takes up to n, `least` whatever their size and then no more than fit into `room`; false if what follows them is damaged."""
        cdef bytes_at p = self.at, limit = self.limit
        cdef int32_t left = self.left, previous = <int32_t> self.previous
        cdef int32_t last_delta = <int32_t> (self.head.last_offset - self.head.base_offset)
        cdef int64_t base = self.base, base_timestamp = self.head.base_timestamp
        cdef int64_t fixed = self.head.max_timestamp, min_offset = self.min_offset, all_room = room, size
        cdef bint log_append_time = self.head.log_append_time, good = True
        cdef Source source = self.source
        cdef type message_class = self.message_class
        cdef bint plain = message_class is Message
        cdef Message message
        cdef RecordAt r
        while left and n:
            if not read_record(p, limit, base_timestamp, previous, last_delta, &r):
                good = False
                break
            if base + r.offset >= min_offset:
                size = r.end - r.begin + MESSAGE_BYTES
                if size > room and least <= 0:
                    break
                room -= size
                least -= 1
                message = Message.__new__(Message) if plain else new_message(message_class)
                fill(message, source, &r, base, fixed if log_append_time else r.timestamp)
                messages.append(message)
                n -= 1
            p = r.end
            previous = <int32_t> r.offset
            left -= 1
        self.at = p
        self.left = left
        self.previous = previous
        self.taken_bytes = all_room - room
        return good and (left > 0 or p == limit)

    cdef bint read_messages(self, Py_ssize_t n, int64_t room, Py_ssize_t least, list messages):
        # Messages compressed together share their wrapper's LogAppendTime (KIP-32).
        cdef bint fixed = self.head.codec and self.head.log_append_time
        cdef Message message
        cdef RecordAt r
        while self.left and n:
            if not read_message(self.at, self.limit, self.check_crcs, self.previous, &r):
                return False
            if self.base + r.offset >= self.min_offset:
                if least <= 0 and self.taken_bytes + (r.end - r.begin) + MESSAGE_BYTES > room:
                    break
                least -= 1
                self.taken_bytes += r.end - r.begin + MESSAGE_BYTES
            self.at = r.end
            self.previous = r.offset
            self.left -= 1
            if self.base + r.offset >= self.min_offset:
                message = new_message(self.message_class)
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
    cdef int64_t offset
    cdef object why
    if head.magic == 2:
        if not left:
            return _damage.corrupt(_damage.explain_rest(limit - pos), place, base + previous + 1)
        why = _damage.explain_record(data, pos, limit, head.base_timestamp, previous, head.last_offset - head.base_offset)
        return _damage.corrupt(why, place, base + previous + 1)
    if limit - pos < ENTRY_HEAD or not read_length(address_of(data) + pos, limit - pos, &length):
        return _damage.corrupt("the buffer was changed since it was scanned", place)
    why = _damage.explain_message(data, pos, pos + 12 + length, previous, check_crcs=check_crcs)
    if not head.codec:  # a plain message has a checksum of its own, and the next one may be good
        offset = <int64_t> load_u64(address_of(data) + pos)
        return _damage.corrupt(why, place, offset, next_offset=offset + 1)
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
