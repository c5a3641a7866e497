"""Prefect flows: thin recipes whose steps are tasks. Importing this settles where Prefect keeps its state."""

from __future__ import annotations

from tasks.prefect_home import prepare_environment

prepare_environment()
