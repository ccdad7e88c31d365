"""What Sphinx needs to know about these pages; see docs/conf.py."""
