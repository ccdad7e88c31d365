"""AutoPipe's partition of the layers into stages, used by `autopipe` and `autopipe-h`."""
