"""PlantedBug: a bug that is put into the code on purpose, to see whether the checks find it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug.

    - `where`: the part of the code with the bug.
    - `what`: the changed behaviour.
    - `rule`: the broken rule, after its section of docs/kafka/BEHAVIOUR.md or its id in
      docs/kafka/ZOOKEEPER_CONSUMER.md.
    - `plant`: enters patches of the code on the given stack.
    - `space`: the file of drawn schedules some of which must show the bug.
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
