"""PlantedBug: a bug that is put into the code on purpose, to see whether the checks find it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug."""

    name: str
    where: str
    """The part of the code that has the bug, such as "coordinator"."""
    what: str
    """The changed behaviour, as a sentence."""
    rule: str
    """The broken rule. It begins with its section of docs/kafka/BEHAVIOUR.md, or with its id in
    docs/kafka/ZOOKEEPER_CONSUMER.md."""
    plant: Callable[[ExitStack], None]
    """Patches the code, and enters the patches on a given stack, which later undoes them."""
    space: str = "standard"
    """The space from which seeds draw clusters and faults. Some of these seeds must show the bug.
    """

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in this process, until the block ends."""
        with ExitStack() as stack:
            self.plant(stack)
            yield
