"""A drive in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _toml
from ._native import Drive, WeirError
from ._sim import _tables

_FLUSH, _WRITE, _READ, _WRITE_ZEROES, _DATASET_MANAGEMENT = 0x00, 0x01, 0x02, 0x08, 0x09
_ZONE_SEND, _ZONE_APPEND = 0x79, 0x7D
_ZONE_ACTIONS = {"close": 1, "finish": 2, "open": 3, "reset": 4, "offline": 5}
_FUA = 1 << 30
_DEALLOCATE = 1 << 2
_MOST_BLOCKS = 1 << 16


class NvmeError(WeirError):
    """A command that ended with another status than success."""

    def __init__(self, what: str, status: int, text: str) -> None:
        super().__init__(f"{what}: {text}")
        #: Status code type and status code: ``0x281`` is SCT 2, SC 81h.
        self.status = status


@dataclass(frozen=True)
class Completion:
    """How a command ended."""

    #: Status code type and status code; 0 is success.
    status: int
    #: The status in words.
    text: str
    #: DW0, and DW1 in the upper 32 bits.
    result: int
    #: What it brought.
    data: bytes
    #: Virtual nanoseconds from its submission to its completion.
    latency_ns: int


@dataclass(frozen=True)
class Zone:
    """A zone; offsets and lengths in bytes."""

    start: int
    capacity: int
    write_pointer: int
    #: empty, implicitly opened, explicitly opened, closed, read only, full or offline.
    state: str


@dataclass(frozen=True)
class PowerCut:
    """What a power cut did."""

    #: Units of 4 KiB whose newest writes are gone, and those writes.
    lost_units: int
    lost_writes: int
    #: Pages whose spare area was read to find the map again.
    pages_read: int
    #: Seconds until the drive was up again.
    rebuild_s: float
    #: How often it was powered on, and lost power without being shut down.
    power_cycles: int
    unsafe_shutdowns: int


class Device:
    """A drive of a node, in this process and in virtual time: the controller, its flash, its media and its failures.

    >>> with weir.Device("flash", capacity="64MiB") as drive:
    ...     drive.write(0, b"x" * 4096)
    ...     drive.read(0, 4096)[:1]
    b'x'

    ``device`` and the keywords are the keys of a ``[[device]]``; ``media`` is memory unless they say otherwise. ``faults`` are rules
    of failures, as :meth:`add_fault` takes them. A command is sent, and time passes until it has ended: ``latency_ns`` of the last
    one says how long that took, ``now_ns`` what time it is. Only the thread that has opened it uses it.
    """

    def __init__(
        self, device: str | Mapping[str, Any] | None = None, *, faults: Any = None, **keys: Any
    ) -> None:
        table = {"name": "python", **(_tables("device", device)[0] if device else {}), **keys}
        if not {"kind", "profile", "media"} & table.keys():
            table["media"] = "ram"
        self._drive: Drive | None = Drive.open(_toml.dumps({"device": [table]}), os.getcwd())
        #: Virtual nanoseconds that the last command took.
        self.latency_ns = 0
        for rule in [faults] if isinstance(faults, (str, Mapping)) else faults or []:
            self.add_fault(rule)

    def _open(self) -> Drive:
        if self._drive is None:
            raise ValueError("the drive is closed")
        return self._drive

    @property
    def capacity(self) -> int:
        """Bytes of its namespace."""
        return self._open().capacity

    @property
    def block_size(self) -> int:
        """Bytes of a block, the unit of offsets and lengths."""
        return self._open().block_size

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since it was opened."""
        return self._open().now_ns

    def advance(self, ns: int) -> None:
        """Lets so many nanoseconds pass: the drive works in the background."""
        self._open().advance(ns)

    def command(
        self,
        opcode: int,
        *,
        cdw10: int = 0,
        cdw11: int = 0,
        cdw12: int = 0,
        cdw13: int = 0,
        cdw14: int = 0,
        cdw15: int = 0,
        data: Any = None,
        length: int = 0,
        admin: bool = False,
        nsid: int = 1,
    ) -> Completion:
        """Sends any NVMe command. ``data`` is what it takes along, ``length`` how many bytes it brings. The status is the
        caller's to look at."""
        dwords = [nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15]
        sent = None if data is None else bytes(data)
        ended = Completion(*self._open().command(opcode, dwords, sent, length, admin))
        self.latency_ns = ended.latency_ns
        return ended

    def _blocks(self, what: str, offset: int, length: int) -> tuple[int, int]:
        block = self.block_size
        if offset < 0 or offset % block or length % block or length <= 0:
            raise ValueError(f"{what} of {length} bytes at {offset}: the drive has blocks of {block} bytes")
        if length // block > _MOST_BLOCKS:
            raise ValueError(f"{what} of {length} bytes: a command has at most {_MOST_BLOCKS} blocks of {block} bytes")
        return offset // block, length // block - 1

    def _done(self, what: str, opcode: int, **fields: Any) -> Completion:
        ended = self.command(opcode, **fields)
        if ended.status:
            raise NvmeError(what, ended.status, ended.text)
        return ended

    def read(self, offset: int, length: int) -> bytes:
        """Reads whole blocks; offset and length in bytes."""
        lba, blocks = self._blocks("a read", offset, length)
        what = f"read of {length} bytes at {offset}"
        return self._done(what, _READ, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=blocks, length=length).data

    def write(self, offset: int, data: Any, *, fua: bool = False) -> None:
        """Writes whole blocks. ``fua``: they are durable when it returns."""
        data = bytes(data)
        lba, blocks = self._blocks("a write", offset, len(data))
        cdw12 = blocks | (_FUA if fua else 0)
        what = f"write of {len(data)} bytes at {offset}"
        self._done(what, _WRITE, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=cdw12, data=data)

    def flush(self) -> None:
        """What was completed before is durable afterwards."""
        self._done("flush", _FLUSH)

    def write_zeroes(self, offset: int, length: int) -> None:
        """Writes zeroes without data."""
        lba, blocks = self._blocks("zeroes", offset, length)
        what = f"zeroes of {length} bytes at {offset}"
        self._done(what, _WRITE_ZEROES, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=blocks)

    def trim(self, offset: int, length: int) -> None:
        """The bytes need not be kept (Dataset Management, deallocate)."""
        lba, blocks = self._blocks("a trim", offset, length)
        wanted = bytes(4) + (blocks + 1).to_bytes(4, "little") + lba.to_bytes(8, "little")
        self._done(f"trim of {length} bytes at {offset}", _DATASET_MANAGEMENT, cdw11=_DEALLOCATE, data=wanted)

    @property
    def zones(self) -> list[Zone]:
        """The zones of a zoned drive (``zoned={"zone_size": "1MiB"}``)."""
        zones = self._open().zones()
        if zones is None:
            raise WeirError('the drive has no zones; open it with zoned={"zone_size": "1MiB"}')
        return [Zone(**zone) for zone in json.loads(zones)]

    def append(self, zone: int, data: Any) -> int:
        """Appends blocks to the zone that starts there; returns where they went, in bytes."""
        data = bytes(data)
        lba, blocks = self._blocks("an append", zone, len(data))
        what = f"append of {len(data)} bytes to the zone at {zone}"
        ended = self._done(what, _ZONE_APPEND, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=blocks, data=data)
        return ended.result * self.block_size

    def zone(self, action: str, zone: int) -> None:
        """Opens, closes, finishes, resets the zone that starts there, or takes it offline."""
        if action not in _ZONE_ACTIONS:
            raise ValueError(f"zone {action!r}: there is {', '.join(_ZONE_ACTIONS)}")
        lba = zone // self.block_size
        what = f"{action} of the zone at {zone}"
        self._done(what, _ZONE_SEND, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw13=_ZONE_ACTIONS[action])

    def power_cut(self) -> PowerCut:
        """Cuts the power and brings it back: what only a volatile buffer held is gone. Flash needs ``power_cut = True``."""
        return PowerCut(**json.loads(self._open().power_cut()))

    def add_fault(self, rule: str | Mapping[str, Any]) -> int:
        """Adds a rule of failures from now on: ``"media-error lba=8-15"``, or its keys. Returns its number."""
        if not isinstance(rule, str):
            pairs = {"effect": rule.get("effect", ""), **rule}
            rule = " ".join(f"{key}={_toml.text(value)}" for key, value in pairs.items())
        return self._open().add_fault(rule)

    def remove_fault(self, number: int) -> bool:
        """Removes a rule; whether there was one of that number."""
        return self._open().remove_fault(number)

    @property
    def faults(self) -> dict[int, str]:
        """The rules of failures by number."""
        return dict(self._open().faults())

    @property
    def flash(self) -> dict[str, Any] | None:
        """What its flash did since it was opened, as ``weir sim --json`` has it; None where it has none."""
        figures = self._open().flash()
        return None if figures is None else json.loads(figures)

    def close(self) -> None:
        """Shuts it down; files that it has opened are as a clean stop leaves them."""
        self._drive = None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
