"""Files that ``weir.fs`` opens: as fsspec buffers them, as Python's own buffer does it, and for ``async``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AbstractAsyncStreamedFile
from fsspec.spec import AbstractBufferedFile

from ._native import StoreFile, StoreOptions
from ._store import PIECE, StoreCalls, to_bytes, unfinished

if TYPE_CHECKING:
    from .fs import WeirFileSystem


def open_to_write(calls: StoreCalls, path: str, mode: str, options: StoreOptions) -> StoreFile:
    """A file as ``wb`` (cut to nothing), ``xb`` (new) or ``ab`` (made where it is missing) has it."""
    name = to_bytes(path)
    if mode[0] != "a":
        return calls.native().create(name, options, mode[0] == "x")
    try:
        return calls.native().open(name, True)
    except FileNotFoundError:
        return calls.native().create(name, options, True)


class WeirFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read through one of fsspec's caches, or written in order.

    It is the same file while it is open, whatever becomes of its name. What was written is seen by others after ``flush`` or ``close``; in
    a transaction the file gets its name when the transaction ends.
    """

    DEFAULT_BLOCK_SIZE = PIECE
    buffer: io.BytesIO

    def __init__(
        self,
        fs: WeirFileSystem,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = "default",
        autocommit: bool = True,
        cache_type: str = "readahead",
        cache_options: dict[str, Any] | None = None,
        size: int | None = None,
        options: StoreOptions | None = None,
        **kwargs: Any,
    ) -> None:
        self.closed = True
        if mode not in ("rb", "wb", "ab", "xb"):
            raise ValueError(f"mode {mode!r}: write one of rb, wb, xb, ab, r+b, w+b, x+b")
        calls = fs.calls
        self._held = self._has_failed = False
        self._at = 0
        if mode == "rb":
            self._native = calls.native().open(to_bytes(path), False)
            size = self._native.size if size is None else size
        else:
            assert options is not None
            if not autocommit and mode == "ab":
                raise ValueError("mode 'ab': a transaction cannot append; open the file outside of it")
            if mode == "xb" and not autocommit and fs.exists(path):
                open_to_write(calls, path, mode, options)
            self._held = not autocommit
            at = path if autocommit else unfinished(path)
            self._native = open_to_write(calls, at, "wb" if self._held else mode, options)
            self._at = self._native.size if mode == "ab" else 0
        super().__init__(fs, path, mode, block_size, autocommit, cache_type, cache_options, size, **kwargs)
        self.loc = self._at

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._native.read(start, max(end - start, 0))

    def write(self, data: Any) -> int:
        """Writes bytes behind those before."""
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        view = memoryview(data).cast("B")
        if view.nbytes >= self.blocksize:
            self._send()
            self._put(view)
        else:
            self.buffer.write(view)
            if self.buffer.tell() >= self.blocksize:
                self._send()
        self.loc += view.nbytes
        return view.nbytes

    def readline(self, size: int = -1) -> bytes:
        """A line, with its end."""
        line: bytes = self.readuntil(b"\n", 1 << 13)
        if 0 <= size < len(line):
            self.seek(size - len(line), io.SEEK_CUR)
            return line[:size]
        return line

    def _send(self) -> None:
        with self.buffer.getbuffer() as waiting:
            if waiting.nbytes:
                self._put(waiting)
        self.buffer = io.BytesIO()

    def _put(self, data: memoryview) -> None:
        try:
            self._native.write(self._at, data)
        except BaseException:
            self._has_failed = True
            raise
        self._at += data.nbytes

    def flush(self, force: bool = False) -> None:
        """Publishes what was written."""
        if self.closed:
            raise ValueError("Flush on closed file")
        if self.mode != "rb":
            self._send()
            self._native.flush()

    def close(self) -> None:
        """Publishes what was written, and closes the file. After a write that has failed, nothing more is published."""
        if self.closed or getattr(self, "_unclosable", False):
            return
        try:
            if self.mode != "rb":
                self.forced = True
                if not self._has_failed:
                    self._send()
        finally:
            super().close()
            if self._has_failed:
                self._native.abandon()
            else:
                self._native.close()

    def commit(self) -> None:
        """At the end of a transaction: it gets its name."""
        if self._held:
            calls = self.fs.calls
            calls.native().rename(to_bytes(unfinished(self.path)), to_bytes(self.path), self.mode != "xb")

    def discard(self) -> None:
        """At the end of a transaction that has failed: it is gone."""
        if self._held:
            self._native.abandon()
            self.closed = True
            self.fs.calls.native().remove(to_bytes(unfinished(self.path)), False)


def open_buffered(calls: StoreCalls, path: str, mode: str, options: StoreOptions) -> io.BufferedRandom:
    """A file that is read and written at any offset, with Python's own buffer: ``r+b``, ``w+b``, ``x+b``."""
    return io.BufferedRandom(RawFile(calls, path, mode, options), PIECE)


class RawFile(io.RawIOBase):
    """A file that is read and written at any offset: what ``r+b``, ``w+b`` and ``x+b`` have below Python's own buffer."""

    def __init__(self, calls: StoreCalls, path: str, mode: str, options: StoreOptions) -> None:
        self.name = path
        self._native = (
            calls.native().open(to_bytes(path), True) if mode[0] == "r" else open_to_write(calls, path, mode, options)
        )
        self._at = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._native.read_into(self._at, buffer)
        self._at += count
        return count

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._native.write(self._at, data)
        self._at += count
        return count

    def seek(self, to: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._native.size}[whence]
        if begin + to < 0:
            raise ValueError("a position before the beginning of the file")
        self._at = begin + to
        return self._at

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        self._native.truncate(size)
        return size

    def flush(self) -> None:
        if not self.closed:
            self._native.flush()

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()


class WeirAsyncFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """A file of ``open_async``: read or written in order, without a buffer for reading."""

    DEFAULT_BLOCK_SIZE = PIECE

    def __init__(self, fs: WeirFileSystem, path: str, mode: str, native: StoreFile, size: int, **kwargs: Any) -> None:
        super().__init__(fs, path, mode, size=size, **kwargs)
        self._native = native
        self._at = self.loc = size if mode == "ab" else 0

    async def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = await self.fs.run(self._native.read, start, max(end - start, 0))
        return found

    async def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        await self.fs.run(self._native.write, self._at, data)
        self._at += len(data)
        if final:
            await self.fs.run(self._native.close)
        return True

    def __del__(self) -> None:
        """A file that was not closed publishes nothing: closing it would have to be waited for."""
