"""Reading and writing files: the only place that knows JSON, YAML and pydantic."""
