"""Changes to an input: of bytes that mean anything, and of record batches, whose checksum and length are made to fit again."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Sequence

from tests.records.handmade import fix_crc

LIES = [
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80" * 11,
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xfe",
]
LONGEST = 1 << 16


def any_bytes(data: bytes, chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One to four changes: a bit, a byte, a lie, a cut, a doubling, noise, or the end of another input."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        _change(out, chance, seeds)
    return bytes(out[:LONGEST])


def _change(out: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(out)) if out else 0
    kind = chance.randrange(9)
    if kind == 0 and out:
        out[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and out:
        out[at] = chance.randrange(256)
    elif kind <= 3:
        lie = chance.choice(LIES)
        out[at : at + len(lie)] = lie
    elif kind == 4:
        out[at:at] = chance.choice(LIES)
    elif kind == 5:
        del out[at : at + chance.choice((1, 2, 4, 100))]
    elif kind == 6:
        out[at:at] = out[at : at + chance.choice((1, 8, 200))] * chance.choice((1, 1, 3, 50))
    elif kind == 7:
        other = chance.choice(seeds)
        out[at:] = other[chance.randrange(len(other) + 1) :]
    else:
        del out[at:]


def batch_bytes(data: bytes, chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """The same; in most cases lengths and checksum fit afterwards, else they would catch all the rest. Batches may follow one another."""
    out = bytearray(any_bytes(data, chance, seeds))
    if chance.random() < 0.6 and len(out) > 12:
        struct.pack_into(">i", out, 8, len(out) - 12)
    if chance.random() < 0.85 and len(out) > 21:
        with contextlib.suppress(struct.error, IndexError, ValueError):
            out = bytearray(fix_crc(bytes(out)))
    if chance.random() < 0.1:
        out += chance.choice(seeds)
    return bytes(out[:LONGEST])
