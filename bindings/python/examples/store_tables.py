"""Tables in a store: pandas and pyarrow write and read them through fsspec.

Give it the address of a metadata service, such as the one that `weir up --store DIR` prints.
"""

import sys

import fsspec
import pandas
import pyarrow
import pyarrow.dataset


def tables(address):
    """What two of the reads find: four bytes at each end of a file, and how many rows a year has."""
    frame = pandas.DataFrame({"year": [2020 + row % 4 for row in range(10_000)], "value": range(10_000)})
    table = pyarrow.Table.from_pandas(frame)
    by_year = pyarrow.dataset.partitioning(pyarrow.schema([("year", pyarrow.int64())]), flavor="hive")
    url = f"weir://{address}/example"
    frame.to_parquet(f"{url}/frame.parquet", storage_options={"classes": ["dram", "flash"]})
    again = pandas.read_parquet(f"{url}/frame.parquet", columns=["value"], filters=[("year", "==", 2021)])

    fs, path = fsspec.url_to_fs(url)
    with fs.open(f"{path}/notes.txt", "w") as file:
        file.write("measured on the new drives\n")
    first, second = fs.cat_ranges([f"{path}/frame.parquet"] * 2, [0, -4], [4, None])

    pyarrow.dataset.write_dataset(table, f"{path}/dataset", filesystem=fs, format="parquet", partitioning=by_year)
    year = pyarrow.dataset.dataset(f"{path}/dataset", filesystem=fs, partitioning=by_year)
    rows = year.to_table(filter=pyarrow.compute.field("year") == 2021).num_rows
    assert rows == len(again)
    fs.rm(path, recursive=True)
    return first + second, rows


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: store_tables.py HOST:PORT")
    print(tables(sys.argv[1]))
