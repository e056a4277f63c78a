"""Facts that the page says in sentences: each function fills a struct, a template says it.

The words are in the folder `templates` of the report.

Reading order: `fault_sentences`, `reading_words`, `answers`, `causes` (the first screen),
`chain_words`, `owner_story`.
"""
