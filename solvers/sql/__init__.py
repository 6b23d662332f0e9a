"""SQL in and SQL out: what a query means as a request, and a plan as a query. Knows sqlglot and the wire, and no search."""
