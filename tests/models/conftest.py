"""Tests of ``models`` run torch on one thread: tiny networks only lose by sharing, most of all on a busy machine."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread for the session, the former number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
