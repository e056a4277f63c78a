"""A sitting: plays some seeds with all mutants of a sample, and appends the results to a journal.

To play all seeds takes many hours. So this is done in several sittings, each of which continues the
journal of the one before. `fates` makes a record of the journal.

The seeds are played by another process (`player`), in a copy of the sources that contains every
mutant (`switched_tree`). For each seed, the process gets an Order, which has the seed and the
numbers of the mutants to play, and answers with a PlayedOrder. The number of a mutant is its index
in the sample.

A journal is only valid for the code, the sample and the spaces with which it began. If one of these
has changed, its file is renamed, and a new journal begins.
"""

import hashlib
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.measurement import commit, machine
from benchmarks.sight.code_digest import running_code_digest
from benchmarks.sight.player import STOPS_MAX, Order, PlayedOrder
from benchmarks.sight.records import SightRecord
from benchmarks.sight.sampled import ROOT, SampledMutant
from benchmarks.sight.switched_tree import SwitchedTree, build_tree, start_player
from chaos.exploration.space import load_space
from chaos.results.replay_stamp import python_version

JOURNALS = ROOT / ".soak" / "sight"
SEEDS = 500
"""Number of seeds of a complete record."""
SPACES = ("standard", "zookeeper")
"""The spaces from which seeds draw. Every tenth seed draws from `zookeeper`, in which consumers use
ZooKeeper (`player.space_of`).
"""
_MACHINERY = ("rewriting.py", "probes.py", "player.py")
"""Files that rewrite the sources and play the seeds. If one of them changes, results can change."""


class JournalHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a journal."""

    code: str
    """The digest of the packages, without docstrings and comments (`code_digest`)."""
    python: str
    machinery: str
    """The digest of the files in _MACHINERY."""
    sample: str
    """The digest of the sample."""
    space: str
    """The digest of the files of the spaces."""
    commit: str
    """Information for people. A journal continues even if the commit has changed."""
    machine: str
    """Information for people. A journal continues even on another machine."""
    gone: tuple[str, ...] = ()
    """The mutants whose places the code no longer has."""
    not_switchable: dict[str, str] = {}
    """The mutants that cannot become a switch, with the reasons."""
    base: SightRecord | None = None
    """A record whose seeds precede those of the journal; None if the journal begins at seed 0."""

    @property
    def seeds_before(self) -> int:
        """The number of seeds that were played before the journal begins."""
        return 0 if self.base is None else self.base.head.seeds

    @property
    def decisive(self) -> dict[str, str]:
        """The facts that must be unchanged if a journal is continued, by their names for people."""
        return {
            "the code": self.code,
            "Python": self.python,
            "the machinery": self.machinery,
            "the sample": self.sample,
            "the space": self.space,
        }


class Journal:
    """The file of an unfinished record: a line with the head, and a line for each seed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[JournalHead, list[PlayedOrder]] | None:
        """Return the head and the finished seeds; None if there is no journal.

        The last line is left out if it is incomplete, because a sitting was killed.
        """
        if not self.path.exists():
            return None
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        if not whole:
            return None
        first, *rest = whole.split(b"\n")
        head = msgspec.json.decode(first, type=JournalHead)
        return head, [msgspec.json.decode(line, type=PlayedOrder) for line in rest]

    def begin(
        self, head: JournalHead, say: Callable[[str], None]
    ) -> tuple[JournalHead, list[PlayedOrder]]:
        """Continue the journal if nothing `decisive` has changed, or else begin a new journal.

        Returns the head and the finished seeds. If a new journal begins, the old file is renamed
        and kept, because it took hours to play its seeds.
        """
        existing = self.read()
        if existing is not None:
            old_head, old_orders = existing
            changed = [
                name for name, digest in head.decisive.items() if old_head.decisive[name] != digest
            ]
            if not changed:
                self._drop_torn_line()
                return existing

            # The time makes the name unique, because several journals of one commit may be kept.
            new_path = self.path.with_name(
                f"{self.path.stem}-until-{old_head.commit}-{time.time_ns()}{self.path.suffix}"
            )
            self.path.rename(new_path)
            say(
                f"{len(old_orders)} played seeds are no longer valid, because these have changed: "
                f"{', '.join(changed)}; their journal is renamed to {new_path.name}"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(msgspec.json.encode(head) + b"\n")
        return head, []

    def append(self, line: bytes) -> None:
        """Append the line of one seed, and wait until it would survive a power loss."""
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _drop_torn_line(self) -> None:
        """Remove an incomplete last line, which a killed sitting leaves behind."""
        with self.path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)


def journal_path(name: str, sample: int) -> Path:
    """Return the file of a record's journal."""
    return JOURNALS / f"{name}-sample-{sample}.jsonl"


