"""Policies of a drive as Python functions, for simulations: of its flash, and of what commands cost in arbitration.

>>> def oldest(plane):
...     return min(plane.candidates, key=lambda block: plane.written_at[block])
>>> result = weir.sim(device="flash", jobs=["rw=randwrite"], victim=oldest)

>>> def dear_writes(command):
...     return 4 * command.own if command.op == "write" else None
>>> result = weir.sim(device="flash", jobs=["rw=randread", "rw=randwrite"], cost=dear_writes)

The engine keeps its promises whatever a function answers: a choice that may not be made is replaced by the greedy one, free blocks
do not run out and no data is lost. A function that raises ends the simulation, and its exception is the simulation's. For runs that
repeat from their seed, draw from a ``random.Random`` of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ._native import Column
from ._results import array

__all__ = ["Command", "Plane", "SeparationPolicy", "WearPolicy"]


class Plane:
    """One plane of the flash; the same index in every array is the same block."""

    __slots__ = ("_erases", "_valid", "_written_at", "block_units", "now")

    def __init__(self, valid: Column, erases: Column, written_at: Column, now: int, block_units: int) -> None:
        self._valid, self._erases, self._written_at = valid, erases, written_at
        #: Programs of the whole drive so far.
        self.now = now
        #: Units of 4 KiB in a block.
        self.block_units = block_units

    @property
    def valid(self) -> Any:
        """Valid units of each block, uint16. A block that may not be chosen (free, being written, bad) shows more than
        ``block_units``."""
        return array(self._valid)

    @property
    def erases(self) -> Any:
        """Erases of each block, uint32."""
        return array(self._erases)

    @property
    def written_at(self) -> Any:
        """When each block was last programmed, in programs of the whole drive, uint64."""
        return array(self._written_at)

    @property
    def candidates(self) -> list[int]:
        """The blocks that may be chosen."""
        return [block for block, valid in enumerate(memoryview(self._valid)) if valid <= self.block_units]

    def __len__(self) -> int:
        """How many blocks."""
        return len(self._valid)


class WearPolicy(Protocol):
    """What ``wear=`` takes; a plain function is its ``take``."""

    def take(self, free: Any, erases: Any, cold: bool) -> int:
        """Which of the free blocks to write next, by its place in the list. ``free`` has their numbers, ``erases`` their wear;
        ``cold`` data is what moves for wear."""

    def rotate(self, plane: Plane, target: int) -> int | None:
        """Asked after an erase: a block whose contents should move to the free block that ``take`` has for cold data, which was
        erased ``target`` times. May be left out."""


class SeparationPolicy(Protocol):
    """What ``separation=`` takes; a plain function is its ``stream``. The drive needs ``streams`` of 2 or more."""

    def stream(self, lpn: int, hint: int, streams: int) -> int:
        """The stream for a write of a unit, below ``streams``. ``hint`` is what the host said, 0 for nothing."""

    def moved(self, lpn: int, stream: int, streams: int) -> int:
        """The stream for a unit that collection moves. May be left out."""


class Command(NamedTuple):
    """A command that its tenant is charged for; what ``cost=`` is given."""

    #: The tenant's place, from 0: the tenants in their order, or the jobs where there are none.
    tenant: int
    #: ``read``, ``write``, ``compare``, ``verify``, ``write-zeroes``, ``deallocate``, ``flush`` or ``copy``.
    op: str
    #: Where it begins, in bytes of the drive.
    offset: int
    #: Bytes; 0 of a flush and of a deallocation.
    bytes: int
    #: Durable when complete.
    fua: bool
    #: What the drive's own ``cost`` charges, in bytes.
    own: int


@dataclass(frozen=True)
class Policies:
    """What the native module asks."""

    victim: Callable[..., Any] | None = None
    take: Callable[..., Any] | None = None
    rotate: Callable[..., Any] | None = None
    stream: Callable[..., Any] | None = None
    moved: Callable[..., Any] | None = None
    cost: Callable[..., Any] | None = None


def _whole(answer: Any) -> int | None:
    # numpy's integers are no int: they say themselves what they are as one.
    return None if answer is None else answer.__index__()


def _method(what: str, policy: Any, first: str, then: str) -> tuple[Any, Any]:
    if policy is None:
        return None, None
    if hasattr(policy, first):
        return getattr(policy, first), getattr(policy, then, None)
    if callable(policy):
        return policy, None
    raise TypeError(f"{what}: {policy!r} is neither a function nor an object with {first}()")


def policies_of(victim: Any, wear: Any, separation: Any, cost: Any) -> Policies | None:
    """What is asked of functions; None where there are none."""
    if victim is None and wear is None and separation is None and cost is None:
        return None
    if victim is not None and not callable(victim):
        raise TypeError(f"victim: {victim!r} is no function of a plane")
    if cost is not None and not callable(cost):
        raise TypeError(f"cost: {cost!r} is no function of a command")
    take, rotate = _method("wear", wear, "take", "rotate")
    stream, moved = _method("separation", separation, "stream", "moved")

    def pick(*plane: Any) -> int | None:
        return _whole(victim(Plane(*plane)))

    def chosen(free: Column, erases: Column, cold: bool) -> int | None:
        return _whole(take(array(free), array(erases), cold))

    def turned(*plane: Any) -> int | None:
        return _whole(rotate(Plane(*plane[:-1]), plane[-1]))

    def charged(*command: Any) -> int | None:
        return _whole(cost(Command(*command)))

    return Policies(
        victim=pick if victim is not None else None,
        take=chosen if take is not None else None,
        rotate=turned if rotate is not None else None,
        stream=stream,
        moved=moved,
        cost=charged if cost is not None else None,
    )
