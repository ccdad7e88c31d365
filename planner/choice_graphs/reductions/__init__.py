"""Steps that make a choice graph smaller and keep an optimum; what they leave out can be put back."""
