"""The report: figures and one self-contained page about runs."""
