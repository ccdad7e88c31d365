"""Stages whose devices divide every operator of their layers among them."""
