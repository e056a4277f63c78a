"""The JSON files of a run's directory: `chaos` writes them, `pipeline` and `coordlab` read them.

Reading order: `forms` (readable formats of these files), `manifest` (manifest.json: inputs of the
run), `journal` (journal.json: each fault and its outcome), `results` (results.json: verdict, checks
and findings), `evidence_text` (trace rows as lines of text). Imports `protocol` only.
"""
