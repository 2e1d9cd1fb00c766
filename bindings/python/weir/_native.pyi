from collections.abc import Callable
from typing import Any

VERSION: str

class WeirError(Exception):
    """What could not be done, where and why."""

class ConfigError(ValueError):
    """What is wrong with a configuration, a fault a line."""

    problems: list[tuple[str, int, str, str]]
    """Each fault: its file, line (0 without one), key and what to do."""

class Column:
    """Contiguous numbers that never change, lent through the buffer protocol."""

    format: str
    """The type of a number, as module ``struct`` writes it."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class RunResult:
    """The result of one drive."""

    numbers: str
    """Everything but arrays, as JSON."""
    def series(self, list: str, at: int) -> list[tuple[str, Column]]: ...
    def percentiles(self, list: str, at: int) -> list[tuple[str, Column]]: ...

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
