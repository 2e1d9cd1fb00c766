"""What the tests share."""

import os
import shutil
import uuid

import fsspec
import pytest


#: A flash drive that is soon full, and collects.
SMALL = {
    "kind": "flash",
    "capacity": "64MiB",
    "over_provisioning": 0.15,
    "channels": 2,
    "ways": 2,
    "planes": 1,
    "pages": 64,
    "page_size": "4KiB",
}


@pytest.fixture(scope="session")
def program():
    """The program weir: $WEIR_BIN, or the one that the wheel has installed."""
    found = os.environ.get("WEIR_BIN") or shutil.which("weir")
    assert found, "there is no weir; set WEIR_BIN to the program that was built"
    return found


@pytest.fixture(scope="session")
def store():
    """The address of a store that is there for the tests, ``HOST:PORT``: ``$WEIR_STORE``."""
    address = os.environ.get("WEIR_STORE")
    assert address, "there is no store; run `weir up --store DIR`, and set WEIR_STORE to the address of its metadata service"
    return address


@pytest.fixture
def fs(store):
    """Its file system."""
    return fsspec.filesystem("weir", store=store)


@pytest.fixture
def folder(fs):
    """A directory of the store that is this test's own."""
    path = f"/tests/{uuid.uuid4().hex}"
    fs.makedirs(path)
    yield path
    fs.rm(path, recursive=True)
