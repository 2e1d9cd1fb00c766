"""Simulations, sweeps and their results."""

import json
import subprocess
import threading
import time

import numpy
import pytest

import weir
from conftest import SMALL

EXPERIMENT = """\
time = "20ms"
series = "5ms"
[[device]]
capacity = "1GiB"
latency = "80us"
[[tenant]]
name = "gold"
class = "high"
[[tenant]]
name = "tin"
class = "low"
[[job]]
tenant = "gold"
qd = 128
[[job]]
tenant = "tin"
rw = "write"
bs = "64KiB"
qd = 128
"""
# Takes longer than any test waits.
LONG = {"device": SMALL, "jobs": "rw=randwrite,qd=32", "time": "1000s"}


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "exp.toml"
    file.write_text(EXPERIMENT)
    return file


def test_a_drive_of_fixed_latency_is_exact():
    result = weir.sim(device={"capacity": "1GiB", "latency": "80us"}, jobs=["rw=randread,qd=16"], time="10ms")
    assert result.total.iops == pytest.approx(16 / 80e-6, rel=1e-3)
    assert result.total.latency.max == 80_000
    assert result.jobs[0].errors == 0 and result.run["time_s"] == 0.01


def test_a_file_gives_what_the_program_prints(experiment, program):
    printed = subprocess.run([program, "sim", experiment, "--json"], check=True, capture_output=True, text=True).stdout
    assert weir.sim(experiment).to_dict() == json.loads(printed)


def test_flash_and_settings_give_what_the_program_prints(tmp_path, program):
    file = tmp_path / "ssd.toml"
    device = "".join(f"{key} = {json.dumps(value)}\n" for key, value in SMALL.items())
    file.write_text(f'time = "50ms"\n[[device]]\n{device}[[job]]\nrw = "randwrite"\n')
    settings = {"device.gc": "plane", "precondition": "steady", "seed": 7}
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    printed = subprocess.run([program, "sim", file, "--json", *flags], check=True, capture_output=True, text=True).stdout
    result = weir.sim(file, set=settings)
    assert {"set": {key: str(value) for key, value in settings.items()}, **result.to_dict()} == json.loads(printed)
    assert result.device["gc"]["victims"] > 0 and result.device["write_amplification"] > 1


def test_several_drives_and_power_cuts():
    drives = [{**SMALL, "name": name, "power_cut": True} for name in "ab"]
    jobs = [{"device": name, "rw": "randwrite", "qd": 4} for name in "ab"]
    result = weir.sim(device=drives, jobs=jobs, time="20ms", power_cuts=["5ms", "10ms"])
    assert [drive.name for drive in result.drives] == ["a", "b"]
    assert [cut["at_s"] for cut in result.drives[0].run["power_cuts"]] == [0.005, 0.01]
    with pytest.raises(AttributeError, match="2 drives were simulated; choose one of drives: a, b"):
        result.total


def test_jobs_by_name_and_tenants(experiment):
    result = weir.sim(experiment)
    assert result.jobs["gold"].iops > result.jobs["tin"].iops
    assert result.jobs["gold"].priority_class == "high"
    with pytest.raises(KeyError, match="there is gold, tin"):
        result.jobs["silver"]


def test_columns_lend_their_memory(experiment):
    series = weir.sim(experiment).total.series
    column = series.column("iops")
    first, second = numpy.asarray(column), series["iops"]
    assert first.dtype == numpy.float64 and first.shape == (4,) and (first > 0).all()
    assert first.ctypes.data == second.ctypes.data == numpy.frombuffer(column).ctypes.data
    assert series["p99_ns"].dtype == numpy.uint64
    assert memoryview(column).readonly and memoryview(column).format == "d"
    with pytest.raises(ValueError):
        second[0] = 1.0
    # The array keeps the memory after everything else is gone.
    kept = weir.sim(experiment).total.series["t_s"]
    assert list(kept) == [0.005, 0.01, 0.015, 0.02]


def test_frames_share_the_columns_memory(experiment):
    pyarrow, polars, pandas = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    series = weir.sim(experiment).total.series
    address = numpy.asarray(series.column("iops")).ctypes.data
    arrow = series.to_arrow()
    assert isinstance(arrow, pyarrow.Table) and arrow.column("iops").chunk(0).buffers()[1].address == address
    assert series.to_polars()["iops"].to_numpy().ctypes.data == address
    frame = series.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == list(series)
    assert frame["p99_ns"].tolist() == series.to_dict()["p99_ns"]
    table = weir.sim(experiment).to_polars()
    assert isinstance(table, polars.DataFrame) and table["job"].to_list() == ["gold", "tin"]


def test_percentiles_ascend():
    points = weir.sim(device="flash", jobs="rw=randrw:50,qd=8", time="5ms", set={"device.capacity": "256MiB"}).total.percentiles
    assert (numpy.diff(points["percent"]) > 0).all() and (numpy.diff(points["latency_ns"].astype(float)) >= 0).all()


