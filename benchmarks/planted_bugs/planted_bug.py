"""PlantedBug: a bug that is put into the code on purpose, to see whether the checks find it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug.

    - `where`: the part of the code that has the bug.
    - `what`: the changed behaviour.
    - `rule`: the broken rule. It begins with its section of docs/kafka/BEHAVIOUR.md, or with its id
      in docs/kafka/ZOOKEEPER_CONSUMER.md.
    - `plant`: a function that enters patches of the code on a given stack.
    - `space`: name of the file from which seeds draw schedules; some of these must show the bug.
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
