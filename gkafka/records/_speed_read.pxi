# Reading record batches, third part: the records of a span of batches, opened and taken. Included by _speed.pyx.


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


cdef enum:
    TAKE_BYTES = 1 << 17   # opened and read by a take() that then ends with the batch it stands in
    CODEC_BYTES = 1 << 12  # what a compressed batch, however small, counts for in that


cdef struct Spot:
    # A place in an open batch, `head`: behind the record with the offset `previous`, as it stands,
    # and before `left` others.
    Head head
    bytes_at at
    bytes_at limit
    int64_t base         # what is added to a record's offset
    int64_t previous     # -1 before the first
    int64_t behind       # records in the batches behind this one
    int32_t left


@cython.final
cdef class Records:
    """The records of a span of batches, decoded as they are taken.

    buffer, span: where it was found, and what `span_at` found there; a BatchHeader is a span of one
    batch. context: the messages' `.topic`, `.partition_id` and `.partition`. min_offset: records
    before it are left out (a fetch answers with whole batches). max_bytes: what one batch may
    decompress to, by default 64 MiB or 8 times the buffer, whichever is more. message_class:
    Message, or a subclass of it, of what is taken.

    A batch is opened, and its checksum verified, once everything before it was taken. Damage raises
    CorruptRecordError when all good records before it were taken, and again in each take after
    that. An unknown or missing codec is UnsupportedCodec. taken_bytes: of the records that the last
    take has returned, decompressed, and MESSAGE_BYTES for each.
    """

    cdef object view         # the scanned buffer, until the last record was taken
    cdef Source source       # of the open batch, None before the first is open
    cdef object context
    cdef object error
    cdef object max_bytes
    cdef type message_class
    cdef bint check_crcs
    cdef bint taking         # take() is under way: an allocation in there may let another thread run
    cdef int64_t min_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t taken_bytes
    cdef Py_ssize_t end      # of the span
    cdef int64_t last_offset
    cdef Spot here

    def __init__(self, buffer, span not None, context, *, bint check_crcs=True, int64_t min_offset=-1, max_bytes=None, message_class=Message):
        cdef Span whole = span_of(&(<BatchHeader> span).head) if type(span) is BatchHeader else <Span?> span
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"message_class={message_class!r}: must be Message or a subclass of it")
        self.message_class = message_class
        self.view = bytes_view(buffer)
        check_bounds(self.view, whole)
        self.end = whole.end
        self.last_offset = whole.last_offset
        self.here.head = whole.head
        self.here.left = max(whole.head.count, 0)
        self.here.behind = whole.count - whole.head.count
        self.here.previous = -1
        self.context = context
        self.check_crcs = check_crcs
        self.min_offset = min_offset
        self.max_bytes = _unwrap.room_for(size_of(self.view)) if max_bytes is None else max_bytes
        if self.here.head.last_offset < min_offset <= self.last_offset:
            try:
                self.to_next(&self.here)
            except _KafkaException as error:
                self.fail(error)
        self.next_offset = max(self.here.head.base_offset, min_offset)
        if self.last_offset < min_offset:
            self.close()

    @property
    def remaining(self):
        """How many messages are left at most: 2**31 - 1 where a batch does not say and was not opened, 0 only at the end."""
        if self.error is not None:
            return 1
        if self.view is None:
            return 0
        if self.source is None and self.here.head.count < 0:
            return INT32_MAX
        # Also an empty batch is opened, by a take: its checksum guards the offsets that it stands for.
        return max(self.here.left + self.here.behind, 1)

    def take(self, Py_ssize_t n, int64_t max_bytes=INT64_MAX, Py_ssize_t least=1):
        """Return the next n messages at most, decoded.

        max_bytes: stop before the message that passes it, as `taken_bytes` counts, but not before
        there are `least`. Fewer than n come for that, before damage, and at the end of any batch:
        `remaining` is 0 only at the end of the span. `next_offset` also moves over empty batches.
        """
        cdef list messages
        cdef int64_t stood
        self.taken_bytes = 0
        if self.error is not None:
            raise _damage.bare(self.error)
        if n <= 0 or self.view is None:
            return []
        messages = []
        stood = self.next_offset
        self.taking = True
        try:
            self.read(n, max_bytes, least, messages)
        except _KafkaException as error:
            self.fail(error)
        finally:
            self.taking = False
        if self.error is not None and not messages and self.next_offset == stood:
            raise self.error
        return messages

    def step(self, queue not None):
        """The next message, with the position of the queue moved behind it, as one step: no other thread runs in between. None: see take().

        queue: `reader`, which must be this, `epoch`, and `position` with the same `epoch`, `paused` and `consumed`. Takes from batches of
        format 2 once the first was opened, and leaves the last record of the span.
        """
        cdef Message message
        cdef Spot spot
        cdef RecordAt r
        self.open_ahead()
        message = new_message(self.message_class)  # from here on nothing may let others run
        spot = self.here
        if not self.may_step(queue) or not self.read_on(&spot, &r):
            return None
        self.tell(message, &spot, &r)
        self.move(queue, &spot, message.offset)
        return message

    def steps(self, queue not None, Py_ssize_t most, int64_t max_bytes, *, bint stay=False):
        """The messages of so many step()s, as one step. stay: nothing is moved.

        None of them if the span has no more than that, if they hold more than max_bytes, as take()
        counts, or if a batch among them takes long to open: then take() is to be asked.
        """
        cdef list messages
        cdef Py_ssize_t count = 0
        cdef Spot spot
        cdef RecordAt r
        if self.remaining <= most:
            return []
        self.open_ahead()
        messages = [new_message(self.message_class) for _ in range(most)]  # from here on nothing may let others run
        spot = self.here
        if not self.may_step(queue):
            return []
        while count < most and self.read_on(&spot, &r):
            max_bytes -= r.end - r.begin + MESSAGE_BYTES
            if max_bytes < 0:
                return []
            self.tell(<Message> messages[count], &spot, &r)
            count += 1
        if count < most and not spot.left:
            return []
        del messages[count:]
        if count and not stay:
            self.move(queue, &spot, (<Message> messages[count - 1]).offset)
        return messages

    cdef Message peek(self, queue, Spot* before, Spot* behind):
        """The message of the next step(), which is not made. before, behind: the spots. None: there is none."""
        cdef Message message
        cdef RecordAt r
        if self.remaining <= 1:
            return None
        self.open_ahead()
        message = new_message(self.message_class)  # from here on nothing may let others run
        before[0] = behind[0] = self.here
        if not self.may_step(queue) or not self.read_on(behind, &r):
            return None
        self.tell(message, behind, &r)
        return message

    cdef bint is_at(self, queue, Spot* spot) except -1:
        """Does it stand there, and may step()?"""
        return self.may_step(queue) and self.here.base == spot.base and self.here.at == spot.at

    def step_to(self, queue not None, list messages not None):
        """The steps that give these messages. False: they are not the next ones, and nothing has moved."""
        cdef Spot spot = self.here
        cdef RecordAt r
        cdef Message message
        if not messages or not self.may_step(queue):
            return False
        for message in messages:
            if not self.read_on(&spot, &r) or spot.base + r.offset != message.offset:
                return False
        self.move(queue, &spot, message.offset)
        return True

    cdef bint may_step(self, queue) except -1:
        cdef object position = queue.position
        if self.taking or self.source is None or self.here.head.magic != 2:
            return False
        return queue.reader is self and position.epoch == queue.epoch and not position.paused

    cdef bint read_on(self, Spot* spot, RecordAt* r):
        """Move the spot behind the next record that is to be handed out. False: take() tells why there is none."""
        while spot.left > 1 or spot.head.end < self.end:
            if not spot.left:
                if not self.cross(spot):
                    return False
                continue
            if not read_record(
                spot.at, spot.limit, spot.head.base_timestamp, <int32_t> spot.previous, <int32_t> (spot.head.last_offset - spot.head.base_offset), r
            ):
                return False
            if spot.left == 1 and r.end != spot.limit:
                return False  # bytes behind the last record
            spot.at, spot.previous = r.end, r.offset
            spot.left -= 1
            if spot.base + r.offset >= self.min_offset:
                return True
        return False

    cdef void tell(self, Message message, Spot* spot, RecordAt* r):
        fill(message, self.source, r, spot.base, spot.head.max_timestamp if spot.head.log_append_time else r.timestamp)

    cdef int move(self, queue, Spot* spot, int64_t offset) except -1:
        """To this spot, behind the record of this offset."""
        self.here = spot[0]
        self.next_offset = offset + 1
        queue.position.consumed = self.next_offset
        return 0

    # -- from one batch to the next --------------------------------------------------------------------------------------
    cdef bint next_head(self, const Spot* spot, Head* head) noexcept:
        """The header behind this batch. False: the buffer was changed since it was scanned."""
        if not read_head(address_of(self.view), spot.head.end, self.end, head):
            return False
        return head.magic == 2 and head.base_offset > spot.head.last_offset

    cdef bint is_plain(self, const Head* head):
        """Can a spot cross into this batch, with the Source of the open one, at once?"""
        return (
            not head.codec and self.source.keeper is self.view and head.end - head.start < NOGIL_CRC_BYTES
            and head.log_append_time == self.here.head.log_append_time and head.last_offset >= self.min_offset
        )

    cdef bint cross(self, Spot* spot):
        """Move from the end of a batch into the next one, if nothing in that may let others run.

        False: open_next() does it, or tells why not.
        """
        cdef bytes_at p
        cdef Head head
        cdef Py_ssize_t size
        if not self.next_head(spot, &head) or not self.is_plain(&head):
            return False
        p = address_of(self.view) + head.start
        size = head.end - head.start
        if self.check_crcs and load_u32(p + 17) != gkafka_crc32c(p + 21, size - 21, 0):
            return False
        if not head.count and size > V2_HEAD:
            return False
        spot.behind -= head.count
        self.enter(spot, &head, p + V2_HEAD, p + size, head.count, head.base_offset)
        return True

    cdef void enter(self, Spot* spot, const Head* head, bytes_at begin, bytes_at limit, int32_t count, int64_t base):
        spot.head = head[0]
        spot.at, spot.limit, spot.left = begin, limit, count
        spot.base, spot.previous = base, -1

    cdef int to_next(self, Spot* spot) except -1:
        """To the next batch that is not wholly below min_offset."""
        cdef Head head
        while True:
            if not self.next_head(spot, &head):
                raise _damage.corrupt("the buffer was changed since it was scanned", self.place(&spot.head))
            spot.head, spot.left = head, head.count
            spot.behind -= head.count
            if head.last_offset >= self.min_offset:
                return 0

    cdef Source opened(self, Spot* spot):
        """Open the batch of the spot, and return its Source. Others may run meanwhile."""
        cdef Head head = spot.head
        cdef object place = self.place(&head), view = self.view, payload = view
        cdef int32_t count = head.count
        cdef int64_t base = 0
        cdef bytes_at begin
        if head.magic == 2:
            payload = open_payload(view, &head, self.check_crcs, self.max_bytes, place)
            base = head.base_offset
        elif head.codec:
            payload = open_wrapper(view, &head, self.check_crcs, self.max_bytes, place, &count, &base)
        begin = address_of(payload)
        if payload is view:
            self.enter(spot, &head, begin + head.start + (V2_HEAD if head.magic == 2 else 0), begin + head.end, count, base)
        else:
            self.enter(spot, &head, begin, begin + size_of(payload), count, base)
        # An empty batch may name a codec that we do not know.
        return new_source(payload, self.context, timestamp_type(&head), CODECS[head.codec] if count else NO_CODEC)

    cdef int open_next(self) except -1:
        """By take(): open the batch behind this one, or the first one."""
        cdef Spot spot = self.here
        cdef Source source
        if self.source is not None:
            self.to_next(&spot)
        source = self.opened(&spot)
        self.here, self.source = spot, source
        return 0

    cdef int open_ahead(self) except -1:
        """Open the batch before which a step stands, if it cannot cross into it.

        Others may run meanwhile: if one of them moves, nothing is changed.
        """
        cdef Spot spot
        cdef Source source
        cdef Head head
        while not (self.here.left or self.taking or self.source is None) and self.next_head(&self.here, &head) and not self.is_plain(&head):
            spot = self.here
            try:
                self.to_next(&spot)
                source = self.opened(&spot)
            except _KafkaException:
                break  # take() tells
            if self.taking or self.source is None or self.here.left or self.here.head.end != head.start:
                break
            self.here, self.source = spot, source
        return 0

    cdef object place(self, const Head* head):
        return _damage.Place(self.context.topic, self.context.partition_id, head.base_offset, head.last_offset)

    cdef void fail(self, object error):
        self.error = _damage.bare(error)
        self.view = self.source = None

    cdef void close(self):
        self.view = self.source = None
        self.next_offset = max(self.last_offset + 1, self.min_offset, self.next_offset)

    cdef int read(self, Py_ssize_t n, int64_t room, Py_ssize_t least, list messages) except -1:
        """Take up to n, `least` whatever their size and then no more than fit into `room`.

        From as many batches as that needs.
        """
        cdef Py_ssize_t had = 0
        cdef int64_t work = 0
        cdef bint good
        if self.source is None:
            self.open_next()
        while True:
            work += V2_HEAD + max(self.here.limit - self.here.at, CODEC_BYTES if self.here.head.codec else 0)
            if self.here.head.magic == 2:
                good = self.read_records(n, room, least, messages)
            else:
                good = self.read_messages(n, room, least, messages)
            if len(messages) > had:
                had = len(messages)
                self.next_offset = (<Message> messages[had - 1]).offset + 1
            if not good:
                self.fail(self.explain())
                return 0
            if self.here.left:
                return 0
            if self.here.head.end == self.end:
                self.close()
                return 0
            self.next_offset = max(self.next_offset, self.here.head.last_offset + 1)
            if had >= n or work >= TAKE_BYTES or (had >= least and self.taken_bytes >= room):
                return 0
            if not self.cross(&self.here):
                self.open_next()

    cdef bint read_records(self, Py_ssize_t n, int64_t room, Py_ssize_t least, list messages):
        """From the open batch; false if what follows them is damaged."""
        cdef bytes_at p = self.here.at, limit = self.here.limit
        cdef int32_t left = self.here.left, previous = <int32_t> self.here.previous
        cdef int32_t last_delta = <int32_t> (self.here.head.last_offset - self.here.head.base_offset)
        cdef int64_t base = self.here.base, base_timestamp = self.here.head.base_timestamp
        cdef int64_t fixed = self.here.head.max_timestamp, min_offset = self.min_offset, taken = self.taken_bytes, size
        cdef bint log_append_time = self.here.head.log_append_time, good = True
        cdef Source source = self.source
        cdef type message_class = self.message_class
        cdef bint plain = message_class is Message
        cdef Message message
        cdef RecordAt r
        n -= len(messages)
        least -= len(messages)
        while left and n:
            if not read_record(p, limit, base_timestamp, previous, last_delta, &r):
                good = False
                break
            if base + r.offset >= min_offset:
                size = r.end - r.begin + MESSAGE_BYTES
                if size > room - taken and least <= 0:
                    break
                taken += size
                least -= 1
                message = Message.__new__(Message) if plain else new_message(message_class)
                fill(message, source, &r, base, fixed if log_append_time else r.timestamp)
                messages.append(message)
                n -= 1
            p = r.end
            previous = <int32_t> r.offset
            left -= 1
        self.here.at = p
        self.here.left = left
        self.here.previous = previous
        self.taken_bytes = taken
        return good and (left > 0 or p == limit)

    cdef bint read_messages(self, Py_ssize_t n, int64_t room, Py_ssize_t least, list messages):
        # Messages compressed together share their wrapper's LogAppendTime (KIP-32).
        cdef bint fixed = self.here.head.codec and self.here.head.log_append_time
        cdef Message message
        cdef RecordAt r
        while self.here.left and n:
            if not read_message(self.here.at, self.here.limit, self.check_crcs, self.here.previous, &r):
                return False
            if self.here.base + r.offset >= self.min_offset:
                if least <= 0 and self.taken_bytes + (r.end - r.begin) + MESSAGE_BYTES > room:
                    break
                least -= 1
                self.taken_bytes += r.end - r.begin + MESSAGE_BYTES
            self.here.at = r.end
            self.here.previous = r.offset
            self.here.left -= 1
            if self.here.base + r.offset >= self.min_offset:
                message = new_message(self.message_class)
                message.source = self.source
                message.key_at = r.key
                message.value_at = r.value
                message.offset = self.here.base + r.offset
                message.timestamp = self.here.head.base_timestamp if fixed and r.begin[16] else r.timestamp
                message.size = r.end - r.begin
                message.key_size = r.key_size
                message.value_size = r.value_size
                message.tail = 0
                messages.append(message)
                n -= 1
        return True

    cdef object explain(self):
        """The error for what stands at self.here."""
        cdef object data = self.source.keeper
        cdef Py_ssize_t pos = self.here.at - address_of(data), limit = self.here.limit - address_of(data)
        return damaged_at(
            data, pos, limit, &self.here.head, self.here.left, self.here.base, self.here.previous, self.check_crcs, self.place(&self.here.head)
        )


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


cdef object check_bounds(object view, Span span):
    """Refuses a span that was found in another buffer: ValueError."""
    cdef Head* head = &span.head
    cdef Py_ssize_t least = V2_HEAD if head.magic == 2 else 12 + smallest(head.magic)
    if not (0 <= head.start and head.start + least <= head.end <= span.end <= size_of(view)):
        raise ValueError(f"{span!r} does not lie in this buffer of {size_of(view)} bytes")


def control_type(buffer, BatchHeader header not None, *, check_crcs=True):
    """What a control batch marks (KIP-98): 0 abort, 1 commit, other numbers are unknown to us; -1 if its record was compacted away."""
    messages = Records(buffer, header, _message.Origin("", -1), check_crcs=check_crcs).take(1)
    return _message.marker_of(messages, header.head.base_offset, header.head.last_offset)
