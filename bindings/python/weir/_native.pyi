from collections.abc import Callable
from typing import Any, final

__all__ = ["VERSION", "Column", "ConfigError", "Drive", "RunResult", "Scenarios", "WeirError"]

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
