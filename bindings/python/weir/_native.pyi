from collections.abc import Callable
from typing import Any, final

__all__ = [
    "VERSION",
    "Column",
    "ConfigError",
    "Drive",
    "RunResult",
    "Scenarios",
    "Store",
    "StoreEntry",
    "StoreFile",
    "StoreOptions",
    "WeirError",
]

VERSION: str

class WeirError(Exception):
    """What could not be done, where and why."""

class ConfigError(ValueError):
    """What is wrong with a configuration, a fault a line."""

    problems: list[tuple[str, int, str, str]]
    """Each fault: its file, line (0 without one), key and what to do."""

@final
class Column:
    """Contiguous numbers that never change, lent through the buffer protocol."""

    format: str
    """The type of a number, as module ``struct`` writes it."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Drive:
    """A drive and its host."""

    now_ns: int
    """Virtual time in nanoseconds since it was opened."""
    capacity: int
    """Bytes of its namespace."""
    block_size: int
    """Bytes of a block."""
    @staticmethod
    def open(text: str, base: str) -> Drive: ...
    def advance(self, ns: int) -> None: ...
    def command(
        self, opcode: int, dwords: list[int], data: bytes | None, length: int, is_admin: bool
    ) -> tuple[int, str, int, bytes, int]: ...
    def power_cut(self) -> str: ...
    def add_fault(self, rule: str) -> int: ...
    def remove_fault(self, number: int) -> bool: ...
    def faults(self) -> list[tuple[int, str]]: ...
    def zones(self) -> str | None: ...
    def flash(self) -> str | None: ...

@final
class RunResult:
    """The result of one drive."""

    numbers: str
    """Everything but arrays, as JSON."""
    def series(self, list: str, at: int) -> list[tuple[str, Column]]: ...
    def percentiles(self, list: str, at: int) -> list[tuple[str, Column]]: ...

@final
class Scenarios:
    """What is simulated: a scenario for each drive."""

    drives: list[str]
    """Their names."""
    @staticmethod
    def read(
        text: str,
        file: str | None,
        base: str,
        settings: list[tuple[str, str]],
        traces: list[list[tuple[str, str]]],
    ) -> Scenarios: ...
    def run(
        self, drive: int, progress: Callable[[float | None, float, int], object] | None, policies: Any
    ) -> RunResult: ...

@final
class Store:
    """A client of a store. Paths are bytes, as the store has them; errors are ``OSError``."""

    address: str
    """The address of its metadata service."""
    def __new__(cls, address: str, *, deadline: float, location: str) -> Store: ...
    def classes(self) -> list[str]: ...
    def stat(self, path: bytes, follow: bool) -> StoreEntry: ...
    def list(self, path: bytes) -> list[StoreEntry]: ...
    def make_directory(self, path: bytes, parents: bool, mode: int) -> None: ...
    def remove(self, path: bytes, recursive: bool) -> None: ...
    def rename(self, source: bytes, to: bytes, replace: bool) -> None: ...
    def symlink(self, target: bytes, path: bytes) -> None: ...
    def set_attributes(self, path: bytes, *, mode: int | None = None, modified_ns: int | None = None) -> None: ...
    def set_extended(self, path: bytes, name: str, value: bytes | None) -> None: ...
    def open(self, path: bytes, write: bool) -> StoreFile: ...
    def create(self, path: bytes, options: StoreOptions, exclusive: bool) -> StoreFile: ...
    def put(self, path: bytes, data: Any, options: StoreOptions, exclusive: bool) -> None: ...
    def get(self, path: bytes, start: int, length: int) -> bytes: ...
    def copy(self, source: bytes, to: StoreFile) -> int: ...

@final
class StoreEntry:
    """What a name leads to."""

    name: bytes
    """Its last name."""
    number: int
    """The number of its inode."""
    kind: str
    """``file``, ``directory``, ``link``, ``multifile`` or ``table``."""
    size: int
    """Bytes of a file."""
    mode: int
    """Permissions."""
    uid: int
    """Its owner."""
    gid: int
    """Its group."""
    created_ns: int
    """Nanoseconds since 1970 when it was made; 0 of a directory that was listed."""
    modified_ns: int
    """Nanoseconds since 1970 when its bytes or names were changed last; 0 of a directory that was listed."""
    copies: int
    """Copies of each block."""
    block: int
    """Bytes of a block."""
    classes: list[str]
    """Names of the classes of its blocks, best first; none: those of the store."""
    target: bytes | None
    """Where a symbolic link leads to."""
    attributes: dict[str, bytes]
    """Extended attributes."""

@final
class StoreFile:
    """An open file; any thread may use it."""

    size: int
    """Bytes that it has, with what was written to it."""
    def read(self, offset: int, length: int) -> bytes: ...
    def read_into(self, offset: int, buffer: Any) -> int: ...
    def write(self, offset: int, data: Any) -> None: ...
    def truncate(self, size: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class StoreOptions:
    """What new files are made with."""

    def __new__(cls, *, classes: list[str], copies: int, block: int, mode: int, parents: bool) -> StoreOptions: ...