def sit(
    journal: Journal,
    mutants: Sequence[SampledMutant],
    *,
    seeds: int = SEEDS,
    spaces: Sequence[str] = SPACES,
    workers: int = 1,
    until: Callable[[], bool] = lambda: False,
    record: SightRecord | None = None,
    say: Callable[[str], None] = print,
) -> bool:
    """Play the seeds below `seeds` that are not in the journal; return True if all are done.

    `until` is called after each seed. When it returns True, the sitting ends. A new journal
    continues `record`, if the record is of the same code, sample and spaces.
    Raises: RuntimeError if the player ended.
    """
    with tempfile.TemporaryDirectory(prefix="sight-") as folder:
        tree = build_tree(Path(folder), mutants)
        head = head_of(tree, spaces)
        if record is not None and record.head.origin == head.decisive:
            head = msgspec.structs.replace(head, base=record)
        head, done = journal.begin(head, say)
        left = range(head.seeds_before + len(done), seeds)
        if not left:
            return True

        # Play the mutants that are in the tree, except for settled ones. A mutant is settled by the
        # journal, or by the record that the journal continues.
        absent = {mutant.id for mutant in tree.gone} | tree.not_switchable.keys()
        to_play = {number for number, mutant in enumerate(mutants) if mutant.id not in absent}
        to_play -= settled(done)
        if head.base is not None:
            to_play -= {number for number, fate in enumerate(head.base.fates) if fate.is_settled}
        say(f"seeds {left.start} to {left.stop - 1}, {len(to_play)} mutants not found yet")
        with start_player(tree, spaces, workers) as player:
            try:
                for seed in left:
                    played = _play(player, Order(seed=seed, mutants=tuple(sorted(to_play))))
                    journal.append(msgspec.json.encode(played) + b"\n")
                    done.append(played)
                    to_play -= settled(done)
                    say(_terminal_line(played, mutants, len(to_play)))
                    if until():
                        is_last = seed + 1 == seeds
                        return is_last
            finally:
                # The `with` statement waits until the process ends. Without the kill, an
                # interrupted player would play its present seed to the end.
                player.kill()
    return True


def head_of(tree: SwitchedTree, spaces: Sequence[str]) -> JournalHead:
    """Return the head that a journal of this tree has."""
    folder = Path(__file__).parent
    return JournalHead(
        code=running_code_digest(ROOT),
        python=python_version(),
        machinery=_digest(*((folder / name).read_bytes() for name in _MACHINERY)),
        sample=sample_digest(tree.mutants),
        space=_digest(*(load_space(space).path.read_bytes() for space in spaces)),
        commit=commit(),
        machine=machine(),
        gone=tuple(mutant.id for mutant in tree.gone),
        not_switchable=tree.not_switchable,
    )


def sample_digest(mutants: Sequence[SampledMutant]) -> str:
    """Return the digest that a journal has of its sample."""
    return _digest(*(msgspec.json.encode(mutant) for mutant in mutants))


def _play(player: subprocess.Popen[bytes], order: Order) -> PlayedOrder:
    """Send an order to the player, and return its answer. Raises: RuntimeError."""
    # Never true, because `start_player` makes both pipes. The check is for the type checker.
    if player.stdin is None or player.stdout is None:
        raise RuntimeError("the player has no pipes")
    player.stdin.write(msgspec.json.encode(order) + b"\n")
    player.stdin.flush()
    line = player.stdout.readline()
    if not line:
        raise RuntimeError(f"the player ended at seed {order.seed}; its output is above")
    return msgspec.json.decode(line, type=PlayedOrder)


def settled(orders: Sequence[PlayedOrder]) -> set[int]:
    """Return the mutants that are no longer played: found, or stopped STOPS_MAX times."""
    plays = [play for order in orders for play in order.mutants]
    stops = Counter(play.mutant for play in plays if play.is_stopped)
    return {play.mutant for play in plays if play.found_by or stops[play.mutant] >= STOPS_MAX}


def _terminal_line(order: PlayedOrder, mutants: Sequence[SampledMutant], left: int) -> str:
    """Return a line for the terminal about a played seed."""
    cpu_s = order.sound.cpu_s + sum(play.cpu_s for play in order.mutants)
    clauses = [
        f"seed {order.seed}: {order.sound.result}, {len(order.mutants)} mutants played in "
        f"{cpu_s:.0f} s of CPU, {left} left"
    ]
    for play in order.mutants:
        mutant_id = mutants[play.mutant].id
        if play.found_by:
            clauses.append(f"{mutant_id} found by {', '.join(play.found_by)}")
        elif play.is_stopped:
            clauses.append(f"{mutant_id} stopped")
    return "; ".join(clauses)


def _digest(*contents: bytes) -> str:
    """Return a digest of all contents. Their lengths distinguish ("ab", "c") from ("a", "bc")."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]
