"""What goes wrong with the store's file system: Python's own exceptions, their numbers, and the reason."""

import errno

import pytest

from weir.fs import WeirFileSystem


def raised(kind, number, *words):
    """A context in which that is raised."""
    return _Raised(kind, number, words)


class _Raised:
    def __init__(self, kind, number, words):
        self.kind, self.number, self.words = kind, number, words
        self.context = pytest.raises(kind)

    def __enter__(self):
        self.info = self.context.__enter__()
        return self.info

    def __exit__(self, *args):
        suppressed = self.context.__exit__(*args)
        error = self.info.value
        assert type(error) is self.kind, f"{type(error)}: {error}"
        assert error.errno == self.number, f"{errno.errorcode.get(error.errno)}: {error}"
        assert all(word in str(error) for word in self.words), str(error)
        return suppressed


def test_no_service_at_the_address(monkeypatch):
    nowhere = WeirFileSystem(store="127.0.0.1:1", deadline=2)
    for call in (lambda: nowhere.ls("/"), lambda: nowhere.cat("/a"), lambda: nowhere.open("/a", "wb")):
        with raised(ConnectionError, errno.ENOTCONN, "the metadata service at 127.0.0.1:1 cannot be reached", "refused"):
            call()
    with raised(ConnectionError, errno.ENOTCONN, "/nowhere/meta.sock"):
        WeirFileSystem(store="unix:/nowhere/meta.sock").info("/")
    with raised(OSError, errno.EINVAL, '"data" is no address', "HOST:PORT"):
        WeirFileSystem(store="data").info("/")
    with pytest.raises(ValueError, match="deadline"):
        WeirFileSystem(store="127.0.0.1:1", deadline=0).info("/")
    monkeypatch.delenv("WEIR_STORE")
    with pytest.raises(ValueError, match="no store is named.*WEIR_STORE"):
        WeirFileSystem(skip_instance_cache=True).info("/")


def test_names_that_are_not_there_or_something_else(fs, folder):
    missing = f"{folder}/missing"
    calls = [fs.info, fs.ls, fs.cat_file, fs.open, fs.rm, fs.rm_file, fs.rmdir, fs.created]
    for call in [*calls, lambda path: fs.mv(path, f"{folder}/x"), lambda path: fs.open(path, "r+b")]:
        with pytest.raises(FileNotFoundError) as info:
            call(missing)
        assert missing in str(info.value)
    fs.pipe_file(f"{folder}/d/file", b"x")
    for call in [fs.cat_file, fs.open, fs.rm_file, fs.rm, lambda path: fs.open(path, "ab")]:
        with raised(IsADirectoryError, errno.EISDIR, f"{folder}/d"):
            call(f"{folder}/d")
    with pytest.raises(IsADirectoryError):
        fs.pipe_file(f"{folder}/d", b"x" * 5000)
    with raised(FileExistsError, errno.EEXIST, f"{folder}/d"):
        fs.mkdir(f"{folder}/d")
    with raised(FileExistsError, errno.EEXIST):
        fs.makedirs(f"{folder}/d/file", exist_ok=True)
    with raised(OSError, errno.ENOTEMPTY, f"{folder}/d"):
        fs.rmdir(f"{folder}/d")
    with raised(NotADirectoryError, errno.ENOTDIR):
        fs.rmdir(f"{folder}/d/file")
    for call in [fs.cat_file, fs.touch, fs.mkdir]:
        with raised(NotADirectoryError, errno.ENOTDIR):
            call(f"{folder}/d/file/below")
    with raised(FileNotFoundError, errno.ENOENT):
        fs.mkdir(f"{folder}/x/y", create_parents=False)
    strict = WeirFileSystem(store=fs.calls.store.address, auto_mkdir=False)
    for call in [strict.touch, lambda path: strict.pipe_file(path, b"x" * 5000), lambda path: strict.open(path, "wb")]:
        with raised(FileNotFoundError, errno.ENOENT, f"{folder}/x"):
            call(f"{folder}/x/y")
    with raised(OSError, errno.EINVAL):
        fs.mv(f"{folder}/d", f"{folder}/d/e/f")
    with raised(OSError, errno.EINVAL, "onto itself"):
        fs.cp_file(f"{folder}/d/file", f"{folder}/d/file")
    assert fs.cat_file(f"{folder}/d/file") == b"x"


