"""What options are made of: values read from text, types of files, and groups of options."""
