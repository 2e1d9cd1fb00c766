"""How fast fsspec's `cat` of a file is beside the store's own client, in turns: store_cat.py HOST:PORT WEIR [ROUNDS].

WEIR is the program; its `weir fs bench` reads the same file by the client that the package is linked with, opening it each time as `cat`
does. Prints GiB/s of each round, the medians and their ratio.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import fsspec

SIZE = 64 << 20
#: Reads of a round, for each of the two.
READS = 8


def of_fsspec(fs, path):
    """GiB/s of `cat`."""
    fs.cat_file(path)
    begun = time.perf_counter()
    for _ in range(READS):
        assert len(fs.cat_file(path)) == SIZE
    return READS * SIZE / (time.perf_counter() - begun) / 2**30


def of_client(address, weir, path):
    """GiB/s of the client, in a process of its own; connecting is not counted."""
    words = ["readRandomDirect", "-s", str(SIZE), "-k", str(READS), "-w", "1", "--cold", "all", "-f", path]
    said = subprocess.run(
        [weir, "fs", "--store", address, "--json", "bench", *words], capture_output=True, text=True, check=True
    )
    return READS * SIZE / json.loads(said.stdout)["runs"][0]["seconds"] / 2**30


def main(address, weir, rounds):
    fs = fsspec.filesystem("weir", store=address)
    path = "/store_cat.dat"
    fs.pipe_file(path, os.urandom(SIZE))
    pairs = []
    for number in range(rounds):
        # The other one first in every second round.
        if number % 2:
            client = of_client(address, weir, path)
            pairs.append((of_fsspec(fs, path), client))
        else:
            pairs.append((of_fsspec(fs, path), of_client(address, weir, path)))
        print(f"round {number + 1}: cat {pairs[-1][0]:.2f} GiB/s, client {pairs[-1][1]:.2f} GiB/s")
    fs.rm(path)
    cat, client = (statistics.median(column) for column in zip(*pairs))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"median: cat {cat:.2f} GiB/s, client {client:.2f} GiB/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: store_cat.py HOST:PORT WEIR [ROUNDS]")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 5)
