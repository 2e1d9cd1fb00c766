"""What simulations gave."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._native import Column, RunResult

_ARROW = {"d": "float64", "Q": "uint64", "I": "uint32", "H": "uint16"}


def _import(name: str, package: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"this needs {package}, which is not installed: pip install {package}") from error


def array(column: Column | list[Any]) -> Any:
    """A column as a numpy array that shares its memory, or as a memoryview where numpy is not installed."""
    if not isinstance(column, Column):
        return column
    try:
        import numpy
    except ImportError:
        return memoryview(column)
    return numpy.asarray(column)


class Table(Mapping[str, Any]):
    """Columns of one length under names. ``table["iops"]`` is a numpy array that shares the column's memory (a memoryview
    without numpy)."""

    def __init__(self, columns: Mapping[str, Column | list[Any]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Any:
        try:
            return array(self._columns[name])
        except KeyError:
            raise KeyError(f"there is no column {name!r}; there is {', '.join(self._columns)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns; ``rows`` is how many rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        """How many rows."""
        return next((len(column) for column in self._columns.values()), 0)

    def column(self, name: str) -> Column | list[Any]:
        """The column itself: memory that the buffer protocol lends, or a list where it has other things than numbers."""
        return self._columns[name]

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each column."""
        return {name: list(memoryview(c) if isinstance(c, Column) else c) for name, c in self._columns.items()}

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``; columns of numbers share their memory with it."""
        pa = _import("pyarrow", "pyarrow")

        def of(column: Column | list[Any]) -> Any:
            if not isinstance(column, Column):
                return pa.array(column)
            kind = getattr(pa, _ARROW[column.format])()
            return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])

        return pa.table({name: of(column) for name, column in self._columns.items()})

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``."""
        pandas = _import("pandas", "pandas")
        return pandas.DataFrame({name: array(column) for name, column in self._columns.items()}, copy=False)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``; with pyarrow, columns of numbers share their memory with it."""
        polars = _import("polars", "polars")
        try:
            return polars.from_arrow(self.to_arrow())
        except ImportError:
            return polars.DataFrame(self.to_dict())

    def __repr__(self) -> str:
        return f"Table({self.rows} rows: {', '.join(self._columns)})"


@dataclass(frozen=True)
class Latency:
    """Latencies in nanoseconds. ``mean`` and ``max`` are exact, percentiles within 0.4 %."""

    mean: float
    p50: int
    p99: int
    p999: int
    max: int


class JobResult:
    """What a job, a tenant or all of them achieved."""

    def __init__(self, run: RunResult, kind: str, at: int, numbers: Mapping[str, Any]) -> None:
        self._run, self._kind, self._at = run, kind, at
        #: Its name; ``total`` for all together.
        self.name: str = numbers["name"]
        #: Its class, where it has one: urgent, high, medium or low.
        self.priority_class: str | None = numbers["class"]
        #: Successful requests a second.
        self.iops: float = numbers["iops"]
        #: Their bytes a second.
        self.bandwidth_bytes_per_s: float = numbers["bandwidth_bytes_per_s"]
        #: Their latencies.
        self.latency = Latency(**numbers["latency_ns"])
        #: Requests that failed.
        self.errors: int = numbers["errors"]
        #: Of these, those that read other data than had been written, where data is verified: never in a simulation.
        self.wrong_data: int = numbers["wrong_data"]

    @property
    def series(self) -> Table:
        """A row for each interval: t_s (its end), iops, bandwidth_bytes_per_s, p99_ns. Empty without ``series=``."""
        return Table(dict(self._run.series(self._kind, self._at)))

    @property
    def percentiles(self) -> Table:
        """The distribution of its latencies: percent of the requests, and latency_ns that these took at most."""
        return Table(dict(self._run.percentiles(self._kind, self._at)))

    def __repr__(self) -> str:
        return f"JobResult({self.name!r}: {self.iops:.0f} IOPS, p99 {self.latency.p99 / 1000:.1f} us)"


class _Jobs(Sequence[JobResult]):
    """Results by place or by name."""

    def __init__(self, jobs: list[JobResult]) -> None:
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._jobs[key]
        found = next((job for job in self._jobs if job.name == key), None)
        if found is None:
            raise KeyError(f"there is no {key!r}; there is {', '.join(job.name for job in self._jobs)}")
        return found

    def __repr__(self) -> str:
        return repr(self._jobs)


def _row(name: str, job: JobResult, device: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "drive": name,
        "iops": job.iops,
        "bandwidth_bytes_per_s": job.bandwidth_bytes_per_s,
        "mean_ns": job.latency.mean,
        "p50_ns": job.latency.p50,
        "p99_ns": job.latency.p99,
        "p999_ns": job.latency.p999,
        "max_ns": job.latency.max,
        "errors": job.errors,
        "write_amplification": device.get("write_amplification"),
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table({name: [row.get(name) for row in rows] for name in names})


class _Tabular(ABC):
    """What has a table, in the forms of other packages."""

    @abstractmethod
    def table(self) -> Table:
        """A row for each thing that was measured."""

    def to_arrow(self) -> Any:
        """:meth:`table` as a ``pyarrow.Table``."""
        return self.table().to_arrow()

    def to_pandas(self) -> Any:
        """:meth:`table` as a ``pandas.DataFrame``."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """:meth:`table` as a ``polars.DataFrame``."""
        return self.table().to_polars()


class DriveResult(_Tabular):
    """The result of one drive."""

    def __init__(self, name: str, run: RunResult) -> None:
        self._numbers = json.loads(run.numbers)
        #: The drive's name.
        self.name = name
        #: Every job, in the order of the configuration, by place or by name.
        self.jobs = _Jobs([JobResult(run, "jobs", i, job) for i, job in enumerate(self._numbers["jobs"])])
        #: Every tenant, where jobs share them.
        self.tenants = _Jobs([JobResult(run, "tenants", i, job) for i, job in enumerate(self._numbers["tenants"])])
        #: All jobs together.
        self.total = JobResult(run, "total", 0, self._numbers["total"])
        #: What the drive counted after the ramp, under the names that ``weir sim --json`` has: slots, reads, writes, read_bytes,
        #: write_bytes; of flash write_amplification, gc, erases, wear, utilisation and more.
        self.device: dict[str, Any] = self._numbers["device"]
        #: seed, time_s (virtual), requests (the ramp's included), digest, and power_cuts where there were some.
        self.run: dict[str, Any] = self._numbers["run"]

    def to_dict(self) -> dict[str, Any]:
        """What ``weir sim --json`` prints."""

        def of(numbers: Mapping[str, Any], job: JobResult) -> dict[str, Any]:
            columns = job.series.to_dict()
            return {**numbers, "series": [dict(zip(columns, row)) for row in zip(*columns.values())]}

        lists = {
            kind: [of(n, job) for n, job in zip(self._numbers[kind], jobs)]
            for kind, jobs in (("jobs", self.jobs), ("tenants", self.tenants))
            if kind == "jobs" or len(jobs)
        }
        return {**lists, "total": of(self._numbers["total"], self.total), "device": self.device, "run": self.run}

    def table(self) -> Table:
        """A row for each job."""
        rows = [{"job": job.name, "class": job.priority_class, **_row(self.name, job, {})} for job in self.jobs]
        return _table([{k: v for k, v in row.items() if k not in ("drive", "write_amplification")} for row in rows])

    def __repr__(self) -> str:
        return f"DriveResult({self.name!r}: {self.total.iops:.0f} IOPS, p99 {self.total.latency.p99 / 1000:.1f} us)"


class Result(_Tabular):
    """The result of a simulation. Where it has one drive, what a :class:`DriveResult` has is here as well."""

    def __init__(self, drives: list[DriveResult], settings: Mapping[str, Any] | None = None) -> None:
        #: The drives, in the order of the configuration.
        self.drives = drives
        #: What a sweep has set for this run.
        self.settings: dict[str, Any] = dict(settings or {})

    @property
    def _only(self) -> DriveResult:
        if len(self.drives) != 1:
            names = ", ".join(drive.name for drive in self.drives)
            raise AttributeError(f"{len(self.drives)} drives were simulated; choose one of drives: {names}")
        return self.drives[0]

    @property
    def jobs(self) -> _Jobs:
        """Every job of the only drive, by place or by name."""
        return self._only.jobs

    @property
    def tenants(self) -> _Jobs:
        """Every tenant of the only drive, where jobs share them."""
        return self._only.tenants

    @property
    def total(self) -> JobResult:
        """All jobs of the only drive together."""
        return self._only.total

    @property
    def device(self) -> dict[str, Any]:
        """What the only drive counted."""
        return self._only.device

    @property
    def run(self) -> dict[str, Any]:
        """Seed, virtual time, requests and digest of the only drive."""
        return self._only.run

    def to_dict(self) -> dict[str, Any]:
        """What ``weir sim --json`` prints."""
        if len(self.drives) == 1:
            return self.drives[0].to_dict()
        return {"devices": [{"name": drive.name, **drive.to_dict()} for drive in self.drives]}

    def table(self) -> Table:
        """A row for each job of the only drive."""
        return self._only.table()

    def __repr__(self) -> str:
        return f"Result({', '.join(map(repr, self.drives))})"


class Sweep(_Tabular, Sequence[Result]):
    """The results of a grid of simulations, the last key varying fastest."""

    def __init__(self, runs: list[Result]) -> None:
        self._runs = runs

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, at: Any) -> Any:
        return self._runs[at]

    def table(self) -> Table:
        """A row for each drive of each run: what was set, then the figures of all its jobs together."""
        return _table([{**r.settings, **_row(d.name, d.total, d.device)} for r in self._runs for d in r.drives])

    def __repr__(self) -> str:
        return f"Sweep({len(self)} runs)"
