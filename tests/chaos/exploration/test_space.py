"""Files of spaces: how they are found, and which problems are reported if a file is wrong.

A search draws one experiment for each seed from a space. The file of a space has:

- `experiment`: what all drawn experiments have in common;
- `settings`: for each setting, a list of values. One of the values is drawn. In the path of a
  setting `*` stands for each group, or for each topic;
- `counts`: a list of numbers of groups. One of the numbers is drawn;
- `together`: sets of settings that fit together, such as a session timeout and a heartbeat
  interval. The sets are in lists, and from each list one set is drawn;
- `faults`: the kinds of faults to draw, with their weights.

A problem says where in the file the mistake is, and what is expected there. If a word is mistyped,
the `near_miss` of the problem is the known word that was probably meant.
"""

from pathlib import Path

import pytest

from chaos.experiment.problems import ExperimentError, Problem
from chaos.exploration.draw.draw import draw
from chaos.exploration.space import list_spaces, load_space

VALID = """\
version: 1
name: small
question: Is anything broken?
experiment:
  cluster:
    brokers: 3
    config:
      group.min.session.timeout.ms: 1000
  topics:
    orders: {partitions: 2, replication.factor: 3}
  groups:
    readers: {members: 2, topics: [orders]}
    writers: {members: 1, topics: [orders]}
  producers:
    - {topic: orders, records_per_second: 2}
counts:
  groups: [1, 2]
settings:
  cluster.brokers: [3, 4]
  groups.*.members: [1, 2]
together:
  session:
    - {groups.*.config.session.timeout.ms: 2000, groups.*.config.heartbeat.interval.ms: 500}
    - {groups.*.config.session.timeout.ms: 9000, groups.*.config.heartbeat.interval.ms: 4000}
faults:
  kinds: {crash: 1, cut: 2}
  timeouts: [session.timeout.ms]
"""


def written(folder: Path, *changes: tuple[str, str]) -> str:
    """Write the valid space with some of its text replaced, and return its path."""
    text = VALID
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / "small.yaml"
    path.write_text(text)
    return str(path)


def problems_of(path: str) -> tuple[Problem, ...]:
    """Load a space that must be refused, and return its problems."""
    with pytest.raises(ExperimentError) as raised:
        load_space(path)
    return raised.value.problems


def test_own_space_is_read_from_its_path(tmp_path: Path) -> None:
    """The space has the name and the question of its file.

    The name of a drawn experiment consists of the name of the space and the seed.
    """
    space = load_space(written(tmp_path))

    assert (space.name, space.question) == ("small", "Is anything broken?")
    assert draw(space, seed=7).name == "small-7"


def test_space_lists_the_reasons_for_which_a_run_may_be_inconclusive(tmp_path: Path) -> None:
    """A search with an inconclusive run passes only if the space lists the reason of this run.

    By default the list is empty.
    """
    reasons = "may_be_unknown: [no steady state within Ns]\ncounts:"
    assert load_space(written(tmp_path)).may_be_unknown == ()
    assert load_space(written(tmp_path, ("counts:", reasons))).may_be_unknown == (
        "no steady state within Ns",
    )


def test_shipped_spaces_are_found_by_their_names() -> None:
    """The spaces that are shipped with coordlab have names. Any other space needs its path."""
    assert {"reference", "standard"} <= set(list_spaces())
    assert load_space("reference").name == "reference"


