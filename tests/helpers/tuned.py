"""Suites whose learning rates another suite has tried."""

from __future__ import annotations

TUNED = {
    "baselines_personal": "baselines_personal_lr",
    "baselines_global": "baselines_global_lr",
    "methods": "methods_lr",
    "methods_apart": "methods_apart_lr",
    "attacks": "attacks_lr",
}
