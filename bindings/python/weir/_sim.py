"""Simulations and sweeps."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _toml
from ._native import Scenarios
from ._results import DriveResult, Result, Sweep
from .policy import Policies, policies_of

#: More runs than this are a mistake.
MAX_RUNS = 10_000


@dataclass(frozen=True)
class Progress:
    """How far a simulation, or a sweep, has come."""

    #: From 0 to 1; None where only the end of a trace will end it.
    part: float | None
    #: Virtual seconds so far; of a sweep 0.
    time_s: float
    #: Requests answered so far; of a sweep the runs that are done.
    requests: int


ProgressFunction = Callable[[Progress], object]


def _bar(progress: Progress) -> None:
    part = "" if progress.part is None else f"{progress.part * 100:5.1f} % "
    done = f"{progress.time_s:.3f} s simulated, {progress.requests} requests" if progress.time_s else f"{progress.requests} done"
    end = "\n" if progress.part == 1.0 else ""
    print(f"\r{part}{done}", end=end, file=sys.stderr, flush=True)


def _told(progress: bool | ProgressFunction | None) -> ProgressFunction | None:
    if progress is True:
        return _bar
    return progress or None


def _tables(what: str, given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, (str, Mapping)):
        given = [given]
    return [_of_text(what, table) if isinstance(table, str) else dict(table) for table in given]


def _typed(text: str) -> str | int | float:
    """A number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _of_text(what: str, text: str) -> dict[str, Any]:
    """A job as ``weir bench --job`` has it, or the name of a drive's profile."""
    if what == "device" and "=" not in text:
        return {"kind" if text in ("flash", "ram", "null") else "profile": text}
    pairs = [pair.partition("=") for pair in text.split(",")]
    for key, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{what} {text!r}: {key!r} is not KEY=VALUE; write rw=randread,qd=16")
    return {key.strip(): _typed(value.strip()) for key, _, value in pairs}


@dataclass(frozen=True)
class _Source:
    text: str
    file: str | None
    base: str
    traces: list[list[tuple[str, str]]]

    def read(self, settings: Mapping[str, Any]) -> Scenarios:
        pairs = [(key, _toml.text(value)) for key, value in settings.items()]
        return Scenarios.read(self.text, self.file, self.base, pairs, self.traces)


def _source(config: Any, tables: Mapping[str, Any], traces: Any, keys: Mapping[str, Any]) -> _Source:
    added: dict[str, Any] = {name: _tables(name, given) for name, given in tables.items()}
    added = {name: given for name, given in added.items() if given}
    of_traces = []
    for trace in [] if traces is None else [traces] if isinstance(traces, (str, os.PathLike, Mapping)) else traces:
        pairs = dict(trace) if isinstance(trace, Mapping) else {"trace": os.fspath(trace)}
        if "trace" not in pairs:
            raise ValueError(f"a trace without a file: {pairs}; write {{'trace': 'FILE', 'timing': 'fast'}}")
        pairs["trace"] = os.path.abspath(pairs["trace"])
        of_traces.append([(key, _toml.text(value)) for key, value in pairs.items()])
    if isinstance(config, (str, os.PathLike)):
        if added:
            names = ", ".join(added)
            raise TypeError(f"{names}: the file has them; change keys by set={{'device.slots': 16}}, or give no file")
        path = Path(config)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise OSError(error.errno, f"cannot be read: {error.strerror}; name a TOML file", os.fspath(config)) from None
        return _Source(text, os.fspath(config), os.path.abspath(path.parent), of_traces)
    document = {**keys, **(config or {}), **added}
    return _Source(_toml.dumps(document), None, os.getcwd(), of_traces)


def _run(scenarios: Scenarios, settings: Mapping[str, Any], progress: Any, policies: Policies | None) -> Result:
    drives, names = [], scenarios.drives
    for at, name in enumerate(names):

        def tell(part: float | None, time_s: float, requests: int, at: int = at) -> None:
            whole = None if part is None else (at + min(part, 1.0)) / len(names)
            progress(Progress(whole, time_s, requests))

        drives.append(DriveResult(name, scenarios.run(at, tell if progress else None, policies)))
    return Result(drives, settings)


