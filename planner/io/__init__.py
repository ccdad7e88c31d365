"""Files in and out: the only place that knows JSON, YAML and pydantic."""
