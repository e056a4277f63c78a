"""Facts in words, as the sections say them.

Reading order: `markup` (sentences, links, lists), `fault_sentences`, `reading_words`, `causes`,
`answers`, `chain_words`, `member_steps`, `owner_story`.
"""
