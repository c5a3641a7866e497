"""Measuring the memory: corpora and streams of facts, metrics, baselines, reports."""
