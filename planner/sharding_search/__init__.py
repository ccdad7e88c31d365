"""The search for how a whole model is divided over one group of devices: operators with strategies, as a choice graph.

The setting of AutoDDL (IEEE TPDS 2024): no pipeline; every device has a part of every layer.
"""
