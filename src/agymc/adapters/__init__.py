"""Environments of other APIs, made to look like Gymnasium's: one module for each API."""
