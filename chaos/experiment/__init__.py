"""The experiment file: its structs, its reader, and the errors that it can have.

Reading order: `structs`, `yaml_document` (values that know their line), `shape` (types and bounds),
`overrides` (`--var`), `rules` (settings that must fit each other), `problems`, `loader` (all of
it), `dump` (the way back), `json_schema` and `field_docs`.
"""
