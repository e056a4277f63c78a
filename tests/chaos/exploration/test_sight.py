"""`make soak PART=sight` measures how many small mistakes in our code a search would find.

The measurement works with mutants. A mutant is a small change of the code at one place, such as `<`
for `<=`. A sample is a fixed list of mutants that were drawn at random. The measurement goes like
this:

1. `build_tree` copies our sources, and puts all mutants of a sample into the copy. Each mutant is
   behind a switch, and at first all switches are off. `probes.switch_on(number)` turns one mutant
   on. A run without a mutant is called "sound".
2. A player is a process that runs this copy. It takes orders: "play the run of seed 0 sound, and
   then with each of these mutants". A sitting is one session of the measurement. It gives the
   player an order for one seed after the other, and writes the results into a journal.
3. The sound run of a seed "reaches" a mutant if it evaluates the place of the change. The mutant
   "differs" if the trace of the run with the mutant is not the trace of the sound run. The mutant
   is "found" if a checker reports something that it does not report in the sound run. The mutant is
   also found if the simulation itself fails with an exception (LAB).
4. `record_of` summarizes a journal: each mutant has a fate, such as FOUND or UNREACHED. A page
   shows all records.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.sight import probes, sampled
from benchmarks.sight.code_digest import running_code_digest
from benchmarks.sight.fates import record_of
from benchmarks.sight.player import (
    LAB,
    MutantPlay,
    Order,
    PlayedChild,
    PlayedOrder,
    SoundPlay,
    mutant_play,
    space_of,
)
from benchmarks.sight.records import Sight, read_record, read_records, write_record
from benchmarks.sight.rewriting import switched_source
from benchmarks.sight.sampled import (
    SampledMutant,
    draw_sample,
    find_mutants,
    read_sample,
    sample_path,
    write_sample_file,
)
from benchmarks.sight.sight_page import (
    SENTENCES,
    SIGHT_PAGE,
    Sentence,
    page_of,
    read_sentences,
    score_of,
    sight_page,
)
from benchmarks.sight.sitting import Journal, JournalHead, settled, sit
from benchmarks.sight.switched_tree import SwitchedTree, build_tree, start_player
from benchmarks.sight.unit_tests import read_killed, try_unit_tests
from chaos.exploration.batches import play_seed
from tests.support.builders.packaged_spaces import packaged_space
from tests.support.mutation.draw import every_mutant
from tests.support.mutation.recorded_mutants import Place

# The source of the made-up package. Its function `outcome` calls everything else, so that most
# mutants change the result of `outcome`.
MADE_UP = '''
"""Every kind of place that a mutant is drawn at."""

from __future__ import annotations

from dataclasses import dataclass

LIMIT = 3
NAMES = {"a": 1, "b": LIMIT * 2}


@dataclass(frozen=True)
class Box:
    size: int = 2
    is_open: bool = True

    def fits(self, count: int, *, spare: int = 1) -> bool:
        return self.is_open and 0 <= count + spare <= self.size + LIMIT


class Counter:
    def __init__(self) -> None:
        self.total = 0
        self.seen: dict[str, int] = {}

    def add(self, name: str, count: int) -> None:
        self.total += count
        self.seen[name] = self.seen.get(name, 0) + count
        self.note(name)

    def note(self, name: str) -> None:
        self.last = name


def kind(value: object) -> str:
    match value:
        case 0 | 1:
            return "small"
        case [first, *_] if first == LIMIT:
            return "listed"
        case _:
            return "other"


def outcome() -> list[object]:
    counter = Counter()
    for number, name in enumerate(NAMES):
        counter.add(name, number)
    found = [size for size in range(5) if size != 2 and not size > LIMIT]
    if (most := max(found)) is not None and most in found:
        counter.add("most", most if any(found) else -1)
    for _ in range(3):
        counter.total += 4
    box = Box()
    return [
        box.fits(2), box.fits(5), box.fits(-2), counter.total, counter.seen, counter.last,
        [kind(each) for each in (0, 1, 2, [3, 4], [4])], found, most // 2,
        sorted(found, key=lambda size: -size if len(found) > 1 else size),
    ]
'''
SEED = 11
"""A seed of the space `standard`, which describes the experiments that a search draws.

