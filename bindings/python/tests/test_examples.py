"""The examples, and that they show what they say."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gc_study(capsys):
    amplification = run("gc_study").main()
    assert set(amplification) == {"greedy", "cost-benefit", "fifo", "spare the worn"}
    assert all(value > 1.5 for value in amplification.values())
    # Hot and cold data in one block: who goes by age moves cold data for nothing.
    assert amplification["fifo"] > amplification["greedy"]
    # What it does beside greedy costs little.
    assert amplification["spare the worn"] == pytest.approx(amplification["greedy"], rel=0.2)
    assert "spare the worn" in capsys.readouterr().out


def test_two_tenants(capsys):
    share = run("two_tenants").main()
    # By deficit round robin 128 KiB of high to 32 KiB of low; by turns 4 KiB to 64 KiB.
    assert share["drr", 16] == pytest.approx(0.8, abs=0.03)
    assert share["rr", 16] < 0.1
    assert "gold" in capsys.readouterr().out


def test_one_drive():
    drive = run("one_drive")
    assert drive.p99_ns > 10_000 and drive.amplification >= 1
    assert len(drive.iops) == 10 and drive.table["job"].tolist() == ["db", "backup"]
    assert drive.percentiles.columns == ["percent", "latency_ns"]


def test_failing_drive(capsys):
    run("failing_drive")
    assert capsys.readouterr().out.startswith("read of 4096 bytes at 32768: ")


def test_every_example_is_tested():
    # store_tables.py needs a store: test_fs_data.py.
    tested = {"failing_drive", "gc_study", "one_drive", "store_tables", "two_tenants"}
    assert {file.stem for file in EXAMPLES.glob("*.py")} == tested
