"""The store through fsspec: names, bytes, files that are open, processes."""

import asyncio
import importlib.metadata
import io
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import fsspec
import fsspec.generic
import pytest
from fsspec.callbacks import Callback

import weir
from weir.fs import WeirFileSystem

#: Around what lies in an inode, a block, and what is moved at once.
SIZES = [0, 1, 1024, 1025, 4096, 65535, 65536, 65537, (4 << 20) - 1, (4 << 20) + 1, 9 << 20]


def some(size, seed=1):
    return random.Random(seed).randbytes(size)


def another(store):
    """A client of its own: it sees what was published."""
    return WeirFileSystem(store=store, skip_instance_cache=True)


def test_it_is_registered_by_the_package():
    points = importlib.metadata.entry_points(group="fsspec.specs", name="weir")
    assert [point.value for point in points] == ["weir.fs:WeirFileSystem"]
    assert fsspec.get_filesystem_class("weir") is WeirFileSystem
    assert weir.fs.WeirFileSystem is WeirFileSystem


def test_the_package_needs_no_fsspec():
    code = (
        "import sys; sys.modules['fsspec'] = None; import weir\n"
        "try: weir.fs\n"
        "except ImportError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'weir[fs]'" in said


def test_one_of_several_addresses_is_enough(store, folder):
    several = f"127.0.0.1:1,{store}"
    with fsspec.open(f"weir://{several}{folder}/several", "wt") as file:
        file.write("found")
    with another(store).open(f"{folder}/several", "rt") as file:
        assert file.read() == "found"
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: "):
        another("127.0.0.1:1,127.0.0.1:2").ls("/")


def test_urls_and_paths(store, fs, folder):
    strip = WeirFileSystem._strip_protocol
    assert strip("weir://h:1/a//b/./c/") == "/a/b/c"
    assert strip("weir://h:1") == strip("weir:///") == strip("") == "/"
    assert strip(["weir://h:1/a", "b"]) == ["/a", "/b"]
    found, path = fsspec.core.url_to_fs(f"weir://{store}{folder}/x")
    assert (found, path) == (fs, f"{folder}/x")
    assert fs.unstrip_protocol(path) == f"weir://{store}{folder}/x"
    with fsspec.open(f"weir://{store}{folder}/sub/x", "wt") as file:
        file.write("é\n")
    with fsspec.open(f"weir://{folder}/sub/x", "rb") as file:
        assert file.read() == "é\n".encode(), "without an address: WEIR_STORE"


@pytest.mark.parametrize("size", SIZES)
def test_bytes_of_every_size_come_back(fs, folder, size):
    expected = some(size)
    fs.pipe_file(f"{folder}/a", expected)
    assert fs.cat_file(f"{folder}/a") == expected
    with fs.open(f"{folder}/b", "wb") as file:
        for at in range(0, size, 1 << 20):
            assert file.write(expected[at : at + (1 << 20)]) == len(expected[at : at + (1 << 20)])
        assert file.tell() == size
    with fs.open(f"{folder}/b", "rb") as file:
        assert file.read() == expected and file.read(1) == b""
    fs.cp_file(f"{folder}/b", f"{folder}/c")
    assert fs.info(f"{folder}/c")["size"] == size
    assert fs.cat([f"{folder}/a", f"{folder}/c"]) == {f"{folder}/a": expected, f"{folder}/c": expected}
    assert fs.ls(folder, detail=False) == [f"{folder}/{name}" for name in "abc"], "and nothing else is left"


def test_a_file_is_replaced_as_a_whole(store, fs, folder):
    old, new = some(3 << 20, 1), some(5 << 20, 2)
    fs.pipe_file(f"{folder}/a", old)
    with another(store).open(f"{folder}/a", cache_type="none") as reader:
        assert reader.read(100) == old[:100]
        fs.pipe_file(f"{folder}/a", bytearray(new))
        assert reader.read() == old[100:], "who has it open reads what was there"
    assert fs.cat_file(f"{folder}/a") == new
    fs.pipe_file(f"{folder}/a", memoryview(b"small"))
    assert fs.cat_file(f"{folder}/a") == b"small"
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{folder}/a", new, mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{folder}/a", b"s", mode="create")


