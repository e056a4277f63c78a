"""A cluster's own end of the control channel: its server, and its claim of a name."""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chaos.standing.control import ControlServer
from chaos.standing.mailbox import Mailbox
from chaos.standing.messages import Answer, DownAnswer, OrderRefusal, RefusalKind, Request
from chaos.standing.registry import DeadCluster, StandingCluster, claim, release, update

_TOKEN_BYTES = 16


class ClaimedName:
    """The name of a cluster of this process, and the mailbox that its orders come to.

    A context manager: at its end the name is free, and every request is answered.
    """

    def __init__(self, runs: Path, name: str, *, runtime: str, mailbox: Mailbox) -> None:
        """Claim the name below `runs`. Raises: NameTaken; OSError."""
        self._runs = runs
        self._mailbox = mailbox
        token = secrets.token_hex(_TOKEN_BYTES)
        self._server = ControlServer(self._answer, token=token)
        self._cluster = StandingCluster(
            name=name,
            pid=os.getpid(),
            port=self._server.port,
            token=token,
            run_directory="",
            runtime=runtime,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        try:
            self.died: tuple[DeadCluster, ...] = claim(runs, self._cluster)
            """The clusters of this name that were found dead."""
        except BaseException:
            self._server.close()
            raise

    def publish(self, *, run_directory: Path, bootstrap: tuple[str, ...] = ()) -> None:
        """Say where the run's directory is, and its listeners. Raises: OSError."""
        self._cluster = msgspec.structs.replace(
            self._cluster, run_directory=str(run_directory.resolve()), bootstrap=bootstrap
        )
        update(self._runs, self._cluster)

    def conclude(self, answer: DownAnswer) -> None:
        """Answer those who wait for the end."""
        self._mailbox.conclude(answer)

    def __enter__(self) -> "ClaimedName":
        """Return the claim."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the name; who still waits for the end learns that it came otherwise."""
        release(self._runs, self._cluster)
        problem = f"the cluster `{self._cluster.name}` ended without a verdict"
        self._mailbox.conclude(OrderRefusal(kind=RefusalKind.FAILED, problems=(problem,)))
        self._server.close()

    def _answer(self, request: Request) -> Answer:
        return self._mailbox.ask(request).result()
