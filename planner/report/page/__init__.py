"""One offline HTML page about a plan."""