def test_any_slices_are_those_of_an_array(fs, folder):
    array = some(1_000_003)
    fs.pipe({f"{folder}/a": array, f"{folder}/b": b"0123456789"})
    bounds = random.Random(5)
    slices = [(None, None), (0, 0), (-5, None), (-5, -2), (10, 5), (999_999, 2_000_000), (2_000_000, None), (None, -9)]
    slices += [tuple(bounds.choices(range(-1_100_000, 1_100_000), k=2)) for _ in range(60)]
    for start, end in slices:
        assert fs.cat_file(f"{folder}/a", start, end) == array[start:end], (start, end)
    starts, ends = zip(*slices)
    assert fs.cat_ranges([f"{folder}/a"] * len(slices), starts, ends) == [array[start:end] for start, end in slices]
    paths = [f"{folder}/b", f"{folder}/missing", f"{folder}/a"]
    found = fs.cat_ranges(paths, 2, [4, 4, 6])
    assert (found[0], found[2]) == (b"23", array[2:6]) and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 2, 4, on_error="raise")


@pytest.mark.parametrize("cache", ["none", "readahead", "bytes", "blockcache", "first"])
def test_reading_at_any_place(fs, folder, cache):
    expected = some(2_000_000)
    fs.pipe_file(f"{folder}/a", expected)
    places = random.Random(7)
    with fs.open(f"{folder}/a", block_size=70_000, cache_type=cache) as file:
        assert file.seekable() and file.readable() and not file.writable()
        for _ in range(80):
            at, length = places.randrange(2_100_000), places.randrange(200_000)
            assert file.seek(at) == at
            assert file.read(length) == expected[at : at + length]
        file.seek(-10, io.SEEK_END)
        into = bytearray(20)
        assert file.readinto(into) == 10 and into[:10] == expected[-10:]


def test_text_and_lines(fs, folder):
    lines = [f"line {number} ü\n" for number in range(20_000)]
    with fs.open(f"{folder}/a", "w", encoding="utf-8") as file:
        file.writelines(lines)
    with fs.open(f"{folder}/a", "r", encoding="utf-8") as file:
        assert list(file) == lines
    with fs.open(f"{folder}/a") as file:
        assert [line.decode() for line in file] == lines
    assert fs.head(f"{folder}/a", 6) == b"line 0" and fs.tail(f"{folder}/a", 3) == "ü\n".encode()
    with fs.open(f"{folder}/a.gz", "wt", compression="infer") as file:
        file.writelines(lines)
    with fs.open(f"{folder}/a.gz", "rt", compression="infer") as file:
        assert file.readlines() == lines


def test_modes(fs, folder):
    path = f"{folder}/a"
    with fs.open(path, "xb") as file:
        file.write(b"one")
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with fs.open(path, "ab") as file:
        assert file.tell() == 3
        file.write(b" two")
    with fs.open(f"{folder}/new", "ab") as file:
        file.write(b"made")
    assert (fs.cat_file(path), fs.cat_file(f"{folder}/new")) == (b"one two", b"made")
    with fs.open(path, "r+b") as file:
        file.seek(4)
        file.write(b"TWO")
        file.seek(0)
        assert file.read() == b"one TWO"
        file.truncate(5)
    assert fs.cat_file(path) == b"one T"
    with fs.open(path, "w+b") as file:
        file.write(b"x" * 100_000)
        file.seek(99_999)
        assert file.read() == b"x"
    assert fs.size(path) == 100_000
    with fs.open(path, "wb"):
        pass
    assert fs.cat_file(path) == b""


def test_others_see_what_was_flushed(store, fs, folder):
    others = another(store)
    with fs.open(f"{folder}/a", "wb") as file:
        file.write(b"one")
        file.flush()
        assert others.cat_file(f"{folder}/a") == b"one"
        file.write(b" two")
    assert others.cat_file(f"{folder}/a") == b"one two"


