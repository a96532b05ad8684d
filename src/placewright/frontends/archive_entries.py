"""The entries of a zip archive, read by one strict reader: what can be read in two ways is refused.

Zip readers differ in where they look for the directory, in how they compare names, and in what they make of gaps and
overlaps; a file that is checked by one of them and used by another can hold two archives. Here the bytes of the file
must be the entries, one after the other, then one directory that lists them in full, then its end, and nothing else.
Entries are stored as they are, never compressed, so that they can be used where they are read.
"""

from __future__ import annotations

import mmap
import re
import struct
import sys
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from placewright.errors import InputError
from placewright.frontends.base import check_file
from placewright.text import shown

MOST_ENTRIES = 50_000
_LONGEST_NAME = 1000  # bytes
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")
_END64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR = struct.Struct("<4sLQL")
_DESCRIPTORS = (struct.Struct("<4sLLL"), struct.Struct("<4sLQQ"))  # of small and of large entries
_HAS_DESCRIPTOR, _IS_UTF8 = 0x0008, 0x0800
_EXTRAS = {0x0001, 0x4246}  # sizes of 64 bits, and torch's padding; others may rename an entry
_ALL_ONES, _ALL_ONES_16 = 0xFFFFFFFF, 0xFFFF
_REGULAR_FILE = 0x8  # the kind of file in the upper bits of what Unix writes as permissions; 0 where nobody said
_DRIVE = re.compile(r"^[A-Za-z]:")


class Bytes(Protocol):
    """What an archive is read from: memory, or a file of which only what is asked for is read."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview: ...


class Entry:
    """One entry: its bytes, read when they are first asked for, and the checksum that the directory gives."""

    def __init__(self, source: Bytes, begin: int, size: int, crc: int) -> None:
        self.source, self.begin, self.size, self.crc = source, begin, size, crc

    @cached_property
    def data(self) -> memoryview:
        return memoryview(self.source[self.begin : self.begin + self.size])

    def is_whole(self) -> bool:
        return len(self.data) == self.size and zlib.crc32(self.data) == self.crc


class OpenFile:
    """The bytes of a file, which stays open."""

    def __init__(self, path: Path, where: str) -> None:
        self._where = where
        check_file(path)
        try:
            self._file = path.open("rb")
            self._size = self._file.seek(0, 2)
        except OSError as error:
            raise self._unreadable(error) from error

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._size)
        try:
            self._file.seek(begin)
            return self._file.read(max(0, end - begin))
        except (OSError, ValueError, MemoryError) as error:
            raise self._unreadable(error) from error

    def in_memory(self) -> memoryview:
        """All of it, read into memory that tensors can use as it is.

        The file is not mapped: if somebody writes it anew while a model runs, a mapping would end the process.
        """
        if not self._size:
            return memoryview(b"")
        try:
            memory = _fresh_memory(self._size)
            self._file.seek(0)
            n_read = self._file.readinto(memory)
        except (OSError, ValueError, MemoryError) as error:
            raise self._unreadable(error) from error
        return memoryview(memory)[:n_read]

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self._where}: cannot be read: {shown(str(error), 100)}")


def _fresh_memory(size: int) -> mmap.mmap:
    """Memory that begins where a page begins, and that a forked child does not share."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def read_entries(data: Bytes, where: str) -> dict[str, Entry]:
    """All entries of an archive by name; raises :class:`InputError` for anything that is not plain."""
    try:
        return _entries(data)
    except (_Odd, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"{where}: not a readable .pt2 archive: {shown(str(error), 200)}") from error


class _Odd(ValueError):
    pass


def _unpacked(form: struct.Struct, data: Bytes, at: int) -> tuple[Any, ...]:
    return form.unpack(data[at : at + form.size])


def _entries(data: Bytes) -> dict[str, Entry]:
    n_entries, start, stop = _directory(data)
    found: dict[str, Entry] = {}
    folded: set[str] = set()
    directory = bytes(data[start:stop])
    at, expected = 0, 0  # in the directory; where the next entry must begin
    for _ in range(n_entries):
        name, entry, offset, end, at = _read_entry(data, directory, at)
        if offset != expected:
            raise _Odd(f"entry '{shown(name)}' does not begin where the one before it ends")
        if name.casefold() in folded:
            raise _Odd(f"there are two entries '{shown(name)}'")
        folded.add(name.casefold())
        found[name], expected = entry, end
    if at != len(directory):
        raise _Odd("its directory is longer than its entries")
    if expected != start:
        raise _Odd("there is something between its last entry and its directory")
    return found


def _directory(data: Bytes) -> tuple[int, int, int]:
    """Number of entries, and where their directory begins and ends."""
    if bytes(data[:4]) != b"PK\x03\x04":
        raise _Odd("File is not a zip file, or something stands before it")
    end = len(data) - _END.size
    if end < 0:
        raise _Odd("File is too short")
    mark, disk, first_disk, here, total, size, start, comment = _unpacked(_END, data, end)
    if mark != b"PK\x05\x06" or comment:
        raise _Odd("it does not end with the end of a zip archive")
    stop = end
    locator = end - _LOCATOR.size
    if locator >= 0 and bytes(data[locator : locator + 4]) == b"PK\x06\x07":
        _, disk64, end64, disks = _unpacked(_LOCATOR, data, locator)
        stop = locator - _END64.size
        if stop < 0 or end64 != stop or disk64 != 0 or disks != 1:
            raise _Odd("its end leads elsewhere")
        mark64, rest, _, _, d1, d2, here64, total64, size64, start64 = _unpacked(_END64, data, stop)
        if mark64 != b"PK\x06\x06" or rest != _END64.size - 12 or d1 or d2 or here64 != total64:
            raise _Odd("its end is damaged")
        pairs = ((here, here64), (total, total64), (size, size64), (start, start64))
        for i, (short, long) in enumerate(pairs):
            if short not in (long, _ALL_ONES_16 if i < 2 else _ALL_ONES):
                raise _Odd("its two ends say different things")
        here, total, size, start = here64, total64, size64, start64
    if disk or first_disk or here != total:
        raise _Odd("it is one part of several")
    if start + size != stop:
        raise _Odd("its directory does not stand before its end")
    if total > MOST_ENTRIES:
        raise _Odd(f"it has {total} entries, more than {MOST_ENTRIES}")
    return total, start, stop


