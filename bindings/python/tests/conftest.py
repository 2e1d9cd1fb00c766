"""What the tests share."""

import os
import shutil

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
