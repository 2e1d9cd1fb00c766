"""fsspec's own tests for file systems, unmodified, on a store."""

import fsspec
import pytest
from fsspec.tests import abstract


class WeirFixtures(abstract.AbstractFixtures):
    """Where they run: a directory of the store that is each test's own."""

    @pytest.fixture
    def fs(self, store):
        return fsspec.filesystem("weir", store=store)

    @pytest.fixture
    def fs_path(self, folder):
        return folder


class TestCopy(abstract.AbstractCopyTests, WeirFixtures):
    """Within the store."""


class TestGet(abstract.AbstractGetTests, WeirFixtures):
    """From the store to this machine."""


class TestPut(abstract.AbstractPutTests, WeirFixtures):
    """From this machine to the store."""


class TestOpen(abstract.AbstractOpenTests, WeirFixtures):
    """Opening."""


class TestPipe(abstract.AbstractPipeTests, WeirFixtures):
    """Whole files."""
