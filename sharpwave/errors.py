"""The error tree: each branch answers "what can the caller do about it?".

SharpwaveError
├── UserError           the input or the configuration must be changed; retrying is useless
│   ├── InputError      a fact, file or argument is wrong; names file, line and field
│   ├── ConfigError     a profile or setting is wrong
│   └── StoreError      the store on disk does not fit the request (no store, other embedder, unknown id)
├── TransientError      the same call may succeed later; the only branch that tasks retry
│   └── StoreBusyError  another process holds the write lock or the database
├── IntegrityError      something on disk is damaged; names the file and the command that repairs it
│   └── WeightsError    model weights are missing, damaged or loaded incompletely
└── TrainingError       a write-back could not be finished; the former generation stays current
"""

from __future__ import annotations


class SharpwaveError(Exception):
    """Everything this project raises on purpose."""


class UserError(SharpwaveError):
    """The request must be changed before it can succeed."""


class InputError(UserError):
    """A fact, file or argument is wrong."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        place = ", ".join(
            part
            for part in (
                file,
                f"line {line}" if line is not None else None,
                f"field '{field}'" if field else None,
            )
            if part
        )
        super().__init__(f"{place}: {message}" if place else message)
        self.file = file
        self.line = line
        self.field = field


class ConfigError(UserError):
    """A profile, a setting or an override is wrong."""


class StoreError(UserError):
    """The store on disk does not fit the request."""


class TransientError(SharpwaveError):
    """The same call may succeed later."""


class StoreBusyError(TransientError):
    """Another process holds the write lock or the database."""


class IntegrityError(SharpwaveError):
    """Something on disk is damaged; the message names the command that repairs it."""


class WeightsError(IntegrityError):
    """Model weights are missing, damaged or were loaded incompletely."""


class TrainingError(SharpwaveError):
    """A write-back could not be finished; the former generation stays current."""
