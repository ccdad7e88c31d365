"""Lower bounds of large choice graphs: multipliers on usage around a dual ascent on what is pairwise."""
