"""What every solver works with: the search, its options and limits, and the door to HiGHS."""
