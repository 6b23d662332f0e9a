"""What every room uses: deadlines, errors, tolerances, gaps, words for people."""