def test_names(fs, folder):
    fs.pipe({f"{folder}/d/{name}": name.encode() for name in ["b.txt", "a.csv", "e/c.txt"]})
    fs.mkdir(f"{folder}/d/empty")
    assert fs.ls(f"{folder}/d", detail=False) == [f"{folder}/d/{name}" for name in ["a.csv", "b.txt", "e", "empty"]]
    assert fs.glob(f"{folder}/d/**/*.txt") == [f"{folder}/d/b.txt", f"{folder}/d/e/c.txt"]
    assert fs.find(f"{folder}/d") == [f"{folder}/d/a.csv", f"{folder}/d/b.txt", f"{folder}/d/e/c.txt"]
    assert [(len(dirs), len(files)) for _, dirs, files in fs.walk(f"{folder}/d")] == [(2, 2), (0, 1), (0, 0)]
    assert fs.du(f"{folder}/d") == len("b.txt" + "a.csv" + "e/c.txt")
    assert fs.isdir(f"{folder}/d/empty") and fs.isfile(f"{folder}/d/a.csv") and not fs.exists(f"{folder}/d/x")
    fs.mv(f"{folder}/d/a.csv", f"{folder}/d/empty/")
    fs.mv(f"{folder}/d/b.txt", f"{folder}/new/b")
    fs.mv(f"{folder}/d/e", f"{folder}/d/f", recursive=True)
    expected = {f"{folder}/{name}" for name in ["d/empty/a.csv", "d/f/c.txt", "new/b"]}
    assert set(fs.find(folder)) == expected
    fs.rm(f"{folder}/d/*/*.txt")
    fs.rmdir(f"{folder}/d/f")
    fs.rm([f"{folder}/d", f"{folder}/new"], recursive=True)
    assert fs.ls(folder) == []


def test_what_is_known_of_a_file(fs, folder):
    before = datetime.now(timezone.utc) - timedelta(seconds=5)
    fs.pipe_file(f"{folder}/a", b"x" * 10_000, classes="flash", block=131072)
    found = fs.info(f"{folder}/a")
    assert (found["size"], found["type"], found["classes"], found["block"]) == (10_000, "file", ["flash"], 131072)
    assert fs.ls(folder) == [found], "a list says the same"
    assert fs.classes() == ["dram", "flash"]
    assert before < fs.created(f"{folder}/a") <= fs.modified(f"{folder}/a")
    on_flash = WeirFileSystem(store=fs.calls.store.address, classes=["flash", "dram"], copies=1)
    on_flash.touch(f"{folder}/b")
    assert on_flash.info(f"{folder}/b")["classes"] == ["flash", "dram"]
    time = fs.modified(f"{folder}/a")
    fs.touch(f"{folder}/a", truncate=False)
    assert fs.modified(f"{folder}/a") >= time and fs.size(f"{folder}/a") == 10_000
    fs.touch(f"{folder}/a")
    assert fs.size(f"{folder}/a") == 0
    fs.chmod(f"{folder}/a", 0o600)
    assert fs.info(f"{folder}/a")["mode"] == 0o600
    fs.setxattr(f"{folder}/a", **{"user.origin": b"lab", "user.run": b"7"})
    fs.setxattr(f"{folder}/a", **{"user.run": None})
    assert fs.getxattr(f"{folder}/a") == {"user.origin": b"lab"}


def test_links(fs, folder):
    fs.pipe_file(f"{folder}/d/a", b"abc")
    fs.symlink(f"{folder}/d", f"{folder}/link")
    fs.symlink("nowhere", f"{folder}/broken")
    found = fs.info(f"{folder}/link")
    assert (found["type"], found["islink"], found["destination"]) == ("directory", True, f"{folder}/d")
    assert fs.cat_file(f"{folder}/link/a") == b"abc"
    assert fs.info(f"{folder}/broken")["type"] == "link"
    fs.rm(f"{folder}/link")
    assert fs.exists(f"{folder}/d/a")


class Counted(Callback):
    """What a copy says of itself."""

    def __init__(self):
        super().__init__()
        self.inner = []

    def branched(self, path_1, path_2, **kwargs):
        self.inner.append(Counted())
        return self.inner[-1]


def test_trees_are_put_and_got(fs, folder, tmp_path):
    expected = {"a": some(10), "sub/b": some(9 << 20), "sub/deep/c": b""}
    for name, content in expected.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(content)
    put, got = Counted(), Counted()
    fs.put(f"{tmp_path}/from/", f"{folder}/to/", recursive=True, callback=put)
    fs.get(f"{folder}/to/", f"{tmp_path}/back/", recursive=True, callback=got)
    for name, content in expected.items():
        assert (tmp_path / "back" / name).read_bytes() == content
        assert fs.cat_file(f"{folder}/to/{name}") == content
    sizes = sorted(len(content) for content in expected.values())
    for said in (put, got):
        files = [one for one in said.inner if one.size is not None]
        assert sorted(one.size for one in files) == sizes == sorted(one.value for one in files)
    with open(tmp_path / "open", "wb") as file:
        fs.get_file(f"{folder}/to/a", file)
    assert (tmp_path / "open").read_bytes() == expected["a"]
    with pytest.raises(FileExistsError):
        fs.put_file(tmp_path / "open", f"{folder}/to/a", mode="create")


