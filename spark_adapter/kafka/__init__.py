"""Topics of Kafka as streams and as sinks, read and written by Spark's own connector.

`connector` finds the connector's jars, `topics` decodes records and makes them, `brokers` looks before a start whether topics and offsets are
there, `letters` writes records that do not decode to a topic, `failures` says in a sentence what ended a pipeline.
"""
