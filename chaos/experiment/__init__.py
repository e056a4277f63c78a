"""The experiment file: its structs, its reader, and the errors that it can have.

Reading order: `structs`, `yaml_document` (values that know their line), `problems` (errors and
warnings), `struct_walk` (the fields of all structs, and paths into a file), `schema_errors` (errors
of types and bounds), `shape_repair` (how the rules can judge a file that has such errors),
`overrides` (the option `--var`), `rules` (settings that must fit each other), `notes` (defaults
that a reader must know), `loader` (reads a file, with the help of all modules before), `dump`
(writes a file), `json_schema` (a schema for editors).
"""
