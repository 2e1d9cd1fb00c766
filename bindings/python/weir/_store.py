"""The calls that ``weir.fs`` is made of: paths are text, what a path leads to is a dictionary as fsspec has it, errors are ``OSError``."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from ._native import Store, StoreEntry, StoreFile, StoreOptions

#: Names the store where an address does not.
VARIABLE = "WEIR_STORE"
#: Bytes that are moved at once.
PIECE = 4 << 20
#: What a file is called while its bytes are on the way.
_UNFINISHED = "._COPYING_"
#: Bytes of a name.
_NAME_BYTES_MAX = 255

Info = dict[str, Any]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class StoreAddress:
    """Which store, and how it is talked to."""

    #: ``HOST:PORT`` or ``unix:PATH`` of its metadata service; none: that of ``WEIR_STORE``.
    address: str | None
    #: Seconds that a call may take.
    deadline: float
    #: Where this client is.
    location: str

    def named(self) -> str:
        """The address."""
        address = self.address or os.environ.get(VARIABLE)
        if not address:
            raise ValueError(f"no store is named: write weir://HOST:PORT/path, store=\"HOST:PORT\", or set {VARIABLE}")
        return address


class Slice(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


class _Connected(NamedTuple):
    """A client, and the process that it is of."""

    process: int
    client: Store


def to_bytes(path: str) -> bytes:
    """A path as the store has it. What came from the store as bytes that are no UTF-8 goes back to it as these bytes."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, f"the path cannot be written as UTF-8: {error.reason}", path) from None


def to_text(path: bytes) -> str:
    """A name of the store as text."""
    return path.decode("utf-8", "surrogateescape")


def unfinished(path: str) -> str:
    """What a file is called while its bytes are on the way: a name beside its own."""
    folder, name = posixpath.split(path)
    kept = to_bytes(name)[: _NAME_BYTES_MAX - len(_UNFINISHED)]
    return posixpath.join(folder, to_text(kept) + _UNFINISHED)


def limits(size: int, start: int | None, end: int | None) -> Slice:
    """What ``[start:end]`` of so many bytes is."""
    begin, stop, _ = slice(start, end).indices(size)
    return Slice(begin, max(stop - begin, 0))


def _info(path: str, entry: StoreEntry) -> Info:
    kind = entry.kind
    shown = kind if kind in ("file", "link") else "directory"
    found: Info = {
        "name": path,
        "size": entry.size if kind == "file" else 0,
        "type": shown,
        "kind": kind,
        "ino": entry.number,
        "islink": kind == "link",
    }
    if entry.created_ns:
        found |= {"mode": entry.mode, "uid": entry.uid, "gid": entry.gid}
        found |= {"created": entry.created_ns / 1e9, "mtime": entry.modified_ns / 1e9}
    if shown == "file":
        found |= {"copies": entry.copies, "block": entry.block, "classes": entry.classes}
    return found


