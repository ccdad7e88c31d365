"""`plan profile`: measures layers, links and devices."""
