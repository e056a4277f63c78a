"""Fixture `make_lab`: makes labs, which are clusters of scripted brokers for one client."""

from collections.abc import Iterator

import pytest

from tests.support.harness.scripted_broker import ClientLab, LabMaker


@pytest.fixture
def make_lab() -> Iterator[LabMaker]:
    """Return a function that makes labs; the labs end with the test."""
    labs: list[ClientLab] = []

    def make(brokers: int = 2, *, partitions: int = 2) -> ClientLab:
        lab = ClientLab(brokers, partitions=partitions)
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.dispose()