class StoreCalls:
    """A store, connected when it is first used, and once more in a process that was forked."""

    def __init__(self, store: StoreAddress) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._connected: _Connected | None = None

    def native(self) -> Store:
        """The client of this process. One that a parent has forked with is let go of: its threads and sockets are the parent's."""
        connected = self._connected
        if connected is None or connected.process != os.getpid():
            with self._lock:
                connected = self._connected
                if connected is None or connected.process != os.getpid():
                    store = self.store
                    client = Store(store.named(), deadline=store.deadline, location=store.location)
                    connected = self._connected = _Connected(os.getpid(), client)
        return connected.client

    def forked(self) -> None:
        """In a process that was forked: another thread of the parent may have had the lock."""
        self._lock = threading.Lock()

    # Names.

    def info(self, path: str) -> Info:
        """What a path leads to. Of a symbolic link, what it leads to, with ``islink`` and ``destination``."""
        name = to_bytes(path)
        entry = self.native().stat(name, False)
        if entry.kind != "link":
            return _info(path, entry)
        target = to_text(entry.target or b"")
        try:
            found = _info(path, self.native().stat(name, True))
        except FileNotFoundError:
            found = _info(path, entry)
        return found | {"islink": True, "destination": target}

    def ls(self, path: str) -> list[Info]:
        """The names of a directory; of a file its own."""
        try:
            entries = self.native().list(to_bytes(path))
        except NotADirectoryError:
            return [self.info(path)]
        return [self._listed(posixpath.join(path, to_text(entry.name)), entry) for entry in entries]

    def _listed(self, path: str, entry: StoreEntry) -> Info:
        # What a link leads to is the type that readers of a directory look at.
        return self.info(path) if entry.kind == "link" else _info(path, entry)

    def is_directory(self, path: str) -> bool:
        """Whether it has names in it."""
        try:
            return bool(self.info(path)["type"] == "directory")
        except (FileNotFoundError, NotADirectoryError):
            return False

    def make_directory(self, path: str, parents: bool) -> None:
        """Makes a directory that is not there; ``parents``: also those on the way."""
        try:
            self.native().make_directory(to_bytes(path), False, 0o755)
        except FileNotFoundError:
            if not parents:
                raise
            self.native().make_directory(to_bytes(posixpath.dirname(path)), True, 0o755)
            self.native().make_directory(to_bytes(path), False, 0o755)

    def make_directories(self, path: str, exist_ok: bool) -> None:
        """Makes a directory and those on the way to it."""
        if exist_ok:
            self.native().make_directory(to_bytes(path), True, 0o755)
        else:
            self.make_directory(path, True)

    def remove_file(self, path: str) -> None:
        """Deletes a file or a symbolic link."""
        if self.native().stat(to_bytes(path), False).kind not in ("file", "link"):
            raise IsADirectoryError(errno.EISDIR, "it is a directory; remove it with recursive=True, or by rmdir", path)
        self.native().remove(to_bytes(path), False)

    def remove_directory(self, path: str) -> None:
        """Deletes an empty directory."""
        if self.native().stat(to_bytes(path), False).kind in ("file", "link"):
            raise NotADirectoryError(errno.ENOTDIR, "it is no directory", path)
        self.native().remove(to_bytes(path), False)

    def remove_tree(self, path: str) -> None:
        """Deletes whatever has the name, with all that is below it."""
        self.native().remove(to_bytes(path), True)

    def rename(self, path: str, to: str, parents: bool) -> None:
        """Gives a file or a directory another name, in the place of the file that has it."""
        try:
            self.native().rename(to_bytes(path), to_bytes(to), True)
        except FileNotFoundError:
            self.native().stat(to_bytes(path), False)
            if not parents:
                raise
            self.native().make_directory(to_bytes(posixpath.dirname(to)), True, 0o755)
            self.native().rename(to_bytes(path), to_bytes(to), True)

    # Bytes.

    def cat(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """A slice of a file's bytes."""
        name = to_bytes(path)
        if (start or 0) >= 0 and (end is None or end >= 0):
            begin = start or 0
            most = (1 << 63) - 1 if end is None else max(end - begin, 0)
            return self.native().get(name, begin, most)
        file = self.native().open(name, False)
        return file.read(*limits(file.size, start, end))

    def whole(self, path: str, options: StoreOptions, exclusive: bool, write: Callable[[StoreFile], object]) -> None:
        """Makes or replaces a file as a whole: its name leads to the new bytes when all of them are there."""
        kind = self._kind(path)
        if exclusive and kind is not None:
            raise FileExistsError(errno.EEXIST, "something has that name", path)
        if kind not in (None, "file", "link"):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", path)
        beside = to_bytes(unfinished(path))
        file = self.native().create(beside, options, False)
        try:
            write(file)
            file.close()
            self.native().rename(beside, to_bytes(path), not exclusive)
        except BaseException:
            file.abandon()
            with contextlib.suppress(OSError):
                self.native().remove(beside, False)
            raise

    def _kind(self, path: str) -> str | None:
        """Of what has that name; ``None`` if nothing has it."""
        try:
            return self.native().stat(to_bytes(path), False).kind
        except FileNotFoundError:
            return None

    def pipe(self, path: str, value: Any, options: StoreOptions, exclusive: bool) -> None:
        """Makes or replaces a file with these bytes."""
        if memoryview(value).nbytes <= 1024:
            self.native().put(to_bytes(path), value, options, exclusive)
        else:
            self.whole(path, options, exclusive, lambda file: file.write(0, value))

    def copy(self, path: str, to: str, options: StoreOptions) -> None:
        """Copies a file's bytes to another name."""
        source, name = self.info(path), to_bytes(path)
        if source["type"] == "directory":
            self.make_directories(to, True)
        elif self._kind(to) == "file" and self.info(to)["ino"] == source["ino"]:
            raise OSError(errno.EINVAL, "it would be copied onto itself", to)
        else:
            self.whole(to, options, False, lambda file: self.native().copy(name, file))

    def get(self, path: str, to: str | BinaryIO, sized: Progress, moved: Progress) -> None:
        """Copies a file to this machine."""
        if isinstance(to, (str, os.PathLike)) and self.is_directory(path):
            os.makedirs(to, exist_ok=True)
            return
        file = self.native().open(to_bytes(path), False)
        size = file.size
        sized(size)
        if not isinstance(to, (str, os.PathLike)):
            self._pieces(file, size, to, moved)
            return
        with open(to, "wb") as local:
            self._pieces(file, size, local, moved)

    @staticmethod
    def _pieces(file: StoreFile, size: int, to: BinaryIO, moved: Progress) -> None:
        buffer = memoryview(bytearray(min(size, PIECE)))
        at = 0
        while at < size:
            count = file.read_into(at, buffer[: min(size - at, PIECE)])
            if count == 0:
                raise OSError(errno.EIO, f"the file ends at byte {at} of {size}: it was cut while it was read")
            to.write(buffer[:count])
            at += count
            moved(count)

    def put(
        self, local: str, path: str, options: StoreOptions, exclusive: bool, sized: Progress, moved: Progress
    ) -> None:
        """Copies a file of this machine to the store."""
        if os.path.isdir(local):
            self.make_directories(path, True)
            return
        with open(local, "rb", buffering=0) as source:
            sized(os.fstat(source.fileno()).st_size)

            def write(file: StoreFile) -> None:
                buffer = memoryview(bytearray(PIECE))
                at = 0
                while count := source.readinto(buffer):
                    file.write(at, buffer[:count])
                    at += count
                    moved(count)

            self.whole(path, options, exclusive, write)

