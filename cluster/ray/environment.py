"""What Ray reads from the environment when it is first imported: `actors` imports this first.

Only what is unset is set, so that the user's own settings win. Where somebody imported Ray earlier
nothing is set: it would reach the processes that Ray starts and not Ray in this one, and the two
would disagree about the token.
"""

import os
import sys
from pathlib import Path

from cluster.compiled import use_compiled

TOKEN_FILE = Path.home() / ".ray" / "auth_token"


def prepare_environment() -> None:
    """Set Ray's environment variables.

    A local Ray leaves a token file in the home folder, and a later `ray start --head` on that
    machine demands the token, while whoever joins it does not show it by default.
    Ray prints a paragraph for each process that dies, which is what this program does to them, and
    advice about a default that it will change some day. It starts a worker for each processor
    before anybody asks for one, none of which may become a node.
    """
    if "ray" in sys.modules:
        return
    if TOKEN_FILE.exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^A worker died or was killed")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")


prepare_environment()
use_compiled()  # a process of Ray's imports this before any node
