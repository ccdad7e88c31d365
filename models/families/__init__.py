"""Model families of the catalogue: layers with analytic costs, described without torch."""
