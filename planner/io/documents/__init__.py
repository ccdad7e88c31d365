"""Text, JSON and YAML, whatever it holds: read as a tree that knows its lines, checked by a schema, and written."""
