"""The files in folders called `scenarios/` are read, played and rewritten correctly.

Such a file is a transcript: a test in the form of a dialog. TEXT below is an example. It begins
with a comment. The next line is the scene, here a coordinator. Settings of the coordinator could
follow in the same line. The rest of the file consists of stories, and a story consists of steps. A
step consists of commands, the line `----`, and the output that the commands must have.

A player executes the commands. Pytest compares their output with the output in the file. With the
option `--rewrite`, pytest writes the new output into the file instead. A person then looks at what
has changed.
"""

from pathlib import Path

import pytest

from tests.support.transcripts.collector import PLAYERS, new_player
from tests.support.transcripts.story_file import NotATranscript, StoryFile, read_story_file
from tests.support.transcripts.words import UnknownWord, bytes_text, read_bytes, read_command

FILES = sorted(Path(__file__).parents[2].glob("**/scenarios/*.txt"))
# The output of the first story is wrong: the right answer is MEMBER_ID_REQUIRED. The second story
# has a step that begins with `given`, and no output yet.
TEXT = """\
# What it is about.

coordinator

== first ==
# A comment of the story.

# Before the command.
join client=a
----
#1 JoinGroup NONE

== second ==

given
join client=a
----
"""


@pytest.fixture
def differing_file(tmp_path: Path) -> StoryFile:
    """Return a file with TEXT. The output of its first story is wrong."""
    path = tmp_path / "stories.txt"
    path.write_text(TEXT, encoding="utf-8")
    return read_story_file(path)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_file_is_written_as_it_is_read(path: Path) -> None:
    """Reading a file and writing it again changes nothing, so `--rewrite` changes only outputs."""
    story_file = read_story_file(path)
    assert story_file.text() == path.read_text(encoding="utf-8")
    name_of_player = story_file.scene[0].split()[0]
    assert name_of_player in PLAYERS


def test_story_with_another_result_fails_and_its_text_is_rewritten(
    differing_file: StoryFile,
) -> None:
    """The story that was played has the right output, so it differs from the story in the file.

    The rewritten text has all lines of the old text except the wrong output. So the comments and
    the second story are kept.
    """
    first_story, second_story = differing_file.stories
    player = new_player(differing_file)
    player.play(differing_file.scene)
    played = first_story.played(player.play)
    assert played != first_story
    assert played.steps[0].output[0] == "#1 JoinGroup MEMBER_ID_REQUIRED member_id=a-1"

    rewritten = differing_file.with_story(played)
    assert rewritten.stories == (played, second_story)
    new_lines = rewritten.text().splitlines()
    missing = [line for line in TEXT.splitlines() if line not in new_lines]
    assert missing == ["#1 JoinGroup NONE"]


def test_given_step_prints_the_state_alone(differing_file: StoryFile) -> None:
    """A step that begins with `given` brings about a state, which is its only output.

    The answers to its commands do not matter, and are left out.
    """
    _first_story, second_story = differing_file.stories
    player = new_player(differing_file)
    (step,) = second_story.played(player.play).steps
    # A line about the group and a line about the timers, but no line with the answer to the join.
    assert [line.split()[0] for line in step.output] == ["group", "timers:"]


def test_two_stories_of_one_name_are_refused(tmp_path: Path) -> None:
    """If two stories had the same name, a rewrite could not tell which of them to change."""
    path = tmp_path / "stories.txt"
    path.write_text(TEXT.replace("second", "first"), encoding="utf-8")
    with pytest.raises(NotATranscript, match="two stories are called 'first'"):
        read_story_file(path)


@pytest.mark.parametrize(
    "line",
    [
        "jion",  # no command
        "join sesion=5",  # no setting of this command
        "coordinator group.max.sise=4",  # no setting of a scene
        "hold on",  # a command that has no such argument
    ],
)
def test_unknown_word_in_a_command_is_refused(differing_file: StoryFile, line: str) -> None:
    """If unknown words were ignored, a misspelt setting would have no effect, unnoticed."""
    with pytest.raises(UnknownWord):
        new_player(differing_file).play((line,))


@pytest.mark.parametrize("data", [b"", b"one", b"\x00\x01'\\", b"\xff a=b,c"])
def test_bytes_are_read_as_they_are_written(data: bytes) -> None:
    """Bytes are written as one word of a command, even if they contain spaces or quotes."""
    word = bytes_text(data)
    assert read_bytes(word) == data

    (word_read,) = read_command(f"sync {word}").words
    # Empty bytes are written as ''. In a command, '' is an empty word.
    assert read_bytes(word_read or "''") == data


def test_subscription_is_written_as_its_topics() -> None:
    """`bar+foo` is a member's subscription to two topics. Its bytes would tell a reader nothing."""
    assert bytes_text(read_bytes("bar+foo")) == "bar+foo"
