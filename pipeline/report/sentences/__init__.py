"""Collects the facts for the sentences of the page.

The sentences themselves are Jinja2 macros in the report's folder `templates`. A function here
collects the facts for a macro in a struct, and passes the struct to the macro.

Reading order: `fault_sentences`, `reading_words`, `answers`, `causes` (the first screen),
`chain_words`, `owner_story`.
"""
