"""JSON and YAML of any kind: reading into a tree with line numbers, validation by a schema, atomic writing."""
