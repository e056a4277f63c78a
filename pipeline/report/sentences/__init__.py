"""Facts in words, as the sections say them.

Reading order: `words` and `prose` (names, numbers, lists), `worst` (the longest gap), `causes`,
`answers`, `fault_sentences`, `reading_words`, `commit_words`, `phase_words`, `chain_words`,
`member_steps`, `owner_story`.
"""
