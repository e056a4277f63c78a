"""Fixture `make_lab`: makes labs for tests of clients.

A lab is a cluster of fake brokers, whose answers a test can script, and of the clients under test.
"""

from collections.abc import Iterator

import pytest

from tests.support.harness.scripted_broker import ClientLab, LabMaker


@pytest.fixture
def make_lab() -> Iterator[LabMaker]:
    """Return a function that makes labs; the labs end with the test.

    `brokers` is the number of brokers, `partitions` the number of partitions of the lab's topic.
    """
    labs: list[ClientLab] = []

    def make(brokers: int = 2, *, partitions: int = 2) -> ClientLab:
        lab = ClientLab(brokers, partitions=partitions)
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.dispose()
