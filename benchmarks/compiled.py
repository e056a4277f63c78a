"""What `make fast` brings: explored runs a minute, compiled against interpreted, interleaved.

Each code has a process of its own that plays the same seeds of explorations/reference.yaml in turn.
With `COORDLAB_BASE=DIR` in the environment, another checkout (its `.venv` made) is a third one: the
compiled code is set beside it, too. Without a compiler there is no figure.
"""

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.measurement import Measurement, median_ratio
from cluster.compiled import SWITCH
from scripts.compiled import build, missing_for_build

ROOT = Path(__file__).resolve().parent.parent
BASE = "COORDLAB_BASE"
ROUNDS, SEEDS_A_ROUND = 16, 5
GOAL = 1.7
PLAYER = """
import sys, time
sys.path.insert(0, ".")
import coordlab  # the finder of compiled modules stands before they are imported
from chaos.exploration.batches import play_seed
from chaos.exploration.space import load_space

space = load_space("reference")
play_seed(space, 0)
for line in sys.stdin:
    began = time.process_time()
    for seed in range(*map(int, line.split())):
        play_seed(space, seed)
    print(time.process_time() - began, flush=True)
"""
"""What a process runs: a range of seeds for each line that it reads, CPU seconds that it prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A process that plays seeds with one code."""

    process: subprocess.Popen[str]
    asked: IO[str]
    told: IO[str]

    def seconds(self, seeds: range) -> float:
        """Return the CPU seconds that `seeds` took. Raises: RuntimeError if the process died."""
        self.asked.write(f"{seeds.start} {seeds.stop}\n")
        self.asked.flush()
        said = self.told.readline()
        if not said:
            raise RuntimeError(f"a player ended with exit code {self.process.wait()}")
        return float(said)

    def end(self) -> None:
        """Let the process end."""
        self.asked.close()
        self.process.wait()


def player(checkout: Path, *, compiled: bool) -> Player:
    """Start a process that plays seeds with the code of `checkout`. Raises: RuntimeError."""
    own = checkout / ".venv" / "bin" / "python"
    process = subprocess.Popen(
        [str(own) if own.exists() else sys.executable, "-c", PLAYER],
        cwd=checkout,
        env={**os.environ, SWITCH: "1" if compiled else "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a player has no pipes")
    return Player(process=process, asked=process.stdin, told=process.stdout)


def run() -> tuple[Measurement, ...]:
    """Measure; empty without a compiler."""
    missing = missing_for_build()
    if missing is not None:
        print(f"nothing is compiled here: {missing}")
        return ()
    build()
    players = {
        "compiled": player(ROOT, compiled=True),
        "interpreted": player(ROOT, compiled=False),
    }
    base = os.environ.get(BASE)
    if base is not None:
        players[_named(Path(base))] = player(Path(base), compiled=False)
    took_s: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(ROUNDS):
        seeds = range(turn * SEEDS_A_ROUND, (turn + 1) * SEEDS_A_ROUND)
        for name in list(players)[:: 1 if turn % 2 else -1]:
            took_s[name].append(players[name].seconds(seeds))
    for each in players.values():
        each.end()
    per_minute = {
        name: [60 * SEEDS_A_ROUND / seconds for seconds in found] for name, found in took_s.items()
    }
    return tuple(
        _measurement(per_minute["compiled"], other, name, judged=base is not None and place == 1)
        for place, (name, other) in enumerate(list(per_minute.items())[1:])
    )


def _named(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"interpreted at {done.stdout.strip() or 'another checkout'}"


def _measurement(
    compiled: list[float], other: list[float], name: str, *, judged: bool
) -> Measurement:
    ratio = median_ratio(compiled, other)
    return Measurement(
        name=f"explored runs, compiled and {name}",
        value=statistics.median(compiled),
        baseline=statistics.median(other),
        unit="runs/min",
        baseline_name=name,
        ratio=ratio,
        goal=f"at least {GOAL:g}" if judged else "",
        met=ratio >= GOAL if judged else None,
    )
