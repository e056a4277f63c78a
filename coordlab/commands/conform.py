"""`conform`: compares this cluster with real Kafka, request by request.

A transcript is a recording of real Kafka: it has requests to a cluster, and the answers of the
cluster, with their times. The command sends the same requests to a cluster of this project, and
compares the answers. A request with its answer is called a step. The output has the number of equal
steps of each transcript:

      31/31   3.9/join/first_member.json
      12/14   3.9/failover/loading.json
              ... (the first difference)
"""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from chaos.conformance.conformity import (
    FileConformity,
    Share,
    judge_transcript,
    share_of,
    shares_by_api,
    shares_by_folder,
)
from chaos.conformance.recorded_cluster import cluster_of
from chaos.conformance.transcript import (
    Transcript,
    TranscriptError,
    find_transcripts,
    read_rules,
    read_transcript,
)
from chaos.experiment.problems import Problem
from coordlab.console import print_document
from coordlab.options import json_option, with_examples
from results_schema.results import EXIT_PASS, EXIT_VIOLATED

_MAX_DIFFERENCE_LENGTH = 320
"""Number of characters after which the text of a difference is cut. `--json` has the whole text."""


@click.command(
    "conform",
    cls=with_examples(
        "conform tests/conformance/transcripts",
        "conform tests/conformance/transcripts/3.9/failover --all",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Print every difference of a file.")
@json_option("share, equal_files, by_folder, by_api, files (with every difference)")
def conform_command(directory: Path, show_all: bool, json: bool) -> int:
    """Play recordings of real Kafka against this cluster in virtual time, and compare the answers.

    DIR is a folder of transcripts, or one transcript. Each request is sent at its recorded time on
    its connection; every answer is compared field by field, also in its time and its place in the
    order. tests/conformance/transcripts/README.md has the format of transcripts. Exit code 0: all
    steps are equal; 1: a step differs; 254: a file is no transcript.
    """
    console = Console()
    # Some differences do not count: for example, Kafka does not define the order of some lists. The
    # index file of the transcripts says which differences these are.
    rules = read_rules(directory)
    # Playing all files takes a while. A mistake in a file should be found before that. So all files
    # are read first.
    transcripts = _read_all(find_transcripts(directory))
    files: list[FileConformity] = []
    for transcript in transcripts:
        conformity = judge_transcript(transcript, rules)
        files.append(conformity)
        if not json:
            _print_file(console, conformity, show_all=show_all)
    if json:
        print_document(console, _document(files))
    else:
        _print_totals(console, files)
    return EXIT_VIOLATED if any(file.differences for file in files) else EXIT_PASS


def _read_all(paths: Sequence[Path]) -> list[Transcript]:
    """Return every transcript. Raises: TranscriptError with all problems of all transcripts."""
    problems: list[Problem] = []
    transcripts: list[Transcript] = []
    for path in paths:
        try:
            transcript = read_transcript(path)
            cluster_of(transcript)  # raises TranscriptError for settings that Kafka refuses
            transcripts.append(transcript)
        except TranscriptError as error:
            problems += error.problems
    if problems:
        raise TranscriptError(problems)
    return transcripts


def _print_file(console: Console, file: FileConformity, *, show_all: bool) -> None:
    """Print the number of equal steps of a file, and its first difference or all differences."""
    style = "red" if file.differences else "green"
    _print(console, f"[{style}]{file.equal:4}/{file.steps:<4}[/] {escape(file.file)}")
    differences = file.differences if show_all else file.differences[:1]
    for difference in differences:
        text = str(difference)
        if len(text) > _MAX_DIFFERENCE_LENGTH:
            text = f"{text[:_MAX_DIFFERENCE_LENGTH]} ..."
        _print(console, f"          {escape(text)}")
    if file.unknown_settings:
        names = ", ".join(file.unknown_settings)
        _print(console, f"          [yellow]settings that coordlab lacks:[/] {escape(names)}")


def _print_totals(console: Console, files: Sequence[FileConformity]) -> None:
    """Print the number of equal steps for each API, for each folder, and in total."""
    for title, shares in (
        ("by API", shares_by_api(files)),
        ("by folder", shares_by_folder(files)),
    ):
        _print(console, f"\n{title}")
        for name, share in shares.items():
            _print(console, f"  {_share_text(share)}  {escape(name)}")
    total = share_of(files)
    _print(
        console,
        f"\n{total.equal:,} of {total.steps:,} steps are equal ({total.percent:.2f} %); "
        f"{_count_equal_files(files)} of {len(files)} files are equal as a whole",
    )


def _count_equal_files(files: Sequence[FileConformity]) -> int:
    """Return the number of files whose steps are all equal."""
    return sum(not file.differences for file in files)


def _share_text(share: Share) -> str:
    """Return a share as text: ` 85.71 %     12/14   `."""
    return f"{share.percent:6.2f} %  {share.equal:5}/{share.steps:<5}"


def _document(files: Sequence[FileConformity]) -> dict[str, object]:
    """Return the document that `--json` prints."""
    return {
        "share": share_of(files),
        "equal_files": _count_equal_files(files),
        "by_folder": shares_by_folder(files),
        "by_api": shares_by_api(files),
        "files": [
            {
                "file": file.file,
                "id": file.id,
                "equal": file.equal,
                "steps": file.steps,
                "seed": file.seed,
                "unknown_settings": file.unknown_settings,
                "differences": file.differences,
            }
            for file in files
        ],
    }


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
