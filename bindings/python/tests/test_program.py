"""What the program does: plans, calibrations, reproductions."""

import pytest

import weir

DRIVE = {"capacity": "8GiB", "latency": "80us", "slots": 64}


def tenants(iops):
    demand = {"rw": "randread", "bs": "4KiB", "qd": 64}
    return [
        {"name": "gold", "class": "high", "demand": demand, "sla": {"iops": iops}},
        {"name": "tin", "class": "low", "demand": {**demand, "bs": "64KiB"}},
    ]


def test_a_plan_that_is_feasible():
    plan = weir.plan({"device": DRIVE, "tenant": tenants(100_000)})
    assert plan.feasible and plan.reason is None and set(plan.shares) == {"high", "medium", "low"}
    table = plan.table().to_dict()
    assert table["tenant"] == ["gold", "tin"] and table["sla_met"] == [True, True]
    assert table["simulated_iops"][0] >= 100_000


def test_a_plan_that_is_not_is_an_answer(tmp_path):
    plan = weir.plan({"device": DRIVE, "tenant": tenants(5_000_000)})
    assert not plan.feasible and plan.reason and plan.answer["unmet"][0]["tenant"] == "gold"
    file = tmp_path / "wrong.toml"
    file.write_text("[[device]]\nlatency = 'soon'\n")
    with pytest.raises(weir.WeirError, match=r"wrong\.toml:2: device"):
        weir.plan(file)


def test_a_calibration_in_virtual_time(tmp_path):
    output = tmp_path / "ram.toml"
    options = {"time": "10ms", "sizes": ["4KiB", "16KiB"], "mixes": [100], "depth": 16}
    calibration = weir.calibrate("sim:ram?latency=80us&slots=4", output=output, **options)
    assert [point["bs_bytes"] for point in calibration.points] == [4096, 16384]
    assert calibration.points[0]["iops"] == pytest.approx(4 / 80e-6, rel=0.01)
    assert output.read_text().startswith("#") or "points" in output.read_text() or output.stat().st_size > 0
    table = calibration.table()
    assert table["qd"][0] == 1 and table["p99_ns"][0] == 80_000
    with pytest.raises(weir.WeirError, match="nowhere"):
        weir.calibrate("sim:nowhere")


def test_reproductions():
    names = weir.reproduce()
    assert "femu-fig4" in str(names)
    figure = weir.reproduce("femu-fig4")
    assert figure["rows"]
    with pytest.raises(weir.WeirError, match="no-such-figure"):
        weir.reproduce("no-such-figure")


def test_without_the_program(monkeypatch):
    monkeypatch.setenv("WEIR_BIN", "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    with pytest.raises(weir.WeirError, match="set WEIR_BIN"):
        weir.reproduce()
