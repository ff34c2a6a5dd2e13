# What columns hold, as two numbers: the compiled twin of `_pure_sums.py`. Included by `_speed_write.pxi`.


cdef inline uint32_t crc_number(uint32_t number, uint32_t crc) noexcept nogil:
    cdef unsigned char at[4]
    at[0], at[1], at[2], at[3] = number & 0xFF, (number >> 8) & 0xFF, (number >> 16) & 0xFF, number >> 24
    return c_crc32c(at, 4, crc)


cdef inline uint32_t crc_string(bytes_at p, Py_ssize_t n, uint32_t crc) noexcept nogil:
    """n: -1 for null, which is not the same as empty."""
    crc = crc_number(<uint32_t> n, crc)
    return c_crc32c(p, n, crc) if n > 0 else crc


cdef inline uint64_t mixed(uint64_t n) noexcept nogil:
    """splitmix64's last steps. CRCs are linear: of two records that exchange a part the sum would often stay the same."""
    n = (n ^ (n >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    n = (n ^ (n >> 27)) * <uint64_t> 0x94D049BB133111EB
    return n ^ (n >> 31)


cdef raise_for(columns, Py_ssize_t row):
    columns.row(row)  # says what is wrong
    raise ValueError(f"row {row} was changed while it was looked at")


def measure_columns(columns not None, uint32_t start=0):
    """Bytes of the keys and values, and the sum modulo 2**64 of a checksum for each record, a CRC-32C of its value, key, partition and headers, mixed.

    Neither the order of records nor how they are cut into columns makes a difference to the sum of the sums. start: the CRC-32C to go on from, as
    of the topic. Raises what `RecordColumns.row` raises for a record that cannot be one.
    """
    cdef Py_ssize_t count = columns.count, row, begin = 0, end = 0, i, value_size = -1, key_size = -1, size
    cdef LentColumns given = LentColumns.__new__(LentColumns, columns, count)
    cdef LentNumbers partitions = LentNumbers.__new__(LentNumbers, columns.partitions, count)
    cdef int32_t number
    cdef uint64_t total = 0, sizes = 0
    cdef uint32_t crc
    cdef bytes_at value = NULL
    cdef bytes_at key = NULL
    cdef bytes_at p
    for row in range(count):
        if not string_at(given.values, row, &value, &value_size) or not string_at(given.keys, row, &key, &key_size) or not given.headers_of(row, &begin, &end):
            raise_for(columns, row)
        crc = crc_string(key, key_size, crc_string(value, value_size, start))
        if not partitions.get(row, &number):
            number = -1
        crc = crc_number(<uint32_t> (end - begin), crc_number(<uint32_t> number, crc))
        if begin < end:
            if given.header_bytes(begin, end, 1 << 62) < 0:
                raise_for(columns, row)
            for i in range(begin, end):
                string_at(given.header_keys, i, &p, &size)
                crc = crc_string(p, size, crc)
                string_at(given.header_values, i, &p, &size)
                crc = crc_string(p, size, crc)
        total += mixed(crc)
        sizes += <uint64_t> (max(value_size, 0) + max(key_size, 0))
    return sizes, total
