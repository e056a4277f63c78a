"""The JSON files of a run's directory: `chaos` writes them, `pipeline` and `coordlab` read them.

Reading order: `forms` (which forms of these files can be read), `manifest` (manifest.json: what the
run is made of), `journal` (journal.json: each fault and what became of it), `results`
(results.json: verdict, checks and findings), `evidence_text` (a row of the trace as a line of a
finding's story). Knows `protocol` only.
"""