Its run takes a tenth of the time of an average run. Seeds in which the trace of LOSES_SESSION does
not differ would not do.
"""
DIES_AT_ONCE, LOSES_SESSION, AT_IMPORT = "1-101", "1-132", "1-013"
"""Ids of three mutants of sample 1.

- DIES_AT_ONCE: a node dies with an exception.
- LOSES_SESSION: a heartbeat has no effect.
- AT_IMPORT: an entry of a table at the top of a module is changed. The place of this change is
  evaluated when the module is imported.
"""


@pytest.fixture(autouse=True)
def _no_mutant() -> Iterator[None]:
    """After each test, turn off the mutant that the test turned on."""
    yield
    probes.clear()


def result_of(source: str) -> object:
    """Return what `outcome` of the made-up package returns, or the type of its error."""
    namespace: dict[str, object] = {"__name__": __name__}
    try:
        exec(compile(source, "made_up.py", "exec", dont_inherit=True), namespace)
        outcome = namespace["outcome"]
        assert callable(outcome)
        return outcome()
    except Exception as error:
        return type(error)


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """Return a root folder with one package, `made_up`, that has one module, `one`."""
    (tmp_path / "made_up").mkdir()
    (tmp_path / "made_up" / "one.py").write_text(MADE_UP, encoding="utf-8")
    return tmp_path


def test_each_mutant_behind_the_switch_has_its_own_effect(made_up: Path) -> None:
    """The switched source has all mutants of the made-up package behind switches.

    With one mutant turned on, it must have the same result as the source that has only this mutant.
    The mutated places are expressions, statements, patterns, defaults and constants.
    """
    path = made_up / "made_up" / "one.py"
    mutants = [mutant.source for mutant in every_mutant(path.parent, path)]
    switched = switched_source(MADE_UP, list(enumerate(mutants)))
    results = []
    for number, mutant in enumerate(mutants):
        probes.clear()
        probes.switch_on(number)
        results.append(result_of(switched))
        assert results[-1] == result_of(mutant), mutant

    probes.clear()
    sound_result = result_of(switched)
    assert sound_result == result_of(MADE_UP)

    # The comparisons above mean something: there are many mutants, and most change the result.
    assert len(mutants) > 50
    assert sum(result == sound_result for result in results) < len(mutants) / 2
    # `reached` has the numbers of the mutants whose places were evaluated. These are the mutants 0
    # to 2, and more.
    assert set(probes.reached) > set(range(3))


def test_only_an_expression_that_keeps_its_value_is_skipped(made_up: Path) -> None:
    """A mutant is skipped if it cannot make a difference in this run.

    If a mutant changes an expression, the sound run evaluates the original expression and the
    mutated expression. If the two have the same value each time, the mutant need not be played.
    """
    path = made_up / "made_up" / "one.py"
    mutants = [mutant.source for mutant in every_mutant(path.parent, path)]
    probes.record_values()
    sound_result = result_of(switched_source(MADE_UP, list(enumerate(mutants))))
    skipped = probes.compared.keys() - probes.differing()

    assert skipped
    assert probes.differing()
    # Each skipped mutant has the result of the sound run.
    assert {repr(result_of(mutants[number])) for number in skipped} == {repr(sound_result)}


def made_up_sample(root: Path) -> list[SampledMutant]:
    """Draw a sample of the made-up package, and return its mutants.

    The package has fewer than 100 mutants, so the sample has all of them.
    """
    _head, mutants = draw_sample(number=1, seed=3, count=100, root=root, packages=("made_up",))
    return mutants


def test_sample_is_read_as_it_was_drawn_and_is_drawn_once(made_up: Path) -> None:
    """The seed decides which mutants are drawn. The file of a sample is never overwritten."""
    head, mutants = draw_sample(number=1, seed=3, root=made_up, packages=("made_up",))
    path = made_up / "samples" / "sample_1.jsonl"
    write_sample_file(path, head, mutants)

    assert read_sample(path) == (head, tuple(mutants))
    assert draw_sample(number=1, seed=3, root=made_up, packages=("made_up",))[1] == mutants
    assert draw_sample(number=1, seed=4, root=made_up, packages=("made_up",))[1] != mutants
    with pytest.raises(FileExistsError):
        write_sample_file(path, head, mutants)


def test_mutants_are_found_at_the_new_place_of_their_code(made_up: Path) -> None:
    """The code has moved to another file, with another line above it.

    - A call of `counter.add` is now spread over two lines. Its mutants are still found.
    - The only statement of `Box.fits` is split into two. So some mutants of `Box.fits` have no
      place any more.
    """
    mutants = made_up_sample(made_up)
    # `find_mutants` returns the mutants with their places, and those that have no place any more.
    before, _ = find_mutants(mutants, root=made_up)
    wrapped = MADE_UP.replace(
        "return self.is_open and 0 <= count + spare <= self.size + LIMIT",
        "fits = 0 <= count + spare <= self.size + LIMIT\n        return self.is_open and fits",
    ).replace("counter.add(name, number)", "counter.add(\n            name,\n number)")
    (made_up / "made_up" / "one.py").unlink()
    (made_up / "made_up" / "two.py").write_text(f"ADDED = 1\n{wrapped}", encoding="utf-8")
    after, gone = find_mutants(mutants, root=made_up)

    assert len(before) == len(mutants)
    assert {placed.path for placed in after} == {"made_up/two.py"}
    assert {mutant.scope for mutant in gone} <= {"Box.fits"}
    assert len(gone) + len(after) == len(mutants)
    changes = {placed.mutant.id: placed.mutant.segment for placed in after}
    assert "counter.add(name, number)" in changes.values()


def test_mutant_of_removed_code_is_listed_as_removed(made_up: Path) -> None:
    """Two statements are replaced by `pass`. So the mutants of these statements are in `gone`."""
    mutants = made_up_sample(made_up)
    path = made_up / "made_up" / "one.py"
    shortened = MADE_UP.replace("self.note(name)", "pass").replace("self.last = name", "pass")
    path.write_text(shortened, encoding="utf-8")
    found, gone = find_mutants(mutants, root=made_up)

    assert {mutant.segment for mutant in gone} == {"self.note(name)", "self.last = name"}
    assert len(found) + len(gone) == len(mutants)


# -- the real packages --


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> SwitchedTree:
    """Return a copy of our sources with the mutants of sample 1."""
    _head, mutants = read_sample(sample_path(1))
    return build_tree(tmp_path_factory.mktemp("tree"), mutants)


def play_orders(
    tree: SwitchedTree, *orders: Order, spaces: Sequence[str] = ("standard",)
) -> list[PlayedOrder]:
    """Let a player with one worker carry out the orders, and return the results."""
    with start_player(tree, spaces, workers=1) as player:
        output, _ = player.communicate(
            b"".join(msgspec.json.encode(order) + b"\n" for order in orders)
        )
    return [msgspec.json.decode(line, type=PlayedOrder) for line in output.splitlines()]


def numbers(tree: SwitchedTree, *ids: str) -> tuple[int, ...]:
    """Return the numbers that the mutants with these ids have in the tree.

    Each of these mutants must have a place in the present code.
    """
    number_of = {mutant.id: number for number, mutant in enumerate(tree.mutants)}
    gone_ids = {mutant.id for mutant in tree.gone}
    assert not gone_ids & set(ids), "choose others: their code has gone"
    return tuple(number_of[mutant_id] for mutant_id in ids)


def without_times(order: PlayedOrder) -> PlayedOrder:
    """Return the result without its CPU times, which differ each time."""
    return replace(
        order,
        sound=replace(order.sound, cpu_s=0.0),
        mutants=tuple(replace(play, cpu_s=0.0) for play in order.mutants),
    )


@pytest.mark.slow
def test_tree_without_a_mutant_gives_the_digests_of_the_product(tree: SwitchedTree) -> None:
    """If no mutant is on, the copy plays the same runs as the original code (the product).

    A digest is a hash of a run's trace, so equal digests mean equal runs.
    """
    seeds = (SEED, SEED + 2)
    orders = play_orders(tree, *(Order(seed=seed, mutants=()) for seed in seeds))
    space = packaged_space("standard")

    assert [order.sound.digest for order in orders] == [
        play_seed(space, seed).digest for seed in seeds
    ]
    assert all(order.sound.reached for order in orders)


@pytest.mark.slow
def test_every_tenth_seed_is_one_of_the_second_space(tree: SwitchedTree) -> None:
    """The seeds 9, 19 and so on are played with the second space, `zookeeper`.

    Only runs of this space have consumers on ZooKeeper, whose code has mutants, too.
    """
    spaces = ("standard", "zookeeper")
    assert [space_of(seed, spaces) for seed in (8, 9, 10, 19)] == [
        "standard",
        "zookeeper",
        "standard",
        "zookeeper",
    ]
    (order,) = play_orders(tree, Order(seed=9, mutants=()), spaces=spaces)

    assert order.sound.digest == play_seed(packaged_space("zookeeper"), 9).digest


@pytest.mark.slow
def test_mutants_are_found_and_leave_no_effect(tree: SwitchedTree) -> None:
    """A repeated order gives equal results, because each run has its own process.

    The order has three mutants:

    - With the first mutant a node dies, so the lab itself finds this mutant.
    - With the second mutant the trace differs, which need not be a finding.
    - The third mutant is a constant that is evaluated only when its module is imported. It changes
      nothing.
    """
    order = Order(seed=SEED, mutants=numbers(tree, DIES_AT_ONCE, LOSES_SESSION, AT_IMPORT))
    first, second = play_orders(tree, order, order)
    dead, without_session, constant = first.mutants

    assert without_times(first) == without_times(second)
    assert dead.found_by == (LAB,)
    assert "has no attribute" in dead.what
    assert constant.mutant in first.sound.at_import
    assert not constant.found_by
    assert (without_session.differs, constant.differs) == (True, False)


@pytest.mark.slow
def test_skipped_mutants_would_have_changed_nothing(tree: SwitchedTree) -> None:
    """`also_unchanged=True` has those mutants played, too, that are usually skipped.

    The traces with these mutants never differ from the sound trace, so it is right to skip them.
    """
    (without_mutants,) = play_orders(tree, Order(seed=SEED, mutants=()))
    skipped = without_mutants.sound.unchanged
    (order,) = play_orders(tree, Order(seed=SEED, mutants=skipped, also_unchanged=True))

    assert skipped
    assert [play.mutant for play in order.mutants] == list(skipped)
    assert not any(play.differs for play in order.mutants)


@pytest.mark.slow
def test_sitting_continues_after_the_last_finished_seed(tmp_path: Path) -> None:
    """The first of two sittings stops after the first seed, because of `until`.

    The second sitting keeps the result of this seed, and plays the second seed. The only mutant was
    found by the first seed, so it is not played again.
    """
    mutants = [mutant for mutant in read_sample(sample_path(1))[1] if mutant.id == DIES_AT_ONCE]
    journal = Journal(tmp_path / "journal.jsonl")
    lines: list[str] = []
    assert not sit(journal, mutants, seeds=2, until=lambda: True, say=lines.append)
    after_first = journal.read()
    assert sit(journal, mutants, seeds=2, say=lines.append)
    after_second = journal.read()

    assert after_first is not None
    assert after_second is not None
    _, (order_of_first,) = after_first  # the head of the journal, and its orders
    _, orders = after_second
    assert [order.seed for order in orders] == [0, 1]
    assert orders[0] == order_of_first
    assert [len(order.mutants) for order in orders] == [1, 0]
    assert any(DIES_AT_ONCE in line for line in lines)


# -- results of a run, journals, records, the page --


def played(result: str, *checks: str) -> PlayedChild:
    """Return the result of a run with one finding of each of these checkers."""
    return PlayedChild(
        result=result,
        digest=f"of {result}",
        checks=checks,
        summaries=tuple(f"{check} is broken" for check in checks),
        reasons=(f"it is {result}",),
        cpu_s=1.0,
        events=5,
        reached=(),
        differing=(),
    )


@pytest.mark.parametrize(
    ("sound_run", "mutated_run", "found_by"),
    [
        (played("pass"), played("violated", "fencing", "ownership"), ("fencing", "ownership")),
        (played("violated", "fencing"), played("violated", "fencing"), ()),
        (played("violated", "fencing"), played("violated", "fencing", "liveness"), ("liveness",)),
        (played("pass"), played("broken"), (LAB,)),
        (played("broken"), played("broken"), ()),
        (played("pass"), played("unknown"), ()),
        (played("pass"), played("pass"), ()),
    ],
)
def test_mutant_is_found_by_checkers_without_a_finding_in_the_original_run(
    sound_run: PlayedChild, mutated_run: PlayedChild, found_by: tuple[str, ...]
) -> None:
    """A checker finds the mutant if the checker has a finding, but has none in the sound run.

    A run with the result "unknown" finds nothing. A different trace alone is no finding either. If
    the result of the mutated run is "broken", that is, the simulation itself has failed, the mutant
    is found by LAB. But LAB finds no mutant if the sound run is broken itself.
    """
    play = mutant_play(number=7, sound=sound_run, played=mutated_run, child_cpu_s=1.0)

    assert play.found_by == found_by
    assert play.differs == (sound_run.result != mutated_run.result)
    if found_by:
        assert play.what == ("it is broken" if LAB in found_by else f"{found_by[0]} is broken")


def test_run_over_its_bound_is_stopped_and_finds_nothing() -> None:
    """A run that takes too much CPU time is stopped, here after 60.1 s. Its result is None."""
    cpu_s = 60.1
    play = mutant_play(number=7, sound=played("pass"), played=None, child_cpu_s=cpu_s)

    assert (play.is_stopped, play.found_by, play.cpu_s) == (True, (), cpu_s)


HEAD = JournalHead(
    code="c0de", python="3.11", machinery="m", sample="s", space="p", commit="abc", machine="here"
)
"""The head of a journal, which says what played its runs. The values are made up."""


@pytest.mark.parametrize(
    ("source", "runs_alike"),
    [
        # Only docstrings and a comment are added.
        (
            '"""Module."""\nX = 1\n"""Field."""\n\ndef f():\n    """Doc."""\n    return X  # why\n',
            True,
        ),
        # The function returns another value.
        ("X = 1\ndef f():\n    return 2\n", False),
        # The constant has another name.
        ("Y = 1\ndef f():\n    return Y\n", False),
    ],
)
def test_digest_of_running_code_ignores_sentences_alone(
    tmp_path: Path, source: str, runs_alike: bool
) -> None:
    """If only docstrings and comments have changed, the code runs alike and has the same digest.

    Then a sitting may continue the earlier record.
    """
    digests = []
    for name, text in (("one", "X = 1\ndef f():\n    return X\n"), ("two", source)):
        module = tmp_path / name / "package" / "module.py"
        module.parent.mkdir(parents=True)
        module.write_text(text, encoding="utf-8")
        digests.append(running_code_digest(tmp_path / name, ("package",)))

    assert (digests[0] == digests[1]) == runs_alike


def sound(*reached: int) -> SoundPlay:
    """Return a sound run that reached the places of these mutants."""
    return SoundPlay(result="pass", digest="d", checks=(), cpu_s=1.0, events=5, reached=reached)


def mutated(number: int, *found_by: str, differs: bool = True, cpu_s: float = 2.0) -> MutantPlay:
    """Return a run with the mutant of this number, which was found by these checkers."""
    return MutantPlay(
        mutant=number, differs=differs, result="?", found_by=found_by, what="w", cpu_s=cpu_s
    )


def test_journal_of_other_code_is_put_aside_with_a_message(tmp_path: Path) -> None:
    """A journal belongs to the code whose mutants were played.

    A sitting with other code puts the journal aside, says so, and begins a new journal. With
    another commit or machine, but the same code, the journal is continued.
    """
    journal = Journal(tmp_path / "journal.jsonl")
    lines: list[str] = []
    assert journal.begin(HEAD, lines.append) == (HEAD, [])
    order = PlayedOrder(seed=0, sound=sound(1), mutants=())
    journal.append(msgspec.json.encode(order) + b"\n")
    journal.append(b'{"seed":1,"sou')  # an interrupted write, which is ignored
    assert journal.begin(replace(HEAD, commit="other", machine="there"), lines.append) == (
        HEAD,
        [order],
    )
    assert lines == []

    other_code = replace(HEAD, code="0ther")
    assert journal.begin(other_code, lines.append) == (other_code, [])
    assert len(lines) == 1
    assert "1 played" in lines[0]
    assert "the code" in lines[0]
    # There are two files now: the old journal, which was put aside, and the new one.
    assert len(list(tmp_path.iterdir())) == 2
    assert journal.read() == (other_code, [])


def made_up_record(root: Path, name: str, *, finds_third: bool) -> None:
    """Write a record of six mutants, which are called 0 to 5 here.

    - 0 is found.
    - 1 has the same trace.
    - 2 (the third mutant) differs, and is found if `finds_third`.
    - 3 is stopped in each run.
    - 4 is reached by no seed.
    - 5 has no place in the code any more.
    """
    mutants = made_up_sample(root)[:6]
    finders_of_third = ("fencing",) if finds_third else ()
    stopped = replace(mutated(3), is_stopped=True)
    orders = [
        PlayedOrder(
            seed=0,
            sound=sound(0, 1, 2, 3),
            mutants=(mutated(0, LAB), mutated(1, differs=False), mutated(2)),
        ),
        PlayedOrder(
            seed=1,
            sound=sound(1, 2, 3),
            mutants=(mutated(2, *finders_of_third, cpu_s=5.0), stopped),
        ),
        *(PlayedOrder(seed=seed, sound=sound(3), mutants=(stopped,)) for seed in (2, 3)),
    ]
    # A mutant that is found, or was stopped in three seeds, is settled. It is not played again.
    assert settled(orders) == ({0, 2, 3} if finds_third else {0, 3})
    assert 3 not in settled(orders[:-1])  # stopped in two seeds only
    head = replace(HEAD, gone=(mutants[5].id,))
    write_record(record_of(name, 1, mutants, head, orders), root / "records")


def test_record_has_the_outcome_of_each_mutant(made_up: Path) -> None:
    """The `cpu_s` of a found mutant is the CPU time of its runs up to the finding.

    The first seed found mutant 0, after 2 s. The second seed found mutant 2, whose runs took 2 s
    and 5 s. The score has the mean of 2 s and 7 s, which is 4.5 s.
    """
    made_up_record(made_up, "after", finds_third=True)
    (record,) = read_records(made_up / "records")

    assert [fate.sight for fate in record.fates] == [
        Sight.FOUND, Sight.SAME, Sight.FOUND, Sight.STOPPED, Sight.UNREACHED, Sight.GONE,
    ]  # fmt: skip
    assert [fate.cpu_s for fate in record.fates[:4]] == [2.0, None, 7.0, None]
    assert record.fates[2].found_by == ("fencing",)
    assert (record.fates[2].found_seed, record.fates[3].stopped_seeds) == (1, (1, 2, 3))

    # Unit tests kill a mutant if one of them fails with the mutant. `killed` has this result of
    # each mutant for which it is known.
    all_killed = {fate.id: True for fate in record.fates}
    score = score_of(record.fates, killed=all_killed, sentences={})
    assert (score.mutants, score.reached, score.found, score.cpu_s) == (6, 4, 2, 4.5)
    assert (score.killed_reached, score.killed_found) == (4, 2)
    assert score_of(record.fates, killed={}, sentences={}).killed_reached is None


def test_record_in_two_parts_is_the_record_of_all_seeds(made_up: Path) -> None:
    """If the journal of a sitting is gone, the sitting can continue from its record.

    Four seeds are played in two parts: 0 and 4 seeds, 1 and 3 seeds, and so on. The second part
    continues the record of the first part. The result must be the same as the record of all four
    seeds played at once.
    """
    mutants = made_up_sample(made_up)[:6]
    stopped = replace(mutated(3), is_stopped=True)
    orders = [
        PlayedOrder(seed=0, sound=sound(0, 2, 3), mutants=(mutated(0, LAB), mutated(2), stopped)),
        PlayedOrder(seed=1, sound=sound(1, 2, 3), mutants=(mutated(1, differs=False), stopped)),
        PlayedOrder(seed=2, sound=sound(1, 2, 3), mutants=(mutated(2, "fencing"), stopped)),
        PlayedOrder(seed=3, sound=sound(1, 2, 3), mutants=(mutated(1), mutated(3, LAB))),
    ]
    whole = record_of("after", 1, mutants, HEAD, orders)
    for cut in range(5):
        first = record_of("after", 1, mutants, HEAD, orders[:cut])
        path = write_record(first, made_up / "records")
        read = read_record("after", 1, made_up / "records")
        assert read == first, path
        head_of_second_part = replace(HEAD, base=read)
        assert head_of_second_part.seeds_before == cut
        assert record_of("after", 1, mutants, head_of_second_part, orders[cut:]) == whole
    assert whole.fates[3].stopped_seeds == (0, 1, 2)
    assert read_record("before", 1, made_up / "records") is None


def test_page_shows_before_and_after_side_by_side(made_up: Path) -> None:
    """The record "before" is of earlier code, which does not find the third mutant.

    The page also shows sentences that a person has written about mutants. Here a sentence says that
    the second mutant is equivalent, which means that it changes nothing that a user could notice.
    """
    made_up_record(made_up, "after", finds_third=True)
    made_up_record(made_up, "before", finds_third=False)
    head, mutants = draw_sample(number=1, seed=3, count=100, root=made_up, packages=("made_up",))
    same = mutants[1].id
    sentences = {same: Sentence(id=same, sentence="Nobody asks.", equivalent=True)}
    page = page_of(
        read_records(made_up / "records"),
        samples={1: (head, mutants[:6])},
        killed={1: {same: False}},
        sentences=sentences,
    )
    rows = page.splitlines()

    assert page.count("4 seeds, **unfinished** of 500") == 2

    # The two rows of the package follow each other.
    assert rows.index(next(row for row in rows if row.startswith("| made_up | before"))) + 1 == (
        rows.index(next(row for row in rows if row.startswith("| made_up | after")))
    )
    (third,) = (row for row in rows if row.startswith(f"| {mutants[2].id} |"))
    assert "fencing" in third
    assert "7.0 s" in third
    assert str(Sight.DIFFERS) in third  # its fate in the record "before"
    (second,) = (row for row in rows if row.startswith(f"| {same} |"))
    assert "| lives |" in second
    assert "Equivalent: Nobody asks." in second
    for title in (
        "Reached by no seed (1)",
        "Runs exceed their bound (1)",
        "Place no longer in the code (1)",
    ):
        assert f"### {title}" in rows


def test_unit_tests_are_run_once_for_each_mutant(made_up: Path, tmp_path: Path) -> None:
    """The results are kept in a file, so that no mutant is tried twice.

    `try_unit_tests` is called three times: with the first mutant, with two mutants, and with the
    same two mutants again. The function runs the tests only for a mutant without a result.
    """
    mutants = read_sample(sample_path(1))[1][:2]
    asked: list[tuple[str, str]] = []

    def run(package: str, places: Sequence[Place]) -> list[bool]:
        asked.extend((package, f"{folder}/{drawn.file}") for folder, drawn in places)
        return [drawn.scope == mutants[0].scope for _, drawn in places]

    path = tmp_path / "killed.json"
    for listed in (mutants[:1], mutants, mutants):
        try_unit_tests(path, listed, run=run, say=lambda line: None)

    assert asked == [("coordinator", f"coordinator/{mutant.file}") for mutant in mutants]
    assert read_killed(path) == {mutants[0].id: True, mutants[1].id: False}


def test_page_equals_the_records() -> None:
    """The page must be written anew when the records change: `python -m benchmarks.sight page`."""
    assert SIGHT_PAGE.read_text(encoding="utf-8") == sight_page()


def test_sentences_are_about_sampled_mutants() -> None:
    """A sentence about a mutant that is in no sample would never be shown."""
    ids = {
        mutant.id
        for path in sampled.SAMPLES.glob("sample_*.jsonl")
        for mutant in read_sample(path)[1]
    }
    assert SENTENCES.exists()
    assert read_sentences().keys() <= ids
