"""Models from configuration files of Hugging Face transformers, described without torch or transformers."""
