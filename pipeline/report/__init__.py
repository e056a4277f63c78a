"""One run, or a few, as one HTML file that opens offline: what broke, for whom, how long, why.

Public: `build.build_report(directory, facts)`, which writes `<run>/report.html`. It reads the
tables that Spark wrote, never events, and does not import Spark; what stands in the run's JSON
files comes in as `facts.RunFacts`.

Reading order: `facts` and `report_input` (what goes in), `run_names`; `charts`, `columns` (tables)
and `lanes` (pictures); `rendering` and `templates` (all words and markup), `sentences` (the facts
that they say), `sections` (one module each), `two_designs` (groups on ZooKeeper beside others),
`build` (which sections, in what order), `page` (sections to HTML), `comparison_page` with
`deploy_comparison`. Of the files in `assets`, `report.js`, `time_axis.js` and `navigation.js` are
one script, in this order.
"""
