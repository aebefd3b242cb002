"""The part that matches and rankings share: names of items, and the columns of items and contexts."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from kpp.data.tables import Schema

Levels = tuple[tuple[str, tuple[Any, ...]], ...]


class AbstractDescribedItems(eqx.Module):
    """Data on items in contexts, both of which are described by columns; `Matches` documents the fields."""

    item_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    feature_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    levels: Levels = eqx.field(static=True, default=(), kw_only=True)
    booleans: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    context_names: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)
    context_levels: Levels = eqx.field(static=True, default=(), kw_only=True)
    context_booleans: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)

    @property
    def schema(self) -> Schema:
        """The columns of `items`."""
        return Schema(self.feature_names, dict(self.levels), self.booleans)

    @property
    def context_schema(self) -> Schema:
        """The columns of `contexts`."""
        return Schema(self.context_names, dict(self.context_levels), self.context_booleans)

    def description(self) -> dict[str, Any]:
        """Return the fields of this class by name."""
        return {name: getattr(self, name) for name in AbstractDescribedItems.__dataclass_fields__}


def described_by(schema: Schema) -> dict[str, Any]:
    """Return the fields that describe the columns of items."""
    return {"feature_names": schema.feature_names, "levels": tuple(schema.levels.items()), "booleans": schema.booleans}


def contexts_described_by(schema: Schema) -> dict[str, Any]:
    """Return the fields that describe the columns of contexts."""
    fields = described_by(schema)
    return {f"context_{name.removeprefix('feature_')}": value for name, value in fields.items()}
