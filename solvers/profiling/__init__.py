"""From rows to statistics: counting what joins in a sample, and how sure that is."""
