"""One run, or a few, as one HTML file that opens offline: what broke, for whom, how long, why.

Public: `build.build_report(directory, facts)`, which writes `<run>/report.html`. It reads the
tables that Spark wrote, never events, and imports neither Spark nor anything of the lab but the
protocol; what stands in the run's JSON files comes in as `facts.RunFacts`.

Reading order: `facts`, `run_tables` (what goes in), `chart` (what a section is made of), one module
a section, then `build` and `page` (sections to HTML) with the files in `assets`.
"""
