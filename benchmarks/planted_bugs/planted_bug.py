"""A planted bug."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug.

    Shape: `plant` enters patches on the given stack; `rule` begins with a section of
    docs/kafka/BEHAVIOUR.md, or with a rule of docs/kafka/ZOOKEEPER_CONSUMER.md. `space` is the
    searched space.
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
