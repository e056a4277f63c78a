"""Conformity of our cluster with Kafka: the share of equal steps in the transcripts of a folder.

A transcript is a recording of requests to a real Kafka cluster, with its answers. Each request is a
step, and so is each action, such as the death of a broker. The requests are sent to our cluster,
and a step is equal if our answer does not differ from Kafka's (`comparison`). The result is, for
example, "OffsetCommit: 118 of 120 steps are equal".
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from chaos.conformance.comparison import BROKEN, NOT_CARRIED_OUT, Difference, compare
from chaos.conformance.recorded_cluster import unknown_settings
from chaos.conformance.replayer import play_transcript
from chaos.conformance.transcript import ActionStep, ComparisonRules, Transcript
from protocol.errors import InvariantViolation, SimulationError

LEADER_TRIES_MAX = 64
"""Limit of the runs of one transcript. It is run again until its group leaders are as recorded.

Each run has other member ids, whose hashes decide which member leads: see `judge_transcript`.
"""


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A step that differs from Kafka's, with the fields of its Difference.

    - `n`: the number of the step.
    - `api`, `version`: of the request. If the step is an action, its name and None.
    - `what`: the kind of the difference.
    - `field`: the field of the answer that differs. If `what` is BROKEN (our run failed) or
      NOT_CARRIED_OUT (our cluster cannot do the action), it has the reason instead.
    - `expected`, `came`: the texts of Kafka's value and of ours.
    """

    n: int
    api: str
    version: int | None
    what: str
    field: str
    expected: str
    came: str

    def __str__(self) -> str:
        version = "" if self.version is None else f" v{self.version}"
        difference = Difference(
            what=self.what, field=self.field, expected=self.expected, came=self.came
        )
        return f"step {self.n} {self.api}{version}: {difference}"


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Number of equal steps, out of all steps."""

    equal: int
    steps: int

    @property
    def percent(self) -> float:
        """The share in percent; 100 without steps."""
        return 100.0 if self.steps == 0 else 100.0 * self.equal / self.steps


class FileConformity(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one transcript.

    - `steps`: number of requests, plus number of actions that could not be carried out. Actions
      that were carried out are not counted, because they have no answer to compare.
    - `differences`: in the order of the steps, at most one for each step.
    - `seed`: the seed of the compared run.
    """

    file: str
    id: str
    steps: int
    differences: tuple[StepDifference, ...]
    unknown_settings: tuple[str, ...]
    steps_by_api: dict[str, int]
    seed: int

    @property
    def chose_another_leader(self) -> bool:
        """True if a generation began with another leader than in the recording."""
        return any(
            difference.api == "JoinGroup" and difference.field == "leader"
            for difference in self.differences
        )

    @property
    def equal(self) -> int:
        """Number of equal steps."""
        return self.steps - len(self.differences)


def judge_transcript(transcript: Transcript, rules: ComparisonRules) -> FileConformity:
    """Play a transcript and return its differences.

    The leader of a group is the member that computes the assignment. When it leaves, Kafka chooses
    the next leader by the hash order of random member ids, so the choice differs from run to run.
    If a run has another leader than the recording, it is repeated with other ids. The first run
    with the recorded leaders counts. If no run has them, the one with the fewest differences
    counts.

    Raises: TranscriptError if the transcript has settings that Kafka would refuse.
    """
    best: FileConformity | None = None
    for seed in range(1, LEADER_TRIES_MAX + 1):
        result = judge_run(transcript, rules, seed=seed)
        if not result.chose_another_leader:
            return result
        if best is None or len(result.differences) < len(best.differences):
            best = result
    if best is None:
        raise ValueError("no run was tried")
    return best


def judge_run(transcript: Transcript, rules: ComparisonRules, *, seed: int) -> FileConformity:
    """Play a transcript once, with ids from `seed`, and return its differences.

    If an error of this project ends the run, every request counts as different, with the error as
    its reason.

    Raises: TranscriptError if the transcript has settings that Kafka would refuse.
    """
    try:
        return _play_and_compare(transcript, rules, seed)
    except (SimulationError, InvariantViolation) as error:
        return _all_broken(transcript, seed, repr(error))


def _all_broken(transcript: Transcript, seed: int, reason: str) -> FileConformity:
    """Return a result in which every request is BROKEN, for `reason`."""
    steps_by_api: dict[str, int] = {}
    for step in transcript.requests:
        steps_by_api[step.api] = steps_by_api.get(step.api, 0) + 1
    return FileConformity(
        file=transcript.path,
        id=transcript.id,
        steps=len(transcript.requests),
        differences=tuple(
            StepDifference(
                n=step.n,
                api=step.api,
                version=step.version,
                what=BROKEN,
                field=reason,
                expected="",
                came="",
            )
            for step in transcript.requests
        ),
        unknown_settings=unknown_settings(transcript),
        steps_by_api=steps_by_api,
        seed=seed,
    )


def _play_and_compare(transcript: Transcript, rules: ComparisonRules, seed: int) -> FileConformity:
    """Play a transcript, compare each answer with Kafka's, and count the steps."""
    played = play_transcript(transcript, rules, seed=seed)
    differences_by_step = compare(
        played.steps,
        rules,
        # The version of the recorded cluster. In some answers the order of items depends on it.
        kafka_version=transcript.kafka,
        # The recording has symbols in place of generated ids. These are our ids for the symbols.
        bindings=played.bindings,
    )
    differences: list[StepDifference] = []
    steps_by_api: dict[str, int] = {}
    for step in transcript.steps:
        if isinstance(step, ActionStep):
            reason = played.not_carried_out.get(step.n)
            if reason is not None:
                steps_by_api[step.action] = steps_by_api.get(step.action, 0) + 1
                differences.append(
                    StepDifference(
                        n=step.n,
                        api=step.action,
                        version=None,
                        what=NOT_CARRIED_OUT,
                        field=reason,
                        expected="",
                        came="",
                    )
                )
            continue
        steps_by_api[step.api] = steps_by_api.get(step.api, 0) + 1
        difference = differences_by_step.get(step.n)
        if difference is not None:
            differences.append(
                StepDifference(
                    n=step.n,
                    api=step.api,
                    version=step.version,
                    what=difference.what,
                    field=difference.field,
                    expected=difference.expected,
                    came=difference.came,
                )
            )
    return FileConformity(
        file=transcript.path,
        id=transcript.id,
        steps=sum(steps_by_api.values()),
        differences=tuple(differences),
        unknown_settings=unknown_settings(transcript),
        steps_by_api=steps_by_api,
        seed=seed,
    )


def shares_by_api(files: Iterable[FileConformity]) -> dict[str, Share]:
    """Return the share of each API, by name."""
    steps: dict[str, int] = {}
    different: dict[str, int] = {}
    for file in files:
        for api, count in file.steps_by_api.items():
            steps[api] = steps.get(api, 0) + count
        for difference in file.differences:
            different[difference.api] = different.get(difference.api, 0) + 1
    return {
        api: Share(equal=steps[api] - different.get(api, 0), steps=steps[api])
        for api in sorted(steps)
    }


def shares_by_folder(files: Iterable[FileConformity]) -> dict[str, Share]:
    """Return the share of each folder, by its path."""
    grouped: dict[str, list[FileConformity]] = {}
    for file in files:
        grouped.setdefault(str(Path(file.file).parent), []).append(file)
    return {folder: share_of(grouped[folder]) for folder in sorted(grouped)}


def share_of(files: Iterable[FileConformity]) -> Share:
    """Return the share of all files together."""
    listed = list(files)
    return Share(equal=sum(f.equal for f in listed), steps=sum(f.steps for f in listed))
