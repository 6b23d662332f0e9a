"""Tables on Spark: their bindings checked against their databases, and the versions of those that are kept."""
