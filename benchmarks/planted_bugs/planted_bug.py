"""A planted bug."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug.

    Shape: `where` is the part of the code with the bug, `what` the changed behaviour. `rule` is the
    broken rule; it begins with a section of docs/kafka/BEHAVIOUR.md or an id of
    docs/kafka/ZOOKEEPER_CONSUMER.md. `plant` enters patches on the given stack. `space` is the
    space whose seeds must show the bug.
    """

    name: str
    where: str
    what: str
    rule: str
    plant: Callable[[ExitStack], None]
    space: str = "standard"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in this process, until the block ends."""
        with ExitStack() as stack:
            self.plant(stack)
            yield
