"""What every solver works with: the search record, its options and budget, and the interfaces to HiGHS."""
