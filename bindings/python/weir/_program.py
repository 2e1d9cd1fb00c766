"""What the program does and the module does not: plans, calibrations and reproductions, by ``weir … --json``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _toml
from ._native import WeirError
from ._results import Table, _table


def program() -> str:
    """The program ``weir``: ``$WEIR_BIN``, the one that the wheel has installed, or the first in ``PATH``."""
    beside = os.path.join(sysconfig.get_path("scripts"), "weir")
    found = os.environ.get("WEIR_BIN") or (beside if os.access(beside, os.X_OK) else shutil.which("weir"))
    if not found:
        raise WeirError("the program weir is not there; install the wheel, or set WEIR_BIN to the program")
    return found


def _json(arguments: Sequence[str], *, is_answer_at_1: bool = False) -> Any:
    """What ``weir … --json`` prints. Where that is an answer too, exit status 1 with output is no error."""
    ended = subprocess.run([program(), *arguments, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode == 0 or (is_answer_at_1 and ended.returncode == 1 and ended.stdout):
        return json.loads(ended.stdout)
    lines = [line.removeprefix("weir: ") for line in ended.stderr.strip().splitlines()]
    raise WeirError("\n".join(lines) or f"weir {' '.join(arguments)} ended with status {ended.returncode}")


def _flags(options: Mapping[str, Any]) -> list[str]:
    """``time="1s", mixes=[100, 70], force=True`` as ``--time=1s --mixes=100,70 --force``."""
    flags = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            flags.append(f"{flag}={','.join(_toml.text(element) for element in value)}")
        else:
            flags.append(f"{flag}={_toml.text(value)}")
    return flags


class Plan:
    """Whether a drive can keep what its tenants were promised, and by which shares."""

    def __init__(self, answer: dict[str, Any]) -> None:
        #: Everything, as ``weir plan --json`` prints it.
        self.answer = answer
        #: Whether every promise is kept.
        self.feasible: bool = answer["feasible"]
        #: Why not; None where it is.
        self.reason: str | None = answer["reason"]
        #: The quantum of each class in bytes (deficit round robin), or its weight (weighted round robin), by class.
        self.shares: dict[str, int] | None = answer.get("quanta") or answer.get("weights")
        #: Every tenant: predicted and simulated figures, and whether its promise is kept.
        self.tenants: list[dict[str, Any]] = answer["tenants"]

    def table(self) -> Table:
        """A row for each tenant."""

        def figures(kind: str, of: Mapping[str, Any]) -> dict[str, Any]:
            latency = of["latency_ns"] or {}
            return {
                f"{kind}_iops": of["iops"],
                f"{kind}_bandwidth_bytes_per_s": of["bandwidth_bytes_per_s"],
                f"{kind}_p99_ns": latency.get("p99"),
            }

        return _table(
            [
                {
                    "tenant": of["name"],
                    "class": of["class"],
                    "weight": of["weight"],
                    **figures("predicted", of["predicted"]),
                    **figures("simulated", of["simulated"]),
                    "sla_met": of["sla_met"],
                }
                for of in self.tenants
            ]
        )

    def __repr__(self) -> str:
        return f"Plan(feasible, {self.shares})" if self.feasible else f"Plan(not feasible: {self.reason})"


def plan(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    add: Sequence[str | os.PathLike[str]] = (),
    full: bool = False,
) -> Plan:
    """Plans a file of ``weir plan``, or a mapping with its keys (device, tenant, …); ``add`` has more files with ``[[tenant]]``.

    ``full`` simulates for as long as it takes. A plan that is not feasible is an answer; a file that is wrong raises
    :class:`WeirError`. Runs the program.
    """
    added = [f"--add={os.fspath(file)}" for file in add] + (["--full"] if full else [])

    def of(file: str | os.PathLike[str]) -> Plan:
        return Plan(_json(["plan", os.fspath(file), *added], is_answer_at_1=True))

    if not isinstance(config, Mapping):
        return of(config)
    tables = {k: [v] if k in ("device", "tenant") and isinstance(v, Mapping) else v for k, v in config.items()}
    with tempfile.TemporaryDirectory(prefix="weir-plan-") as folder:
        file = Path(folder) / "plan.toml"
        file.write_text(_toml.dumps(tables), encoding="utf-8")
        return of(file)


class Calibration:
    """What a drive was measured to do."""

    def __init__(self, answer: dict[str, Any]) -> None:
        #: Everything, as ``weir calibrate --json`` prints it.
        self.answer = answer
        #: A load curve for each size and mix.
        self.points: list[dict[str, Any]] = answer["points"]

    def table(self) -> Table:
        """A row for each load test: size, mix, depth, rate and latencies."""
        return _table(
            [
                {
                    "bs_bytes": point["bs_bytes"],
                    "reads_pct": point["reads_pct"],
                    "qd": test["qd"],
                    "iops": test["iops"],
                    **{f"{name}_ns": value for name, value in test["latency_ns"].items()},
                }
                for point in self.points
                for test in point["tests"]
            ]
        )

    def __repr__(self) -> str:
        return f"Calibration({self.answer['target']!r}, {len(self.points)} sizes and mixes)"


def calibrate(target: str, *, output: str | os.PathLike[str] | None = None, **options: Any) -> Calibration:
    """Measures a target of ``weir bench``, or ``sim:PROFILE?key=value`` in virtual time.

    ``output`` writes the file that ``[[device]]`` and plans take. ``options`` are those of ``weir calibrate``: time, ramp, sizes,
    mixes, depth, slots, jobs, seed, destructive, force … Runs the program.
    """
    return Calibration(_json(["calibrate", target, *_flags({"output": output, **options})]))


def reproduce(
    name: str | None = None, *, out: str | os.PathLike[str] | None = None, live: bool = False, full: bool = False
) -> Any:
    """Makes a figure of a paper again, as ``weir reproduce NAME --json``; without a name, the list of them.

    A row that is missed is in the answer; nothing is raised for it. ``out`` is where NAME.json and NAME.html are written. Runs the program.
    """
    if name is None:
        return _json(["reproduce"])
    with tempfile.TemporaryDirectory(prefix="weir-reproduce-") as folder:
        flags = _flags({"out": os.fspath(out) if out is not None else folder, "live": live, "full": full})
        return _json(["reproduce", name, *flags], is_answer_at_1=True)
