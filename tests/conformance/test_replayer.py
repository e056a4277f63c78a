"""The replayer notices wrong answers, and answers at a wrong time or in a wrong order.

A recording has requests that were sent to a real Kafka, with their times, and Kafka's answers. The
replayer sends the requests to our simulated cluster at the same times, and compares the answers.

Most tests take a recording with which our cluster agrees, and change it in one place. Our cluster
still answers as before, so the replayer must report a difference at this place.

A step is a request with its answer. Steps are counted from 1, so that `steps[1]` is step 2. In the
recording `generations` this is the JoinGroup of a new member.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.conformance.conformity import FileConformity, judge_run, judge_transcript
from chaos.conformance.replayer import play_transcript
from chaos.conformance.transcript import TranscriptError, read_rules, read_transcript

TRANSCRIPTS = Path(__file__).parent / "transcripts"
SCENARIOS = TRANSCRIPTS / "3.9" / "scenarios"
FAILOVER = TRANSCRIPTS / "3.9" / "failover"
RULES = read_rules(TRANSCRIPTS)

Recording = dict[str, Any]


def judge_changed(
    folder: Path, name: str, tmp_path: Path, change: Callable[[Recording], None]
) -> FileConformity:
    """Change a copy of a recording, play the copy, and return the result of the comparison."""
    recording = json.loads((folder / f"{name}.json").read_text())
    change(recording)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(recording))
    return judge_transcript(read_transcript(path), RULES)


def differing(conformity: FileConformity) -> dict[int, str]:
    """Return for each step that differs the kind of the difference: {2: "time"}."""
    return {difference.n: difference.what for difference in conformity.differences}


def change_nothing(_recording: Recording) -> None:
    """Leave the recording as Kafka made it."""


def test_followed_recording_has_no_difference(tmp_path: Path) -> None:
    assert differing(judge_changed(SCENARIOS, "generations", tmp_path, change_nothing)) == {}


def test_wrong_answer_is_a_difference_of_its_step_only(tmp_path: Path) -> None:
    """The later steps are compared as if this answer were right."""

    def change(recording: Recording) -> None:
        answer = recording["steps"][1]["response"]
        assert answer["generation_id"] == 1
        answer["generation_id"] = 2

    found = judge_changed(SCENARIOS, "generations", tmp_path, change)
    (only,) = found.differences
    assert str(only) == "step 2 JoinGroup v9: answer generation_id: expected 2, came 1"


def test_wrong_time_of_an_answer_is_noticed(tmp_path: Path) -> None:
    """A new group waits 500 ms for more members, but the changed recording says 700 ms.

    The difference of 200 ms is larger than the tolerance of 150 ms.
    """

    def change(recording: Recording) -> None:
        join = recording["steps"][1]
        assert 500 < join["answered_ms"] - join["at_ms"] < 540
        join["answered_ms"] += 200
        # The later steps move as well, so that only step 2 differs.
        for later in recording["steps"][2:]:
            later["at_ms"] += 200
            later["answered_ms"] += 200

    assert differing(judge_changed(SCENARIOS, "generations", tmp_path, change)) == {2: "time"}


def test_missing_answer_is_a_difference(tmp_path: Path) -> None:
    """Neither Kafka nor our cluster answers an OffsetFetch without groups.

    But the changed recording says that Kafka did.
    """

    def change(recording: Recording) -> None:
        unanswered = recording["steps"][3]
        assert unanswered["outcome"].startswith("no answer within")
        del unanswered["outcome"]
        unanswered.update(
            answered_ms=unanswered["at_ms"] + 1,
            # The answers of a recording are numbered in their order. This answer is the last.
            answer_seq=99,
            response={"throttle_time_ms": 0, "groups": []},
        )

    assert differing(judge_changed(SCENARIOS, "fetch-groups", tmp_path, change)) == {4: "no answer"}


def test_answer_that_kafka_did_not_give_is_a_difference(tmp_path: Path) -> None:
    def change(recording: Recording) -> None:
        recording["steps"][0].update(
            answered_ms=None, response=None, outcome="no answer within 3000 ms"
        )

    found = judge_changed(SCENARIOS, "find-versions", tmp_path, change)
    assert differing(found)[1] == "answered"


def test_unknown_api_is_not_implemented_and_the_other_steps_are_played(tmp_path: Path) -> None:
    def change(recording: Recording) -> None:
        recording["steps"][0]["api"] = "ShareFetch"

    found = judge_changed(SCENARIOS, "hb-no-group", tmp_path, change)
    assert str(found.differences[0]) == "step 1 ShareFetch v4: not implemented: ShareFetch v4"
    assert found.equal == found.steps - 1


def test_unknown_action_is_a_step_that_differs(tmp_path: Path) -> None:
    def change(recording: Recording) -> None:
        steps = recording["steps"]
        steps.append(
            {
                "n": 99,
                "action": "shake",
                "at_ms": recording["end_ms"],
                "args": {},
                "done_ms": recording["end_ms"],
            }
        )

    found = judge_changed(SCENARIOS, "generations", tmp_path, change)
    (only,) = found.differences
    assert str(only) == "step 99 shake: not carried out: not implemented"


def test_unknown_setting_is_reported_by_name(tmp_path: Path) -> None:
    def change(recording: Recording) -> None:
        recording["config"]["group.telepathy.enable"] = True

    found = judge_changed(SCENARIOS, "generations", tmp_path, change)
    assert found.unknown_settings == ("group.telepathy.enable",)


def test_settings_of_the_recording_are_applied(tmp_path: Path) -> None:
    """The recording sets the initial delay of a new group to 500 ms; without it Kafka waits 3 s.

    Then the recording ends before the first join is answered.
    """

    def change(recording: Recording) -> None:
        del recording["config"]["group.initial.rebalance.delay.ms"]

    assert differing(judge_changed(SCENARIOS, "generations", tmp_path, change))[2] == "no answer"


def test_failover_recording_is_played_on_three_brokers(tmp_path: Path) -> None:
    """In this recording the coordinator is killed, and another broker loads the group.

    Each request is sent to the broker that the recording names. So if the last Heartbeat, step 15,
    is changed to name a broker that is not the coordinator, the answer differs.
    """

    def ask_the_other_broker(recording: Recording) -> None:
        heartbeats = [step for step in recording["steps"] if step.get("api") == "Heartbeat"]
        assert heartbeats[-1]["broker"] == 0
        heartbeats[-1]["broker"] = 1

    # Our failover does not take as long as Kafka's. So times and the order of answers may differ.
    # But no answer itself may differ, and no answer may be missing.
    same = judge_changed(FAILOVER, "fo-kill-session", tmp_path, change_nothing)
    assert not {"answer", "no answer", "ended"} & set(differing(same).values())
    assert 10 not in differing(same), "step 10 goes to the dead broker: both refuse the connection"

    changed = judge_changed(FAILOVER, "fo-kill-session", tmp_path, ask_the_other_broker)
    assert set(differing(changed)) - set(differing(same)) == {15}


def test_replay_of_a_recording_with_one_seed_is_deterministic() -> None:
    """Two replays with the same seed have the same times and answers."""
    transcript = read_transcript(FAILOVER / "fo-pingpong.json")
    first, second = (
        [
            (step.sent_us, step.ended_us, step.response)
            for step in play_transcript(transcript, RULES, seed=3).steps
        ]
        for _ in range(2)
    )
    assert first == second


def test_recorded_leader_is_reached_by_trying_other_member_ids() -> None:
    """Kafka chooses the leader of a group by the hashes of the member ids, which are random.

    Our cluster draws other ids, so it may choose another member as leader. Then `judge_transcript`
    tries other seeds, each of which draws other ids, until the recorded member is the leader.
    """
    transcript = read_transcript(TRANSCRIPTS / "3.9" / "fuzz" / "fuzz-0164.json")
    assert judge_run(transcript, RULES, seed=1).chose_another_leader
    conformity = judge_transcript(transcript, RULES)
    assert conformity.seed > 1
    assert conformity.differences == ()


def test_leader_that_no_member_ids_lead_to_is_a_difference(tmp_path: Path) -> None:
    """The only member of the group is its leader, whatever its id is. So no seed can help."""

    def change(recording: Recording) -> None:
        recording["steps"][1]["response"]["leader"] = "someone"

    found = judge_changed(SCENARIOS, "generations", tmp_path, change)
    (only,) = found.differences
    assert (only.n, only.field) == (2, "leader")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda recording: recording["steps"][1].pop("version"),
            "step 2: Object missing required field `version`",
        ),
        (
            lambda recording: recording["steps"][1]["request"].update(session_timeout_ms="6 s"),
            "step 2: JoinGroup v9: request.session_timeout_ms: expected an integer, got '6 s'",
        ),
        (
            lambda recording: recording["steps"][1]["request"].pop("reason"),
            "step 2: JoinGroup v9: request.reason: missing, v9 has it",
        ),
        (
            lambda recording: recording["steps"][1]["request"].update(rack="a"),
            "step 2: JoinGroup v9: request.rack: there is no such field in v9",
        ),
        (
            lambda recording: recording["steps"][1]["request"]["protocols"][0].update(
                metadata={"hex": "zz"}
            ),
            "step 2: request.protocols[0].metadata: expected hexadecimal digits, got 'zz'",
        ),
        (
            lambda recording: recording["steps"][1]["request"].update(member_id="<member:77>"),
            "step 2: request: no symbol <member:77> in `symbols`",
        ),
        (
            lambda recording: recording["steps"][1].update(response=None),
            "step 2: `response` and `answered_ms` belong together",
        ),
        (lambda recording: recording.pop("end_ms"), "Object missing required field `end_ms`"),
    ],
)
def test_bad_file_is_refused_with_step_and_field(
    change: Callable[[Recording], None], complaint: str, tmp_path: Path
) -> None:
    """A recording is not played if its requests do not fit Kafka's schema of their versions."""
    with pytest.raises(TranscriptError) as caught:
        judge_changed(SCENARIOS, "generations", tmp_path, change)
    assert str(caught.value.problems[0]).startswith(f"{tmp_path / 'generations.json'}: {complaint}")


def test_exception_of_our_own_code_leaves_no_equal_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The exception is reported as a difference, and is not raised.

    Otherwise one bug would hide the results of all other recordings.
    """

    def fail(*_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("coordinator.coordinator.handle_heartbeat", fail)
    conformity = judge_changed(SCENARIOS, "hb-no-group", tmp_path, change_nothing)
    assert conformity.equal == 0
    assert conformity.differences[0].what == "broken"
    assert "a bug" in conformity.differences[0].field


def test_setting_that_kafka_refuses_is_a_bad_file(tmp_path: Path) -> None:
    def change(recording: Recording) -> None:
        recording["config"]["group.max.size"] = "many"

    with pytest.raises(TranscriptError, match=r"config: Expected `int`, got `str`"):
        judge_changed(SCENARIOS, "generations", tmp_path, change)
