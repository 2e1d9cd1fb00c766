"""Weir in Python: NVMe drives, the flash inside them and the tenants that share them, simulated in this process.

>>> import weir
>>> result = weir.sim(device={"capacity": "1GiB", "latency": "80us"}, jobs=["rw=randread,qd=16"], time="10ms")
>>> round(result.total.iops)
200000

``sim`` runs one simulation, ``sweep`` a grid of them; ``Device`` is a drive in this process; ``plan``, ``calibrate`` and ``reproduce`` are those of the program, ``Client`` is a
client for a node's API, ``weir.fs`` the store's file system for fsspec. Results are numbers and columns; a column lends its memory to numpy, Arrow,
pandas and polars, none of which has to be installed. Errors carry the program's words: ``ConfigError`` for a configuration that is
wrong, ``WeirError`` for what could not be done.
"""

from ._native import VERSION as __version__
from ._native import Column, ConfigError, WeirError
from ._client import ApiError, Client
from ._device import Completion, Device, NvmeError, PowerCut, Zone
from ._program import Calibration, Plan, calibrate, plan, reproduce
from ._results import DriveResult, JobResult, Latency, Result, Sweep, Table
from ._sim import Progress, sim, sweep
from . import policy


def __getattr__(name: str) -> object:
    # It needs fsspec, which `import weir` does not.
    if name == "fs":
        import importlib

        return importlib.import_module(".fs", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ApiError",
    "Calibration",
    "Client",
    "Column",
    "Completion",
    "ConfigError",
    "Device",
    "DriveResult",
    "JobResult",
    "Latency",
    "NvmeError",
    "Plan",
    "PowerCut",
    "Progress",
    "Result",
    "Sweep",
    "Table",
    "WeirError",
    "Zone",
    "__version__",
    "calibrate",
    "plan",
    "policy",
    "reproduce",
    "sim",
    "sweep",
]
