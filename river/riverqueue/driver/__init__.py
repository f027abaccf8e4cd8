"""Drivers of this layer's clients."""

from __future__ import annotations

from .driver_protocol import AsyncDriverProtocol, DriverProtocol

__all__ = ["AsyncDriverProtocol", "DriverProtocol"]
