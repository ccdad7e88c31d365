"""Choice graphs: nodes with options, a cost for every pair of options of neighbours, a limit on usage at any moment."""
