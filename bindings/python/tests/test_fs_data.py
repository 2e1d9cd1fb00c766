"""Tables that pandas, pyarrow and polars write to a store and read from it."""

import importlib.util
from pathlib import Path

import numpy
import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

ROWS = 50_000


@pytest.fixture
def table():
    """Numbers, text and a column to partition by."""
    numbers = numpy.random.default_rng(3)
    return pyarrow.table(
        {
            "year": [2020 + row % 4 for row in range(ROWS)],
            "value": numbers.random(ROWS),
            "text": [f"row {row}" for row in range(ROWS)],
        }
    )


def test_pandas(store, folder, table):
    frame = table.to_pandas()
    url = f"weir://{store}{folder}/new/frame"
    frame.to_parquet(f"{url}.parquet")
    assert pandas.read_parquet(f"{url}.parquet").equals(frame)
    some = pandas.read_parquet(f"{url}.parquet", columns=["value"], filters=[("year", "==", 2021)])
    assert some["value"].tolist() == frame[frame.year == 2021]["value"].tolist()
    frame.to_csv(f"{url}.csv.gz", index=False, storage_options={"classes": "flash"})
    assert pandas.read_csv(f"{url}.csv.gz")["text"].tolist() == frame["text"].tolist()
    frame.to_parquet(f"{url}-parts", partition_cols=["year"])
    back = pandas.read_parquet(f"{url}-parts").sort_values("text")
    assert back["value"].tolist() == frame.sort_values("text")["value"].tolist()


def test_pyarrow_datasets(fs, folder, table):
    path = f"{folder}/dataset"
    layout = pyarrow.dataset.partitioning(pyarrow.schema([("year", pyarrow.int64())]), flavor="hive")
    options = {"filesystem": fs, "format": "parquet", "partitioning": layout}
    pyarrow.dataset.write_dataset(table, path, max_rows_per_file=5000, max_rows_per_group=5000, **options)
    assert len(fs.glob(f"{path}/year=2021/*.parquet")) == 3
    read = pyarrow.dataset.dataset(path, **options)
    assert read.count_rows() == ROWS
    assert read.to_table(columns=table.column_names).sort_by("text").equals(table.sort_by("text"))
    year = pyarrow.compute.field("year") == 2022
    assert read.to_table(filter=year).num_rows == table.filter(year).num_rows > 0
    pyarrow.dataset.write_dataset(
        table.slice(0, 10), path, existing_data_behavior="delete_matching", **options
    )
    assert pyarrow.dataset.dataset(path, **options).count_rows() == 10


def test_pyarrow_files(fs, folder, table):
    system = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    pyarrow.parquet.write_table(table, f"{folder}/a.parquet", filesystem=system, row_group_size=7000)
    file = pyarrow.parquet.ParquetFile(f"{folder}/a.parquet", filesystem=system, pre_buffer=True)
    assert file.num_row_groups == 8
    assert file.read_row_group(7).equals(table.slice(49_000))
    with system.open_output_stream(f"{folder}/a.arrow") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=9000)
    with system.open_input_file(f"{folder}/a.arrow") as source:
        assert pyarrow.ipc.open_file(source).read_all().equals(table)
    found = system.get_file_info(pyarrow.fs.FileSelector(folder))
    assert [(info.base_name, info.type.name) for info in found] == [("a.arrow", "File"), ("a.parquet", "File")]
    assert all(info.mtime_ns > 0 and info.size > 0 for info in found)
    system.move(f"{folder}/a.arrow", f"{folder}/b.arrow")
    system.copy_file(f"{folder}/b.arrow", f"{folder}/c.arrow")
    system.delete_file(f"{folder}/b.arrow")
    assert fs.ls(folder, detail=False) == [f"{folder}/a.parquet", f"{folder}/c.arrow"]


def test_polars(store, folder, fs, table):
    frame = polars.from_arrow(table)
    with fs.open(f"{folder}/a.parquet", "wb") as file:
        frame.write_parquet(file)
    with fs.open(f"{folder}/a.parquet") as file:
        assert polars.read_parquet(file, columns=["year", "text"]).equals(frame[["year", "text"]])


def test_the_example(store, fs):
    file = Path(__file__).parent.parent / "examples" / "store_tables.py"
    spec = importlib.util.spec_from_file_location("store_tables", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tables(store) == (b"PAR1PAR1", 2500)
    assert not fs.exists("/example")
