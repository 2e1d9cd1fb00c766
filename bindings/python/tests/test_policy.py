"""Policies of a drive that are Python functions."""

import random

import numpy
import pytest

import weir
from conftest import SMALL

LOAD = {"device": SMALL, "jobs": "rw=randwrite,qd=8", "precondition": "steady", "requests": 4000}


def built_in(name, **keys):
    return weir.sim(**LOAD, set={"device.victim": name, **keys})


def greedy(plane):
    valid = plane.valid
    block = int(valid.argmin())
    return block if valid[block] <= plane.block_units else None


def test_greedy_in_python_is_greedy():
    ours, theirs = weir.sim(**LOAD, victim=greedy), built_in("greedy")
    assert ours.device["gc"]["victims"] > 50
    assert ours.run["digest"] == theirs.run["digest"]
    assert ours.device == theirs.device


def test_fifo_in_python_is_fifo():
    def fifo(plane):
        return min(plane.candidates, key=lambda block: (plane.written_at[block], block))

    assert weir.sim(**LOAD, victim=fifo).run["digest"] == built_in("fifo").run["digest"]


def test_a_policy_decides():
    draw = random.Random(1)
    random_choice = weir.sim(**LOAD, victim=lambda plane: draw.choice(plane.candidates))
    assert random_choice.device["write_amplification"] > built_in("greedy").device["write_amplification"] * 1.2


def test_a_choice_that_may_not_be_made_is_replaced():
    result = weir.sim(**LOAD, victim=lambda plane: len(plane) + 5)
    assert result.run["digest"] == built_in("greedy").run["digest"]
    assert weir.sim(**LOAD, victim=lambda plane: None).run["digest"] == result.run["digest"]


def test_a_plane_is_numpy_arrays_of_one_length():
    seen = []

    def look(plane):
        seen.append(plane)
        return greedy(plane)

    weir.sim(**LOAD, victim=look)
    plane = seen[0]
    assert plane.valid.dtype == numpy.uint16 and plane.erases.dtype == numpy.uint32
    assert plane.written_at.dtype == numpy.uint64 and plane.now > 0
    assert len(plane) == len(plane.valid) == len(plane.erases) == len(plane.written_at)
    # Kept planes stay what they were.
    assert (plane.written_at <= plane.now).all()


def test_what_a_policy_raises_is_the_simulations():
    calls = []

    def broken(plane):
        calls.append(plane)
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError, match="by zero"):
        weir.sim(**LOAD, victim=broken)
    assert len(calls) == 1, "nothing is asked after it"
    with pytest.raises(AttributeError):
        weir.sim(**LOAD, victim=lambda plane: "block 3")


def test_wear_in_python():
    class Least:
        def take(self, free, erases, cold):
            return int(numpy.argmin(erases))

        def rotate(self, plane, target):
            return None

    ours = weir.sim(**LOAD, wear=Least())
    assert ours.run["digest"] == weir.sim(**LOAD, set={"device.wear": "dynamic"}).run["digest"]
    last = weir.sim(**LOAD, wear=lambda free, erases, cold: len(free) - 1)
    assert last.run["digest"] == weir.sim(**LOAD, set={"device.wear": "none"}).run["digest"]
    spread = lambda result: result.device["wear"]["max"] - result.device["wear"]["min"]
    assert spread(ours) <= spread(last)


def test_separation_in_python():
    streams = set()

    def by_place(lpn, hint, count):
        streams.add(count)
        return 1 if lpn < 800 else 0

    keys = {"device.streams": 2, "device.separation": "hint"}
    hot = {**LOAD, "jobs": "rw=randwrite,qd=8,hot=90/10"}
    result = weir.sim(**hot, set=keys, separation=by_place)
    assert streams == {2}
    assert result.run["digest"] != weir.sim(**hot, set=keys).run["digest"]


def test_policies_need_flash():
    with pytest.raises(ValueError, match="the drive has no flash"):
        weir.sim(device={"capacity": "1GiB", "latency": "80us"}, jobs="qd=1", victim=greedy)
    with pytest.raises(TypeError, match="victim: 3 is no function"):
        weir.sim(**LOAD, victim=3)
    with pytest.raises(TypeError, match="neither a function nor an object with take"):
        weir.sim(**LOAD, wear=3)


def test_a_sweep_with_a_policy():
    runs = weir.sweep(**LOAD, over={"seed": [1, 2]}, victim=greedy)
    assert [run.run["digest"] for run in runs] == [built_in("greedy", seed=seed).run["digest"] for seed in (1, 2)]


SHARED = {
    "device": {"capacity": "1GiB", "latency": "80us", "slots": 4},
    "tenants": [{"name": "reader"}, {"name": "writer"}],
    "jobs": ["tenant=reader,rw=randread,qd=32", "tenant=writer,rw=randwrite,qd=32"],
    "time": "200ms",
}


def share(**keys):
    result = weir.sim(**SHARED, **keys)
    return result.jobs["reader"].iops / result.jobs["writer"].iops, result


def test_a_cost_decides_what_tenants_get():
    commands = []

    def dear_writes(command):
        commands.append(command)
        return numpy.int64(3 * command.own) if command.op == "write" else None

    even, own = share()
    assert 0.98 < even < 1.02
    dear, _ = share(cost=dear_writes)
    assert 2.9 < dear < 3.1
    kinds = {(command.tenant, command.op, command.bytes, command.own, command.fua) for command in commands}
    assert kinds == {(0, "read", 4096, 4096, False), (1, "write", 4096, 4096, False)}
    assert max(command.offset for command in commands) > 1 << 29
    # What the drive would charge, by a function: the same run.
    assert share(cost=lambda command: command.own)[1].run["digest"] == own.run["digest"]
    assert share(cost=lambda command: None)[1].run["digest"] == own.run["digest"]
    assert share(cost=lambda command: 1 << 40)[1].run["digest"] == own.run["digest"], "more than a command may cost"
    assert share(cost=lambda command: 0)[1].run["digest"] == own.run["digest"], "4 KiB at the least"


def test_a_cost_that_raises_or_is_no_number_ends_the_simulation():
    def broken(command):
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError, match="by zero"):
        share(cost=broken)
    with pytest.raises(AttributeError):
        share(cost=lambda command: "much")
    with pytest.raises(OverflowError):
        share(cost=lambda command: -5)
    with pytest.raises(TypeError, match="cost: 3 is no function of a command"):
        share(cost=3)