def test_unknown_name_is_reported_with_a_suggestion() -> None:
    """A search is called an exploration in messages. The user has asked for `standart`."""
    (problem,) = problems_of("standart")

    assert problem.message == "there is no exploration of this name"
    assert problem.near_miss == "standard"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "kinds: {crash: 1",
            "kinds: {crahs: 1",
            "faults.kinds.crahs: unknown fault `crahs`",
        ),
        (
            "kinds: {crash: 1",
            "kinds: {node_loss: 1",
            "faults.kinds.node_loss: would leave partitions without a leader, and groups without "
            "a member; expected `faults.lost`",
        ),
        ("kinds: {crash: 1", "kinds: {crash: 0", "faults.kinds.crash: is not allowed"),
        (
            "kinds: {crash: 1, cut: 2}",
            "patterns: {roling_restart: 1}",
            "faults.patterns.roling_restart: unknown pattern `roling_restart`; expected",
        ),
        (
            "kinds: {crash: 1, cut: 2}",
            "window: 10s",
            "faults: nothing is ever broken; expected some faults in `kinds` or `patterns`",
        ),
        (
            "[session.timeout.ms]",
            "[session.timeout]",
            "faults.timeouts[0]: unknown timeout `session.timeout`",
        ),
        ("faults:", "fault:", "fault: unknown key; expected one of"),
        (
            "  cluster.brokers: [3, 4]",
            "  cluster.broker: [3, 4]",
            "settings.cluster.broker: unknown key `broker`; expected one of",
        ),
        (
            "  groups.*.members: [1, 2]",
            "  groups.*.member: [1, 2]",
            "settings.groups.*.member: unknown key `member`; expected one of",
        ),
        (
            "  cluster.brokers: [3, 4]",
            "  offsets_log.*.group: [readers]",
            "`*` stands for nothing: `offsets_log` has no parts",
        ),
        (
            "  cluster.brokers: [3, 4]",
            "  cluster.brokers: [3, three]",
            "settings.cluster.brokers[1]: `cluster.brokers` is not allowed; expected a whole "
            "number >= 1 and <= 100, got `three`",
        ),
        (
            "  cluster.brokers: [3, 4]",
            "  cluster.brokers: []",
            "settings.cluster.brokers: nothing to choose from; expected at least one value",
        ),
        (
            "  groups: [1, 2]",
            "  groups: [0, 3]",
            "counts.groups[1]: is not allowed; expected 1 to 2: so many are in the experiment, "
            "got 3",
        ),
        (
            "groups.*.config.heartbeat.interval.ms: 4000}",
            "cluster.brokers: 5}",
            "together.session: its paths have their `*` in different places",
        ),
        (
            "ms: 9000, groups.*.config.heartbeat.interval.ms: 4000}",
            "ms: 9000}",
            "together.session[1].groups.*.config.heartbeat.interval.ms: is missing: another set "
            "of it has it",
        ),
        (
            "  topics:",
            "  faults: []\n  topics:",
            "experiment.faults: each drawn experiment has its own; expected no such key",
        ),
        ("topics: [orders]}", "topics: [order]}", "experiment.groups.readers.topics[0]: unknown"),
        ("    brokers: 3", "    broker: 3", "experiment.cluster.broker: unknown key"),
    ],
)
def test_problem_of_a_space_is_reported_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """A problem has a line and a path in the file, and says what is wrong.

    Each case replaces the text `old` of VALID by `new`.
    """
    problems = problems_of(written(tmp_path, (old, new)))
    messages = "\n".join(str(problem) for problem in problems)

    assert message in messages, messages
    assert all(problem.line is not None for problem in problems)


def test_misspelt_word_has_a_near_miss(tmp_path: Path) -> None:
    """`crahs` resembles `crash`."""
    (problem,) = problems_of(written(tmp_path, ("kinds: {crash: 1", "kinds: {crahs: 1")))

    assert problem.near_miss == "crash"


def test_value_with_which_no_cluster_can_run_names_its_setting(tmp_path: Path) -> None:
    """Three replicas of `orders` do not fit on two brokers, so the value 2 is refused."""
    problems = problems_of(
        written(tmp_path, ("  cluster.brokers: [3, 4]", "  cluster.brokers: [3, 2]"))
    )

    # Lines are counted from 1.
    line_of_setting = VALID[: VALID.index("cluster.brokers: [3, 4]")].count("\n") + 1
    assert problems[0].line == line_of_setting
    assert "no experiment could be run with it" in problems[0].message
    # The replicas of the offsets topic do not fit either. This problem names the same value.
    assert {problem.path for problem in problems} == {"settings.cluster.brokers[1]"}


def test_two_contradicting_values_name_both_settings(tmp_path: Path) -> None:
    """Each value is valid alone, but some pairs of values contradict each other.

    The loader tries each pair. Otherwise the contradiction would show only when a seed draws both
    values. This space has two contradicting pairs:

    - a session of 47 s, while the brokers allow 46 s at most;
    - a session of 2 s, while the brokers demand 45 s at least.
    """
    path = written(
        tmp_path,
        (
            "  cluster.brokers: [3, 4]",
            "  groups.*.config.max.poll.interval.ms: [300000]\n"
            "  cluster.config.group.max.session.timeout.ms: [1800000, 46000]\n"
            "  cluster.config.group.min.session.timeout.ms: [1000, 45000]",
        ),
        ("ms: 9000,", "ms: 47000,"),
    )

    contradictions = [
        problem for problem in problems_of(path) if "does not go with" in problem.message
    ]

    assert {problem.path for problem in contradictions} == {
        "together.session[0]",
        "together.session[1]",
    }
    assert any(
        "does not go with 46000 (int) of "
        "`settings.cluster.config.group.max.session.timeout.ms[1]`" in problem.message
        for problem in contradictions
    )
