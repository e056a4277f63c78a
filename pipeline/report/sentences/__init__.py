"""Facts for the page's sentences: each function fills a struct, and renders a macro with it.

The words themselves are in the macros (the sentences with places for facts) of the report's folder
`templates`.

Reading order: `fault_sentences`, `reading_words`, `answers`, `causes` (the first screen),
`chain_words`, `owner_story`.
"""
