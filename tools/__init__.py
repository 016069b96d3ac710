"""Programs for those who work on Runnel; none of them is shipped."""