def test_what_is_wrong_with_a_file_names_its_line(experiment):
    experiment.write_text(EXPERIMENT.replace('"80us"', '"80 parsecs"').replace("qd = 128", "qd = 70000", 1))
    with pytest.raises(weir.ConfigError) as raised:
        weir.sim(experiment)
    problems = raised.value.problems
    assert [(line, key) for _, line, key, _ in problems] == [(5, "device#1.latency")] or problems[0][1] == 5
    assert str(raised.value).startswith(f"{experiment}:5: ")


def test_what_is_wrong_with_keywords_names_the_key():
    with pytest.raises(weir.ConfigError, match=r"^job#1\.rw: ") as raised:
        weir.sim(device={"capacity": "1GiB", "latency": "80us"}, jobs={"rw": "sideways"})
    assert raised.value.problems[0][:2] == ("", 0)
    with pytest.raises(weir.ConfigError, match="depht"):
        weir.sim(device={"capacity": "1GiB", "latency": "80us", "depht": 4}, jobs="qd=1")
    with pytest.raises(ValueError, match="set device..x=1: "):
        weir.sim(device={"capacity": "1GiB", "latency": "80us"}, jobs="qd=1", set={"device..x": 1})
    with pytest.raises(ValueError, match="'qd' is not KEY=VALUE"):
        weir.sim(device="flash", jobs="rw=read,qd")
    with pytest.raises(TypeError, match="no value of a configuration"):
        weir.sim(device={"capacity": object()}, jobs="qd=1")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="name a TOML file"):
        weir.sim(tmp_path / "nowhere.toml")


def test_traces(tmp_path):
    trace = tmp_path / "t.csv"
    rows = [f"{128166372003061629 + i * 1000},usr,0,{'Read' if i % 3 else 'Write'},{i * 4096},4096,100" for i in range(300)]
    trace.write_text("\n".join(rows) + "\n")
    result = weir.sim(device={"capacity": "1GiB", "latency": "80us"}, traces={"trace": trace, "timing": "fast", "qd": 4})
    assert result.run["requests"] == 300 and result.device["writes"] == 100
    assert weir.sim(device={"capacity": "1GiB", "latency": "80us"}, traces=trace).run["requests"] == 300
    trace.write_text("\n".join([*rows, "nonsense"]) + "\n")
    with pytest.raises(weir.WeirError, match=r"t\.csv:301: "):
        weir.sim(device={"capacity": "1GiB", "latency": "80us"}, traces=trace)


def test_progress_is_told_and_may_end_the_run():
    told = []

    def watch(progress):
        told.append(progress)
        if len(told) == 3:
            raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        weir.sim(**LONG, progress=watch)
    assert len(told) == 3
    assert 0 < told[0].part < told[2].part < 1 and told[0].requests < told[2].requests


def test_a_signal_ends_the_run():
    import signal

    # Whoever started the tests in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def later():
        time.sleep(0.3)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=later)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        weir.sim(**LONG)
    thread.join()
    signal.signal(signal.SIGINT, before)


def test_other_threads_run_meanwhile():
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    seen = []
    thread = threading.Thread(target=count)
    thread.start()

    def watch(_):
        seen.append(counted[0])
        if len(seen) == 3:
            raise StopIteration

    with pytest.raises(StopIteration):
        weir.sim(**LONG, progress=watch)
    done.set()
    thread.join()
    # Between two calls of the watch the other thread has counted: the GIL was free.
    assert seen[0] < seen[2]


def test_a_sweep_has_the_order_of_its_grid():
    told = []
    over = {"device.slots": [16, 64], "job.qd": [1, 4, 16]}
    runs = [
        weir.sweep(
            device={"capacity": "1GiB", "latency": "80us"}, jobs="rw=randread", time="2ms", over=over, workers=n, progress=told.append
        )
        for n in (1, 4)
    ]
    assert [run.settings for run in runs[0]] == [{"device.slots": s, "job.qd": q} for s in (16, 64) for q in (1, 4, 16)]
    tables = [run.table().to_dict() for run in runs]
    assert tables[0] == tables[1]
    assert tables[0]["iops"][:3] == pytest.approx([12_500, 50_000, 200_000], rel=0.01)
    assert [p.part for p in told[:6]] == pytest.approx([i / 6 for i in range(1, 7)])
    assert runs[0].to_polars().shape == (6, 12)


def test_a_sweep_is_read_before_it_runs():
    ran = []
    with pytest.raises(weir.ConfigError, match="qd"):
        weir.sweep(device="flash", jobs="rw=randread", over={"job.qd": [1, 0]}, progress=ran.append)
    assert ran == []
    with pytest.raises(ValueError, match="no list of values"):
        weir.sweep(device="flash", jobs="rw=randread", over={"job.qd": 4})


def test_the_same_seed_gives_the_same_result():
    digests = {weir.sim(device=SMALL, jobs="rw=randrw:70", time="5ms", seed=s).run["digest"] for s in (1, 1, 2)}
    assert len(digests) == 2
