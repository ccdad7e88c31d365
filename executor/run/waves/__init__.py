"""`plan run` for plans of virtual workers that train through waves."""
