# Reading record batches: lz4 as Java's client writes it. Included by _speed.pyx.

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char* string, Py_ssize_t size)

cdef enum:
    LZ4_MAGIC = 0x184D2204
    LZ4_HEAD = 7
    LZ4_STORED = 0x80000000u

cdef Py_ssize_t LZ4_LARGE = _compression.LARGE
cdef Py_ssize_t LZ4_EXPANSION = _lz4frame.MOST
cdef Py_ssize_t LZ4_MOST_BLOCKS = _lz4frame.MOST_PLAIN
cdef Py_ssize_t[4] LZ4_BLOCK_SIZES = [1 << 16, 1 << 18, 1 << 20, 1 << 22]
cdef uint8_t[4] LZ4_CHECKS = [_lz4frame.check_byte(0x60, code << 4) for code in range(4, 8)]


cdef inline uint32_t load_u32_little(bytes_at p) noexcept nogil:
    return p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24


cdef object unpack_lz4(object view, object max_bytes):
    """compression.unlz4_blocks, compiled, and into memory that was not zeroed first. None: left to compression.decompress()."""
    cdef object reader = _compression.lz4_block_reader()
    cdef bytes_at data = address_of(view)
    cdef Py_ssize_t end = size_of(view) - 4, at = LZ4_HEAD, left = min(max_bytes, LZ4_LARGE), total = 0, done = 0, most, length, room
    cdef uint32_t word
    cdef list blocks = []
    if reader is None or end < LZ4_HEAD or load_u32_little(data) != LZ4_MAGIC or data[4] != 0x60 or data[5] & 0x8F or data[5] < 0x40:
        return None
    if data[6] != LZ4_CHECKS[(data[5] >> 4) - 4]:
        return None
    most = LZ4_BLOCK_SIZES[(data[5] >> 4) - 4]
    while at < end:
        word = load_u32_little(data + at)
        length = word & ~LZ4_STORED
        room = 0 if word & LZ4_STORED else min(most, length * LZ4_EXPANSION)
        at += 4
        total += room or length
        if not length or length > end - at or total > left or len(blocks) == LZ4_MOST_BLOCKS:
            return None
        blocks.append((view[at : at + length], room))
        at += length
    if load_u32_little(data + at) != 0:
        return None
    unpack, error = reader
    whole = bytes_view(PyByteArray_FromStringAndSize(NULL, total))
    try:
        for block, room in blocks:
            if room:
                length = unpack(block, whole[done : done + room], output_len=room)
            else:
                length = size_of(block)
                whole[done : done + length] = block
            done += length
    except (error, ValueError):
        return None
    return whole[:done]
