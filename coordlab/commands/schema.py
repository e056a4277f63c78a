"""`schema`: the JSON Schema of experiment files."""

import click

from chaos.experiment.json_schema import encoded_schema
from coordlab.options import with_examples
from results_schema.results import EXIT_PASS


@click.command("schema", cls=with_examples("schema > experiment.schema.json"))
def schema_command() -> int:
    """Print the JSON Schema of experiment files, for editors and other tools.

    Editors with the YAML language server complete and explain keys in a file whose first line is
    `# yaml-language-server: $schema=experiment.schema.json`; `init` writes that line.
    """
    click.echo(encoded_schema(), nl=False)
    return EXIT_PASS