def sim(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    device: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
    tenants: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    jobs: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
    faults: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    traces: Any = None,
    set: Mapping[str, Any] | None = None,
    progress: bool | ProgressFunction | None = None,
    victim: Any = None,
    wear: Any = None,
    separation: Any = None,
    cost: Any = None,
    **keys: Any,
) -> Result:
    """Simulates drives and those who use them, in virtual time; the same seed gives the same result.

    ``config`` is a file of ``weir sim``, or a mapping with its keys. Without a file, ``device`` is a profile's name or the keys of
    a ``[[device]]``, ``tenants``, ``jobs`` and ``faults`` those of ``[[tenant]]``, ``[[job]]`` and ``[[fault]]`` (a job may be
    text, as ``weir bench --job`` takes it), and other keywords (time, ramp, series, seed, requests, precondition, power_cuts) the
    keys above the first table. docs/guides/simulate.md lists all of them.

    ``traces`` adds jobs that replay files: a path, or a mapping with ``trace`` and other keys of a job. ``set`` changes keys as
    ``--set`` does: ``{"device.slots": 16, "jobs[0].qd": 4}``.

    ``progress`` is called about every 50 ms with a :class:`Progress`, or True prints a line. What it raises ends the simulation,
    and so does Ctrl-C. Other threads run meanwhile.

    ``victim``, ``wear`` and ``separation`` are flash policies, and ``cost`` says what commands cost in arbitration: see
    :mod:`weir.policy`.

    Raises :class:`ConfigError` with every fault of the configuration, :class:`WeirError` for what cannot be simulated, and what a
    policy or ``progress`` raises.
    """
    settings = dict(set or {})
    tables = {"device": device, "tenant": tenants, "job": jobs, "fault": faults}
    if isinstance(config, (str, os.PathLike)):
        settings, keys = {**{k: v for k, v in keys.items() if v is not None}, **settings}, {}
    scenarios = _source(config, tables, traces, keys).read(settings)
    return _run(scenarios, {}, _told(progress), policies_of(victim, wear, separation, cost))


def _values(values: Any) -> list[Any]:
    """The values of a key; none where it is no list."""
    return list(values) if hasattr(values, "__iter__") else []


def sweep(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    over: Mapping[str, Sequence[Any]],
    workers: int | None = None,
    progress: bool | ProgressFunction | None = None,
    device: Any = None,
    tenants: Any = None,
    jobs: Any = None,
    faults: Any = None,
    traces: Any = None,
    set: Mapping[str, Any] | None = None,
    victim: Any = None,
    wear: Any = None,
    separation: Any = None,
    cost: Any = None,
    **keys: Any,
) -> Sweep:
    """Simulates every combination of the values ``over`` keys: ``over={"device.slots": [16, 64], "job.qd": [1, 4, 16]}``.

    All combinations are read and checked before the first one runs. ``workers`` of them run at the same time (as many as there are
    cores; one at a time where policies are Python functions). Results come in the order of the grid, the last key varying fastest, and do not
    depend on ``workers``. ``progress`` is called after each run. The rest is as in :func:`sim`.
    """
    policies = policies_of(victim, wear, separation, cost)
    base = dict(set or {})
    tables = {"device": device, "tenant": tenants, "job": jobs, "fault": faults}
    if isinstance(config, (str, os.PathLike)):
        base, keys = {**{k: v for k, v in keys.items() if v is not None}, **base}, {}
    source = _source(config, tables, traces, keys)
    names = list(over)
    empty = [name for name in names if isinstance(over[name], (str, Mapping)) or not _values(over[name])]
    if empty:
        raise ValueError(f"over {empty[0]!r}: {over[empty[0]]!r} is no list of values; write [16, 64]")
    grid = [dict(zip(names, values)) for values in itertools.product(*(_values(over[name]) for name in names))]
    if len(grid) > MAX_RUNS:
        raise ValueError(f"over: {len(grid)} runs are more than {MAX_RUNS}; give fewer values")
    read = [(settings, source.read({**base, **settings})) for settings in grid]
    workers = 1 if policies else workers or os.cpu_count() or 1
    told, stopped = _told(progress), threading.Event()

    def stop(_: Progress) -> None:
        if stopped.is_set():
            raise RuntimeError("another run of the sweep has failed")

    results: dict[int, Result] = {}
    with ThreadPoolExecutor(workers) as pool:
        pending = {
            pool.submit(_run, scenarios, settings, stop, policies): at for at, (settings, scenarios) in enumerate(read)
        }
        try:
            while pending:
                # A wait without an end would keep Ctrl-C waiting.
                done, _ = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                for future in done:
                    results[pending.pop(future)] = future.result()
                    if told:
                        told(Progress(len(results) / len(read), 0.0, len(results)))
        except BaseException:
            stopped.set()
            for future in pending:
                future.cancel()
            raise
    return Sweep([results[at] for at in range(len(read))])
