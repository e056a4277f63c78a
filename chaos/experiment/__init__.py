"""The experiment file: its structs, its reader, and the errors that it can have.

Reading order: `structs`, `yaml_document` (values that know their line), `problems`,
`struct_walk` (the fields of all structs, paths into a file), `schema_errors` (types and bounds),
`shape_repair` (what can be judged beside them), `overrides` (`--var`), `rules` (settings that must
fit each other), `notes` (defaults that a reader has to know), `loader` (all of it), `dump` (the way
back), `json_schema` (for editors).
"""
