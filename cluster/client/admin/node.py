"""AdminNode: a client that serves nobody, whose host asks what people or the run want to know."""

from collections.abc import Callable

from cluster.host.host import Host
from cluster.runtime import ClusterStatus


class AdminNode:
    """Does nothing by itself: `host` is there to be asked with."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        """Do nothing until asked."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop at once."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Know nothing."""
