"""Collects the facts for the sentences of the page.

The sentences themselves are in macros, with places for facts. The macros are in the report's folder
`templates`. A function here fills a struct with facts, and renders a macro with it.

Reading order: `fault_sentences`, `reading_words`, `answers`, `causes` (the first screen),
`chain_words`, `owner_story`.
"""
