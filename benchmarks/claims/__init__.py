"""The papers' claims held against committed rows of runs: collect, judge, write the page."""