def _read_entry(data: Bytes, directory: bytes, at: int) -> tuple[str, Entry, int, int, int]:
    """Name and content of the entry at ``at`` in the directory, where it begins and ends, where the next row is."""
    if at + _CENTRAL.size > len(directory):
        raise _Odd("its directory is cut off")
    (
        mark, made_by, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment, disk, _, permissions,
        offset,
    ) = _CENTRAL.unpack_from(directory, at)  # fmt: skip
    if mark != b"PK\x01\x02":
        raise _Odd("its directory is damaged")
    after_name = at + _CENTRAL.size + n_name
    following = after_name + n_extra + n_comment
    if following > len(directory) or n_name > _LONGEST_NAME:
        raise _Odd("its directory is cut off")
    raw_name = directory[at + _CENTRAL.size : after_name]
    name = _name(raw_name, flags)
    if flags & ~(_HAS_DESCRIPTOR | _IS_UTF8) or disk or n_comment:
        raise _Odd(f"entry '{shown(name)}' is encrypted or otherwise unusual")
    if method:
        raise _Odd(f"entry '{shown(name)}' is compressed, which torch.export.save never does")
    if made_by >> 8 == 3 and permissions >> 28 not in (0, _REGULAR_FILE):
        raise _Odd(f"entry '{shown(name)}' is a link or something else that is no file")
    large = _large_fields(directory[after_name : after_name + n_extra], name)
    size, packed, offset = (_in_full(v, large) for v in (size, packed, offset))
    if large or size != packed:
        raise _Odd(f"entry '{shown(name)}' has two sizes")
    begin, end = _content(data, offset, size, (raw_name, flags, method, crc), name)
    return name, Entry(data, begin, size, crc), offset, end, following


def _content(data: Bytes, offset: int, size: int, told: tuple[bytes, int, int, int], name: str) -> tuple[int, int]:
    """Where the bytes of an entry begin by its own header, which must say what the directory says; where it ends."""
    raw_name, flags, method, crc = told
    if offset + _LOCAL.size > len(data):
        raise _Odd(f"entry '{shown(name)}' lies outside the file")
    mark, _, own_flags, own_method, _, _, own_crc, packed, own_size, n_name, n_extra = _unpacked(_LOCAL, data, offset)
    start = offset + _LOCAL.size + n_name
    begin = start + n_extra
    if mark != b"PK\x03\x04" or begin + size > len(data):
        raise _Odd(f"entry '{shown(name)}' lies outside the file")
    if (bytes(data[offset + _LOCAL.size : start]), own_flags, own_method) != (raw_name, flags, method):
        raise _Odd(f"entry '{shown(name)}' is called otherwise in the directory")
    large = _large_fields(bytes(data[start:begin]), name)
    own_size, packed = (_in_full(v, large) for v in (own_size, packed))
    if not flags & _HAS_DESCRIPTOR:
        if (own_crc, own_size, packed) != (crc, size, size):
            raise _Odd(f"entry '{shown(name)}' has two sizes")
        return begin, begin + size
    if (own_crc, own_size, packed) not in ((0, 0, 0), (crc, size, size)):
        raise _Odd(f"entry '{shown(name)}' has two sizes")
    for form in _DESCRIPTORS:
        end = begin + size + form.size
        is_one = end <= len(data) and _unpacked(form, data, begin + size) == (b"PK\x07\x08", crc, size, size)
        if is_one and bytes(data[end : end + 4]) in (b"PK\x03\x04", b"PK\x01\x02"):
            return begin, end
    raise _Odd(f"entry '{shown(name)}' has two sizes")


def _large_fields(extra: bytes, name: str) -> list[int]:
    """Numbers of 64 bits that stand in for those of a header that are all ones, in their order."""
    at, numbers = 0, list[int]()
    seen: set[int] = set()
    while at < len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind not in _EXTRAS or kind in seen or at + 4 + size > len(extra):
            raise _Odd(f"entry '{shown(name)}' has unusual fields")
        seen.add(kind)
        if kind == 1:
            numbers = [n for (n,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + size])]
        at += 4 + size
    return numbers


def _in_full(value: int, large: list[int]) -> int:
    return large.pop(0) if value == _ALL_ONES and large else value


def _name(raw: bytes, flags: int) -> str:
    name = raw.decode("utf-8" if flags & _IS_UTF8 else "ascii")
    parts = name.split("/")
    is_plain = name.isprintable() and "\\" not in name and not _DRIVE.match(name)
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise _Odd(f"entry '{shown(name)}' has a name that leads elsewhere")
    return name
