"""Plans as other training frameworks take them: one writer for each."""
