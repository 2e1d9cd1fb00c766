"""A store as fsspec has file systems: ``weir://HOST:PORT/path``, for pandas, pyarrow, dask and all others that take fsspec.

>>> import fsspec
>>> with fsspec.open("weir://10.0.0.1:4430/data/a.txt", "wt") as f:  # doctest: +SKIP
...     f.write("hello")

It is registered by the package; ``import weir.fs`` is not needed. It wants fsspec: ``pip install 'weir[fs]'``.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, TypeVar

try:
    import fsspec  # noqa: F401
except ImportError as error:
    raise ImportError("weir.fs needs fsspec; install it:  pip install 'weir[fs]'") from error

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import stringify_path

from ._fs_file import WeirAsyncFile, WeirFile, open_buffered, open_to_write
from ._native import StoreFile, StoreOptions
from ._store import Info, StoreAddress, StoreCalls, limits, to_bytes

__all__ = ["WeirAsyncFile", "WeirFile", "WeirFileSystem"]

_T = TypeVar("_T")
_PROTOCOL = "weir://"
#: Calls of one file system that wait at a time.
_THREADS = 16


def _names(classes: str | Iterable[str]) -> list[str]:
    return [classes] if isinstance(classes, str) else list(classes)


class WeirFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Files of a store.

    ``store`` is the address of its metadata service, ``HOST:PORT`` or ``unix:PATH``: that of the URL, else ``WEIR_STORE``. Every call
    ends within ``deadline`` seconds. New files have blocks of ``classes`` (a name, or several, best first; none: those of the path's
    policy), ``copies`` of each (1 to 4; 0: the policy's, or 1), and ``block`` bytes in one (0: the store's); ``open``, ``pipe``, ``put`` and ``cp`` take these three as
    well. Directories on the way to a new file are made unless ``auto_mkdir`` is ``False``. ``location`` is where this client is.
    """

    protocol = "weir"
    root_marker = "/"

    def __init__(
        self,
        store: str | None = None,
        *,
        deadline: float = 30.0,
        classes: str | Iterable[str] = (),
        copies: int = 0,
        block: int = 0,
        location: str = "",
        auto_mkdir: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.calls = StoreCalls(StoreAddress(store, deadline, location))
        self.auto_mkdir = auto_mkdir
        self._made_with: dict[str, Any] = {"classes": _names(classes), "copies": copies, "block": block, "mode": 0o644}
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        _all[id(self)] = self

    @property
    def fsid(self) -> str:
        """Which store it is."""
        return f"weir_{self.calls.store.named()}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith(_PROTOCOL):
            rest = path[len(_PROTOCOL) :]
            path = rest[rest.find("/") :] if "/" in rest else "/"
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return "/" + "/".join(parts)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        path = stringify_path(path)
        if not path.startswith(_PROTOCOL):
            return {}
        address = path[len(_PROTOCOL) :].partition("/")[0]
        return {"store": address} if address else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        address = self.calls.store.named()
        path: str = self._strip_protocol(name)
        return _PROTOCOL + ("" if address.startswith("unix:") else address) + path

    @classmethod
    def _parent(cls, path: str) -> str:
        return str(posixpath.dirname(cls._strip_protocol(path)))

    # How calls are made.

    def forked(self) -> None:
        """In a process that was forked: it gets threads and a client of its own when it first calls."""
        self._pid = os.getpid()
        if not self.asynchronous:
            self._loop = get_loop()
        self.calls.forked()

    async def run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Makes a call in a thread, and waits for it."""
        threads = self._threads
        if threads is None or threads[0] != os.getpid():
            pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="weir-fs")
            threads = self._threads = (os.getpid(), pool)
        return await asyncio.get_running_loop().run_in_executor(threads[1], call, *arguments)

    def _options(self, chosen: dict[str, Any], parents: bool | None = None) -> StoreOptions:
        """What a new file is made with; what was chosen for it is taken out of the keywords."""
        made = {key: chosen.pop(key, value) for key, value in self._made_with.items()}
        made["classes"] = _names(made["classes"])
        return StoreOptions(**made, parents=self.auto_mkdir if parents is None else parents)

    # Names.

    def info(self, path: str, **kwargs: Any) -> Info:
        """What a path leads to: ``name``, ``size``, ``type``, ``mode``, ``mtime``, and for a file ``copies``, ``block``, ``classes``."""
        return self.calls.info(self._strip_protocol(path))

    async def _info(self, path: str, **kwargs: Any) -> Info:
        return await self.run(self.calls.info, self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The names of a directory, with what each leads to unless ``detail`` is false."""
        found = self.calls.ls(self._strip_protocol(path))
        return found if detail else [one["name"] for one in found]

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        return await self.run(lambda: self.ls(path, detail))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory that is not there."""
        self.calls.make_directory(self._strip_protocol(path), create_parents)

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        await self.run(self.calls.make_directory, self._strip_protocol(path), create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those on the way to it."""
        self.calls.make_directories(self._strip_protocol(path), exist_ok)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self.run(self.calls.make_directories, self._strip_protocol(path), exist_ok)

    def rmdir(self, path: str) -> None:
        """Deletes an empty directory."""
        self.calls.remove_directory(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Deletes a file."""
        self.calls.remove_file(self._strip_protocol(path))

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self.run(self.calls.remove_file, self._strip_protocol(path))

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if maxdepth is not None and recursive:
            raise NotImplementedError("rm with maxdepth: list what is to go by find(maxdepth=…), and give rm the list")
        remove = self.calls.remove_tree if recursive else self.calls.remove_file
        for one in await self._expand_path(path):
            await self.run(remove, self._strip_protocol(one))

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Gives files and directories other names: nothing is copied."""
        if isinstance(path1, list) or maxdepth is not None or any(sign in str(path1) for sign in "*?["):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, to = self._strip_protocol(path1), self._strip_protocol(path2)
        if stringify_path(path2).endswith("/") or self.calls.is_directory(to):
            to = posixpath.join(to, posixpath.basename(source))
        self.calls.rename(source, to, self.auto_mkdir)

    async def _mv_file(self, path1: str, path2: str) -> None:
        source, to = self._strip_protocol(path1), self._strip_protocol(path2)
        await self.run(self.calls.rename, source, to, self.auto_mkdir)

    def created(self, path: str) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.info(path)["created"], timezone.utc)

    def modified(self, path: str) -> datetime:
        """When its bytes or names were changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; with ``truncate=False`` one that is there keeps its bytes and gets the time."""
        name = to_bytes(self._strip_protocol(path))
        options = self._options(kwargs)
        if truncate:
            self.calls.native().create(name, options, False).close()
            return
        try:
            self.calls.native().create(name, options, True).close()
        except FileExistsError:
            now = datetime.now(timezone.utc).timestamp()
            self.calls.native().set_attributes(name, modified_ns=int(now * 1e9))

    def chmod(self, path: str, mode: int) -> None:
        """Changes permissions."""
        self.calls.native().set_attributes(to_bytes(self._strip_protocol(path)), mode=mode)

    def symlink(self, target: str, path: str) -> None:
        """Makes a symbolic link at ``path`` that leads to ``target``."""
        self.calls.native().symlink(to_bytes(target), to_bytes(self._strip_protocol(path)))

    def getxattr(self, path: str) -> dict[str, bytes]:
        """Extended attributes, such as ``user.origin``."""
        return self.calls.native().stat(to_bytes(self._strip_protocol(path)), True).attributes

    def setxattr(self, path: str, **attributes: bytes | None) -> None:
        """Sets extended attributes, or with ``None`` deletes them: ``setxattr(path, **{"user.origin": b"lab"})``."""
        name = to_bytes(self._strip_protocol(path))
        for key, value in attributes.items():
            self.calls.native().set_extended(name, key, value)

    def classes(self) -> list[str]:
        """Names of the store's classes, best first."""
        return self.calls.native().classes()

    # Bytes.

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """A slice of a file's bytes."""
        return self.calls.cat(self._strip_protocol(path), start, end)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return await self.run(self.calls.cat, self._strip_protocol(path), start, end)

    async def _cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Slices of files; each file is opened once."""
        if not isinstance(paths, list):
            raise TypeError("paths: a list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends: as many of each")
        names = [self._strip_protocol(path) for path in paths]
        different = list(dict.fromkeys(names))
        native = await self.run(self.calls.native)
        opening = [self.run(native.open, to_bytes(name), False) for name in different]
        opened = dict(zip(different, await asyncio.gather(*opening, return_exceptions=True)))

        async def one(name: str, start: int | None, end: int | None) -> bytes:
            file = opened[name]
            if not isinstance(file, StoreFile):
                raise file
            return await self.run(lambda: file.read(*limits(file.size, start, end)))

        reading = [one(*slices) for slices in zip(names, starts, ends)]
        found = await asyncio.gather(*reading, return_exceptions=True)
        if on_error != "return":
            for failed in found:
                if isinstance(failed, BaseException):
                    raise failed
        return list(found)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Makes a file with these bytes; ``mode``: ``overwrite`` or ``create``."""
        self.calls.pipe(self._strip_protocol(path), value, self._options(kwargs), mode == "create")

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        await self.run(self.calls.pipe, self._strip_protocol(path), value, self._options(kwargs), mode == "create")

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file within the store."""
        self.calls.copy(self._strip_protocol(path1), self._strip_protocol(path2), self._options(kwargs, True))

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        await self.run(lambda: self.cp_file(path1, path2, **kwargs))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Copies a file to this machine, or into a file that is open."""
        to = outfile if outfile is not None else lpath if hasattr(lpath, "write") else os.fspath(lpath)
        self.calls.get(self._strip_protocol(rpath), to, callback.set_size, callback.relative_update)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        await self.run(lambda: self.get_file(rpath, lpath, callback, **kwargs))

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copies a file of this machine to the store."""
        options, path = self._options(kwargs, True), self._strip_protocol(rpath)
        sized, moved = callback.set_size, callback.relative_update
        self.calls.put(os.fspath(lpath), path, options, mode == "create", sized, moved)

    async def _put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        await self.run(lambda: self.put_file(lpath, rpath, callback, mode, **kwargs))

    # Files that are open.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        options = self._options(kwargs)
        if "+" in mode:
            return open_buffered(self.calls, path, mode, options)
        return WeirFile(
            self, path, mode, block_size, autocommit, cache_options=cache_options, options=options, **kwargs
        )

    async def open_async(self, path: str, mode: str = "rb", **kwargs: Any) -> WeirAsyncFile:
        """Opens a file for ``async`` reading (``rb``) or writing (``wb``, ``ab``)."""
        path = self._strip_protocol(path)
        if mode not in ("rb", "wb", "ab"):
            raise ValueError(f"mode {mode!r}: write one of rb, wb, ab")
        options = self._options(kwargs)

        def opened() -> tuple[StoreFile, int]:
            if mode == "rb":
                native = self.calls.native().open(to_bytes(path), False)
            else:
                native = open_to_write(self.calls, path, mode, options)
            return native, native.size

        native, size = await self.run(opened)
        return WeirAsyncFile(self, path, mode, native, size, **kwargs)


#: All file systems of this process.
_all: weakref.WeakValueDictionary[int, WeirFileSystem] = weakref.WeakValueDictionary()


def _forked() -> None:
    for system in list(_all.values()):
        system.forked()


os.register_at_fork(after_in_child=_forked)
