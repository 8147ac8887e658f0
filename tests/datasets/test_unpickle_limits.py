"""The time and memory to read a pickle are bounded by its length."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc

import archives
import pytest

from shortlist.datasets.images.unpickle import UnsafePickleError, read_plain_pickle

SECONDS, BYTES = 1.0, 100_000_000


def doubled(pair: bytes, times: int = 26) -> bytes:
    """Return containers, each with two references to the previous one."""
    steps = [pair.replace(b"h", b"h" + bytes([i])) + b"q" + bytes([i + 1]) + b"0"
             for i in range(times)]  # fmt: skip
    return b")q\x000" + b"".join(steps) + b"h" + bytes([times])


TUPLES = doubled(b"hh\x86")
LISTS = doubled(b"](hhe")
DTYPE = b"cnumpy\ndtype\n"
LONG_TEXT = b"X" + struct.pack("<I", 20_000) + b"a" * 20_000 + b"q\x00"
MANY_ITEMS = b"](" + b"K\x01" * 10_000 + b"eq\x00"
HUGE_NUMBER = b"\x8b" + struct.pack("<i", 20_000) + b"\x7f" * 20_000 + b"q\x00"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR"

BOMBS = {
    "key of nested tuples": b"}" + TUPLES + b"Ns.",
    "keys of nested tuples": b"}(" + TUPLES + b"Nu.",
    "dictionary of nested tuples": b"(" + TUPLES + b"Nd.",
    "set of nested tuples": b"\x8f(" + TUPLES + b"\x90.",
    "frozen set of nested tuples": b"(" + TUPLES + b"\x91.",
    "set, called": b"c__builtin__\nset\n(](" + TUPLES + b"etR.",
    "dictionary, called": b"c__builtin__\ndict\n(](" + TUPLES + b"N\x86etR.",
    "nested tuples": TUPLES + b".",
    "nested lists": LISTS + b".",
    "nested dictionaries": doubled(b"}(K\x01hK\x02hu") + b".",
    "type of nested tuples": DTYPE + b"(" + TUPLES + b"tR.",
    "state of nested tuples": DTYPE + b"(Vu1\ntR(N" + TUPLES + b"tb.",
    "array state of nested tuples": ARRAY + TUPLES + b"b.",
    "persistent": TUPLES + b"Q.",
    "encoding of nested tuples": b"c_codecs\nencode\n(" + TUPLES + b"Vlatin1\ntR.",
    "shape of huge numbers": ARRAY
    + b"(I1\n(" + HUGE_NUMBER + b"h\x00" * 10_000 + b"t" + DTYPE + b"(Vu1\ntRI0\nU\x00tb.",
    "huge key": b"}(" + HUGE_NUMBER + b"N" + b"h\x00N" * 20_000 + b"u.",
    "colliding keys": b"}("
    + b"".join(b"\x8a\x0a" + ((2**61 - 1) * i + 7).to_bytes(10, "little") + b"N"
               for i in range(1, 9000))
    + b"u.",
    "lists copied": MANY_ITEMS + b"0](" + b"c__builtin__\nlist\n(h\x00tR" * 4000 + b"e.",
    "tuples copied": MANY_ITEMS + b"0](" + b"c__builtin__\ntuple\n(h\x00tR" * 4000 + b"e.",
    "text encoded": LONG_TEXT + b"0](" + b"c_codecs\nencode\n(h\x00Vlatin1\ntR" * 9000 + b"e.",
    "text repeated": LONG_TEXT + b"0](" + b"h\x00" * 50_000 + b"e.",
    "same object": LONG_TEXT + b"0](h\x00" + b"2" * 100_000 + b"e.",
    "deep lists": b"]" * 100_000 + b"a" * 99_999 + b".",
    "deep tuples": b")" + b"\x85" * 50_000 + b".",
    "deep key": b"})" + b"\x85" * 50_000 + b"Ns.",
    "circle": b"]q\x00h\x00a.",
    "circle of tuples": b"]q\x00(h\x00h\x00ta.",
    "growing circle": b"]q\x00(" + b"h\x00" * 50_000 + b"e.",
    "long number": b"\x8b\xff\xff\xff\x7f" + b"\x01" * 100 + b".",
    "long digits": b"L" + b"9" * 50_000 + b"L\n.",
    "long text": b"\x8d" + struct.pack("<Q", 2**62) + b"a.",
    "long bytes": b"\x8e" + struct.pack("<Q", 2**40) + b"a.",
    "long buffer": b"\x96" + struct.pack("<Q", 2**40) + b"a.",
    "long frame": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.",
    "far memo": b"]r\xff\xff\xff\x7f.",
    "marks": b"(" * 50_000 + b".",
}  # fmt: skip


def measure(content: bytes) -> tuple[object, float, int]:
    """Return the value or the error of a pickle, the seconds it took, and its peak memory."""
    start = time.process_time()
    result = _read(content)
    seconds = time.process_time() - start
    tracemalloc.start()  # This makes reading slower, so it is not timed.
    _read(content)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, seconds, peak_bytes


def _read(content: bytes) -> object:
    try:
        return read_plain_pickle(content)
    except ValueError as error:
        return error


@pytest.mark.parametrize("name", list(BOMBS))
@pytest.mark.timeout(20)
def test_a_bomb_raises_quickly(name: str) -> None:
    result, seconds, peak_bytes = measure(BOMBS[name])
    assert isinstance(result, ValueError)
    assert len(str(result).splitlines()) == 1
    assert len(str(result)) < 300
    assert seconds < SECONDS
    assert peak_bytes < BYTES


def test_errors_about_bombs() -> None:
    for name, words in {
        "key of nested tuples": "key of type tuple",
        "deep lists": "nested more than",
        "nested tuples": "repeats its parts",
        "lists copied": "copies its parts",
        "long digits": "not a readable pickle",
    }.items():
        with pytest.raises(ValueError, match=words):
            read_plain_pickle(BOMBS[name])


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a pickle with some bytes changed, moved, repeated or removed."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at, length = rng.randrange(len(changed)), rng.randint(1, 40)
        piece = bytes(changed[at : at + length])
        target = rng.randrange(len(changed))
        operation = rng.randrange(5)
        if operation == 0:
            changed[at] = rng.randrange(256)
        elif operation == 1:
            changed[target:target] = piece * rng.randint(1, 50)
        elif operation == 2:
            del changed[at : at + length]
        elif operation == 3:
            changed[at:at] = bytes(rng.choices(b"hq(tuaesd2}])\x85\x86\x87R.0\x94\x00\x01", k=20))
        else:
            changed[at : at + 4] = struct.pack("<I", rng.choice([0, 255, 2**31 - 1, 2**32 - 1]))
    return bytes(changed) or b"."


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.study)])
def test_mutations_of_an_archive_finish_quickly(count: int) -> None:
    rng = random.Random(0)
    originals = list((archives.cifar10() | archives.cifar100()).values())
    n_read = 0
    for _ in range(count):
        result, seconds, peak_bytes = measure(mutate(rng.choice(originals), rng))
        assert seconds < SECONDS
        assert peak_bytes < BYTES
        if isinstance(result, ValueError):
            assert len(str(result).splitlines()) == 1
            assert isinstance(result, UnsafePickleError) or "not a readable pickle" in str(result)
        else:
            n_read += 1
            repr(result)
    assert 0 < n_read < count
