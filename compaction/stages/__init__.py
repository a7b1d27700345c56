"""The four stages of a compaction, one file each: prune, boundary, summarize, assemble."""
