"""Conformity of our cluster with Kafka: the share of equal steps in the transcripts of a folder.

A transcript is a recording of a scenario with a real Kafka cluster. Its steps are requests with
Kafka's answers, and actions such as the death of a broker. The requests are sent to our cluster. A
step is equal if our answer does not differ from Kafka's answer (`comparison`). The result says, for
example, that 118 of 120 steps with OffsetCommit are equal.
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
"""Maximum number of runs of one transcript.

The transcript is run again until the same members lead their groups as in the recording. Each run
has other member ids, and their hashes decide which member leads (see `judge_transcript`).
"""


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A step that differs from Kafka, with the fields of its Difference.

    - `n`: the number of the step.
    - `api`, `version`: the API and the version of the request. If the step is an action, `api` is
      the name of the action, and `version` is None.
    - `what`: the kind of the difference.
    - `field`: the field of the answer that differs. If `what` is BROKEN (our run failed) or
      NOT_CARRIED_OUT (our cluster cannot do the action), `field` has the reason instead.
    - `expected`, `came`: words for what Kafka did, and for what our cluster did.
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
        """The share in percent; 100 if there are no steps."""
        return 100.0 if self.steps == 0 else 100.0 * self.equal / self.steps


class FileConformity(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one transcript.

    - `steps`: the number of requests, plus the number of actions that could not be carried out.
      Actions that were carried out are not counted, because they have no answer to compare.
    - `differences`: the differences in the order of the steps, at most one for each step.
    - `unknown_settings`: the recorded settings that this project does not have.
    - `steps_by_api`: the number of steps with each API or action; their sum is `steps`.
    - `seed`: the seed of the run that was compared.
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
        """True if a generation of a group has another leader than in the recording."""
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

    The leader of a group is the member that computes the assignment. When the leader leaves, Kafka
    chooses the next leader by the hashes of the member ids. The ids are random, so the choice
    differs from run to run. So if a run has another leader than the recording, the transcript is
    played again, with other ids. The first run with the recorded leaders counts. If no run has
    these leaders, the run with the fewest differences counts.

    Raises: TranscriptError if the transcript has settings that Kafka would refuse.
    """
    best: FileConformity | None = None
    for seed in range(1, LEADER_TRIES_MAX + 1):
        result = judge_run(transcript, rules, seed=seed)
        if not result.chose_another_leader:
            return result
        if best is None or len(result.differences) < len(best.differences):
            best = result
    if best is None:  # impossible, because at least one run was tried: for the type checker
        raise ValueError("no run was tried")
    return best


def judge_run(transcript: Transcript, rules: ComparisonRules, *, seed: int) -> FileConformity:
    """Play a transcript once, with ids that are drawn from `seed`, and return its differences.

    If a bug of this project ends the run, every request counts as different, with the error as the
    reason.

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
        # Some lists in answers have an order only in some versions of Kafka.
        kafka_version=transcript.kafka,
        # The recording has symbols in place of generated ids. The bindings have our ids for them.
        bindings=played.bindings,
    )
    differences: list[StepDifference] = []
    steps_by_api: dict[str, int] = {}
    for step in transcript.steps:
        if isinstance(step, ActionStep):
            # None if the action was carried out; the step is not counted then.
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
    """Return the share of equal steps of each API and action, by name."""
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
    """Return the share of equal steps in each folder, by its path."""
    grouped: dict[str, list[FileConformity]] = {}
    for file in files:
        grouped.setdefault(str(Path(file.file).parent), []).append(file)
    return {folder: share_of(grouped[folder]) for folder in sorted(grouped)}


def share_of(files: Iterable[FileConformity]) -> Share:
    """Return the share of equal steps in all files together."""
    listed = list(files)
    return Share(equal=sum(file.equal for file in listed), steps=sum(file.steps for file in listed))
