"""Collects the facts for the sentences of the page.

The sentences themselves are in the report's folder `templates`, as Jinja2 macros that take facts. A
function here fills a struct with the facts and passes it to a macro.

Reading order: `fault_sentences`, `reading_words`, `answers`, `causes` (the first screen),
`chain_words`, `owner_story`.
"""
