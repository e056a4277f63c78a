"""The reader, player and writer of the transcripts in `scenarios/`.

A transcript is a file with a scene (a coordinator or a cluster with its settings) and stories. A
story is a list of steps: commands, the line `----`, and their expected output. A player executes
the commands and returns the actual output. Pytest compares the two, and with `--rewrite` writes the
actual output into the file. The first line of a scene names its player (`coordinator` here).
"""

from pathlib import Path

import pytest

from tests.support.transcripts.collector import PLAYERS, new_player
from tests.support.transcripts.story_file import NotATranscript, StoryFile, read_story_file
from tests.support.transcripts.words import UnknownWord, bytes_text, read_bytes, read_command

FILES = sorted(Path(__file__).parents[2].glob("**/scenarios/*.txt"))
# A transcript of two stories. The output of the first is wrong: a join without an id is answered
# with MEMBER_ID_REQUIRED. The second uses `given`, whose commands lead to a state.
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
    """Return the file TEXT, whose first story has a wrong output."""
    path = tmp_path / "stories.txt"
    path.write_text(TEXT, encoding="utf-8")
    return read_story_file(path)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_file_is_written_as_it_is_read(path: Path) -> None:
    """A file that is read and written again has the same bytes.

    So a rewrite changes only outputs.
    """
    story_file = read_story_file(path)
    assert story_file.text() == path.read_text(encoding="utf-8")
    assert story_file.scene[0].split()[0] in PLAYERS


def test_story_with_another_result_fails_and_its_text_is_rewritten(
    differing_file: StoryFile,
) -> None:
    """Comments and the other story are kept in the rewritten text."""
    first, second = differing_file.stories
    player = new_player(differing_file)
    player.play(differing_file.scene)
    played = first.played(player.play)
    assert played != first
    assert played.steps[0].output[0] == "#1 JoinGroup MEMBER_ID_REQUIRED member_id=a-1"
    rewritten = differing_file.with_story(played)
    assert rewritten.stories == (played, second)
    before, after = (text.splitlines() for text in (TEXT, rewritten.text()))
    assert [line for line in before if line not in after] == ["#1 JoinGroup NONE"]


def test_given_step_prints_the_state_alone(differing_file: StoryFile) -> None:
    """The output of a `given` step is the state that its commands lead to.

    The outputs of the commands themselves are left out.
    """
    _, second = differing_file.stories
    player = new_player(differing_file)
    (step,) = second.played(player.play).steps
    # A line for the group, and one for the timers; no line for the answer to the join.
    assert [line.split()[0] for line in step.output] == ["group", "timers:"]


def test_two_stories_of_one_name_are_refused(tmp_path: Path) -> None:
    """Names must differ, because a rewrite could not tell which of the two it should change."""
    path = tmp_path / "stories.txt"
    path.write_text(TEXT.replace("second", "first"), encoding="utf-8")
    with pytest.raises(NotATranscript, match="two stories are called 'first'"):
        read_story_file(path)


@pytest.mark.parametrize(
    "line", ["jion", "join sesion=5", "coordinator group.max.sise=4", "hold on"]
)
def test_unknown_word_in_a_command_is_refused(differing_file: StoryFile, line: str) -> None:
    """If unknown words were ignored, a misspelt command would play another story than is written.

    The lines have, in this order, an unknown command, an unknown setting of a command, an unknown
    setting of the scene, and a wrong argument.
    """
    with pytest.raises(UnknownWord):
        new_player(differing_file).play((line,))


@pytest.mark.parametrize("data", [b"", b"one", b"\x00\x01'\\", b"\xff a=b,c"])
def test_bytes_are_read_as_they_are_written(data: bytes) -> None:
    """Bytes are written as one word of a command, even if they contain spaces or quotes."""
    word = bytes_text(data)
    assert read_bytes(word) == data
    # Empty bytes are written as ''. The command's parser reads '' as an empty word.
    (read,) = read_command(f"sync {word}").words
    assert read_bytes(read or "''") == data


def test_subscription_is_written_as_its_topics() -> None:
    """A subscription is encoded bytes, which a reader of a transcript could not read."""
    assert bytes_text(read_bytes("bar+foo")) == "bar+foo"