def test_another_file_system_is_copied_as_a_tree(store, fs, folder, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "sub" / "b").write_bytes(b"two" * 1000)
    fsspec.generic.rsync(f"file://{tmp_path}", f"weir://{store}{folder}/copy")
    assert fs.cat_file(f"{folder}/copy/a") == b"one" and fs.cat_file(f"{folder}/copy/sub/b") == b"two" * 1000


def test_a_transaction_gives_all_names_or_none(store, fs, folder):
    others = another(store)
    with fs.transaction:
        with fs.open(f"{folder}/a", "wb") as file:
            file.write(b"one")
        assert not others.exists(f"{folder}/a")
    assert others.cat_file(f"{folder}/a") == b"one"
    with pytest.raises(ZeroDivisionError):
        with fs.transaction:
            with fs.open(f"{folder}/a", "wb") as file:
                file.write(b"two")
            raise ZeroDivisionError
    assert others.cat_file(f"{folder}/a") == b"one"
    assert fs.ls(folder, detail=False) == [f"{folder}/a"]


def test_async(store, folder):
    async def work():
        fs = WeirFileSystem(store=store, asynchronous=True, skip_instance_cache=True)
        names = [f"{folder}/{number}" for number in range(40)]
        await asyncio.gather(*(fs._pipe_file(name, name.encode() * 1000) for name in names))
        found = await fs._cat([f"{folder}/*"])
        assert found == {name: name.encode() * 1000 for name in names}
        assert await fs._cat_ranges(names[:2], [0, -2], [5, None]) == [folder[:5].encode(), names[1][-2:].encode()]
        file = await fs.open_async(f"{folder}/stream", "wb")
        for _ in range(9):
            await file.write(b"x" * (1 << 20))
        await file.close()
        async with await fs.open_async(f"{folder}/stream", "ab") as file:
            await file.write(b"end")
        async with await fs.open_async(f"{folder}/stream") as file:
            assert file.size == (9 << 20) + 3
            assert await file.read(1 << 20) == b"x" * (1 << 20)
            file.seek(9 << 20)
            assert await file.read() == b"end"
        await fs._rm(names)
        assert await fs._ls(folder, detail=False) == [f"{folder}/stream"]

    asyncio.run(work())


def test_threads_share_a_file_system(fs, folder):
    from concurrent.futures import ThreadPoolExecutor

    array = some(3_000_000)
    fs.pipe_file(f"{folder}/a", array)

    def work(number):
        fs.pipe_file(f"{folder}/t{number}", array[: number * 10_000])
        return fs.cat_file(f"{folder}/a", number, -number) == array[number:-number]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 60)))
    assert [fs.size(f"{folder}/t{number}") for number in (1, 59)] == [10_000, 590_000]


def child(fs, file, folder):
    """What a process that was forked may do, and what not."""
    assert fs.cat_file(f"{folder}/a") == b"abc" and fs.find(folder) == [f"{folder}/a"]
    fs.pipe_file(f"{folder}/of-child", b"child")
    try:
        file.read(1)
    except RuntimeError as error:
        assert "open it again" in str(error)
    else:
        raise AssertionError("a file of the parent was read")


def test_processes(fs, folder):
    fs.pipe_file(f"{folder}/a", b"abc")
    copy = pickle.loads(pickle.dumps(fs))
    assert copy is fs
    with fs.open(f"{folder}/a", cache_type="none") as file:
        again = pickle.loads(pickle.dumps(file))
        assert again.read() == b"abc"
        started = multiprocessing.get_context("fork").Process(target=child, args=(fs, file, folder))
        started.start()
        started.join(60)
        assert started.exitcode == 0
        assert file.read() == b"abc", "the parent's goes on"
    assert fs.cat_file(f"{folder}/of-child") == b"child"
    code = f"import fsspec; print(fsspec.filesystem('weir').cat_file({folder!r} + '/a'))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert said.stdout == "b'abc'\n"
