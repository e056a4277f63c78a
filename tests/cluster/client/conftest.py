"""A lab of scripted brokers for each test, whose coroutines are freed at its end."""

from collections.abc import Iterator

import pytest

from tests.support.harness.scripted_broker import ClientLab, LabMaker


@pytest.fixture
def make_lab() -> Iterator[LabMaker]:
    """Make labs that end with the test."""
    labs: list[ClientLab] = []

    def make(brokers: int = 2, *, partitions: int = 2) -> ClientLab:
        lab = ClientLab(brokers, partitions=partitions)
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.dispose()
