"""Environment variables that Ray reads at its first import: `actors` imports this module first.

A variable that the user has set is not changed. If Ray is imported already, no variable is set. The
processes that Ray starts would then see the variable, but Ray in this process would not. So they
would use different authentication tokens.
"""

import os
import sys
from pathlib import Path

from cluster.compiled import use_compiled

TOKEN_FILE = Path.home() / ".ray" / "auth_token"
"""File in which Ray keeps the token of its clusters."""


def prepare_environment() -> None:
    """Set Ray's environment variables.

    - RAY_AUTH_MODE: a local Ray leaves a token file in the home folder. A later `ray start --head`
      on the machine demands the token, but by default a joining process does not send it.
    - RAY_DEDUP_LOGS_SKIP_REGEX: Ray prints a paragraph for each process that dies, and this
      program kills processes on purpose.
    - RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO: avoids a warning about a default that Ray will change.
    - RAY_prestart_worker_first_driver: Ray would start a worker for each processor in advance,
      and no node can run in such a worker.
    """
    if "ray" in sys.modules:
        return
    if TOKEN_FILE.exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^A worker died or was killed")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")


prepare_environment()
use_compiled()  # here, because each process that Ray starts imports this module before any node
