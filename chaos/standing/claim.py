"""ClaimedName: makes a standing cluster reachable for commands under its name.

`coordlab up --name lab` starts a cluster. Later `coordlab inject --name lab ...` must reach this
cluster from another process. For this the cluster does two things:

- It writes its claim into the registry. This is a file with the name, the port and a secret token
  of the cluster.
- It listens at this port (ControlServer), and passes the requests to its run (Mailbox).
"""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chaos.standing.control import ControlServer
from chaos.standing.mailbox import Mailbox
from chaos.standing.messages import Answer, DownAnswer, OrderRefusal, RefusalKind, Request
from chaos.standing.registry import DeadCluster, StandingCluster, claim, release, update

_TOKEN_BYTES = 16  # 128 bits, too many to be guessed


class ClaimedName:
    """The name of the cluster that this process runs. Requests to this name reach the mailbox.

    A ClaimedName is a context manager. At its exit the name becomes free, and all requests that
    still wait are answered.
    """

    def __init__(self, runs: Path, name: str, *, runtime: str, mailbox: Mailbox) -> None:
        """Claim the name. `runs` is the folder of all runs. Raises: NameTaken; OSError."""
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
            """Dead clusters that had this name. Their claims were removed."""
        except BaseException:
            # ControlServer has started a thread, which must end, whatever prevented the claim.
            self._server.close()
            raise

    def publish(self, *, run_directory: Path, bootstrap: tuple[str, ...] = ()) -> None:
        """Add the run's directory and the brokers' addresses to the claim. Raises: OSError."""
        self._cluster = msgspec.structs.replace(
            self._cluster, run_directory=str(run_directory.resolve()), bootstrap=bootstrap
        )
        update(self._runs, self._cluster)

    def conclude(self, answer: DownAnswer) -> None:
        """Answer the commands that wait for the end of the run."""
        self._mailbox.conclude(answer)

    def __enter__(self) -> "ClaimedName":
        """Return the claim."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the name, and answer the commands that still wait."""
        release(self._runs, self._cluster)
        # The refusal is for a run that has failed before `conclude` was called. Otherwise this
        # second call of the mailbox's `conclude` changes nothing.
        problem = f"the cluster `{self._cluster.name}` ended without a verdict"
        self._mailbox.conclude(OrderRefusal(kind=RefusalKind.FAILED, problems=(problem,)))
        self._server.close()

    def _answer(self, request: Request) -> Answer:
        """Pass a request to the run, and wait for the answer, in a thread of the server."""
        return self._mailbox.ask(request).result()