def test_a_file_that_is_deleted_while_it_is_read(fs, folder):
    expected = bytes(range(256)) * 40_000
    fs.pipe_file(f"{folder}/a", expected)
    with fs.open(f"{folder}/a", cache_type="none") as file:
        assert file.read(1000) == expected[:1000]
        fs.rm(f"{folder}/a")
        assert file.read() == expected[1000:], "it is read to its end"
    with raised(FileNotFoundError, errno.ENOENT, f"{folder}/a"):
        fs.open(f"{folder}/a")


def test_two_writers(store, fs, folder):
    other = WeirFileSystem(store=store, skip_instance_cache=True)
    with fs.open(f"{folder}/a", "wb") as file:
        file.write(b"mine")
        for second in (fs, other):
            for mode in ("wb", "ab", "r+b"):
                with raised(OSError, errno.EBUSY, "another client has the file open for writing", f"{folder}/a"):
                    second.open(f"{folder}/a", mode)
    with other.open(f"{folder}/a", "ab") as file:
        file.write(b" theirs")
    assert fs.cat_file(f"{folder}/a") == b"mine theirs"


def test_a_full_class(fs, folder):
    piece = b"x" * (8 << 20)
    with pytest.raises(OSError) as info:
        with fs.open(f"{folder}/big", "wb", classes="dram") as file:
            for _ in range(40):
                file.write(piece)
    assert info.value.errno == errno.ENOSPC and f"{folder}/big" in str(info.value)
    with raised(OSError, errno.ENOSPC):
        fs.pipe_file(f"{folder}/whole", piece * 20, classes="dram")
    assert not fs.exists(f"{folder}/whole"), "nothing is left of it"
    fs.rm(f"{folder}/big")
    fs.pipe_file(f"{folder}/elsewhere", piece, classes=["dram", "flash"])
    assert fs.cat_file(f"{folder}/elsewhere") == piece


def test_more_copies_than_nodes(fs, folder):
    with raised(OSError, errno.ENOSPC, "there is room for 1 of a block's copies, and none on a further node"):
        fs.pipe_file(f"{folder}/two", b"x" * (1 << 20), copies=2)
    assert not fs.exists(f"{folder}/two"), "nothing is left of it"


def test_names_that_the_store_does_not_take(fs, folder):
    for name, number in [("a\0b", errno.EINVAL), ("../x", errno.EINVAL), ("n" * 256, errno.ENAMETOOLONG)]:
        with raised(OSError, number):
            fs.pipe_file(f"{folder}/{name}", b"x")
    with raised(OSError, errno.EINVAL, "UTF-8"):
        fs.info(f"{folder}/\ud800")
    assert not fs.ls(folder)


def test_names_that_are_no_utf_8(fs, folder):
    path = f"{folder}/\udcff\udcfe name"
    fs.pipe_file(path, b"bytes" * 1000)
    assert fs.ls(folder, detail=False) == [path] and fs.cat_file(path) == b"bytes" * 1000
    assert fs.calls.native().list(folder.encode())[0].name == b"\xff\xfe name"
    long = f"{folder}/{'é' * 127}"
    fs.pipe_file(long, b"long" * 1000)
    assert fs.cat_file(long) == b"long" * 1000, "255 bytes"


def test_options_that_cannot_be(fs, folder):
    with raised(OSError, errno.EINVAL, 'the store has no class "tape"; it has dram, flash'):
        fs.open(f"{folder}/a", "wb", classes="tape")
    with raised(OSError, errno.EINVAL):
        fs.open(f"{folder}/a", "wb", block=1000)
    with raised(OSError, errno.EINVAL):
        fs.open(f"{folder}/a", "wb", copies=9)
    with pytest.raises(ValueError, match="mode 'qb'"):
        fs.open(f"{folder}/a", "qb")
    assert not fs.exists(f"{folder}/a")


def test_files_that_are_closed_or_open_otherwise(fs, folder):
    with fs.open(f"{folder}/a", "wb") as file:
        file.write(b"x")
        with pytest.raises(ValueError):
            file.read(1)
    for call in (lambda: file.write(b"x"), file.flush):
        with pytest.raises(ValueError, match="closed"):
            call()
    file.close()
    with fs.open(f"{folder}/a") as file:
        with pytest.raises(OSError):
            file.write(b"x")
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
