"""Prefect tasks made from the pure functions, and the tracker that writes to MLflow."""

from __future__ import annotations

from tasks.prefect_home import prepare_environment

prepare_environment()
