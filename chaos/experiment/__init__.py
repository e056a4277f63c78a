"""The experiment file: its structs, its reader, and the errors that it can have.

Reading order: `structs`, `yaml_document` (values that know their line), `problems` (errors and
warnings), `struct_walk` (the fields of all structs, paths into a file), `schema_errors` (types and
bounds), `shape_repair` (lets the rules judge a file with such errors), `overrides` (`--var`),
`rules` (settings that must fit each other), `notes` (defaults that a reader must know), `loader`
(reads a file, with the help of all modules before it), `dump` (writes a file), `json_schema` (for
editors).
"""
