"""Processes that play explored seeds with the code of a checkout, and report their CPU time.

With these processes, a benchmark compares this checkout of the repository with an older one. It
starts a process in the folder of each checkout, and lets both processes play the same seeds. The
environment variable `COORDLAB_BASE` has the folder of the older checkout.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cluster.compiled import SWITCH

ROOT = Path(__file__).resolve().parent.parent
BASE = "COORDLAB_BASE"
PLAYER = """
import json, sys, time
sys.path.insert(0, ".")
import coordlab  # the finder of compiled modules stands before they are imported
from chaos.exploration.batches import play_seed
from chaos.exploration.space import load_space

space = load_space(sys.argv[1])
play_seed(space, 0)
for line in sys.stdin:
    began = time.process_time()
    for item in json.loads(line):
        play_seed(space, item if isinstance(item, int) else tuple(item))
    print(time.process_time() - began, flush=True)
"""
"""The program of such a process.

1. It imports `coordlab` first, so that compiled modules are found when they are imported later.
2. It plays seed 0 without measuring it, to fill caches.
3. It reads lines, such as `[3, [3, 4], 5]`. It plays all items of a line, and prints the CPU
   seconds that this took.

Here 3 and 5 are seeds, which draw a plan each. [3, 4] is a lineage: seed 3 draws a plan, and seed 4
changes it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A process that plays seeds with the code of one checkout."""

    process: subprocess.Popen[str]
    requests: IO[str]
    answers: IO[str]

    def seconds(self, items: Sequence[int | tuple[int, ...]]) -> float:
        """Play some seeds and lineages, and return the CPU seconds that this took.

        Raises: RuntimeError if the process died.
        """
        self.requests.write(f"{json.dumps(items)}\n")
        self.requests.flush()
        answer = self.answers.readline()
        if not answer:
            raise RuntimeError(f"a player ended with exit code {self.process.wait()}")
        return float(answer)

    def end(self) -> None:
        """End the process by closing its input."""
        self.requests.close()
        self.process.wait()


def player(checkout: Path, space: str, *, compiled: bool) -> Player:
    """Start a process that plays seeds of a space with the code of a checkout.

    If the checkout has no `.venv` of its own, the process runs with the Python of this process.
    """
    checkout_python = checkout / ".venv" / "bin" / "python"
    program = str(checkout_python) if checkout_python.exists() else sys.executable
    process = subprocess.Popen(
        [program, "-c", PLAYER, space],
        cwd=checkout,
        env={**os.environ, SWITCH: "1" if compiled else "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # Never true, because of PIPE above. The check is for the type checker.
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a player has no pipes")
    return Player(process=process, requests=process.stdin, answers=process.stdout)


def base_checkout() -> Path | None:
    """Return the other checkout, or None if the environment names none."""
    base = os.environ.get(BASE)
    return None if base is None else Path(base)
