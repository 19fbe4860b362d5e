"""The paper's own numbers, as printed there: every table, CMC-Top1 and mAP in percent.

Cases are written as in the rest of the code: `B(new)/old` is B⊥(φ_new)/φ_old in the paper's tables
of an orthogonal B, and B_λ(φ_new)/φ_old in those of a near-orthogonal one.
"""

from __future__ import annotations

import math

INDEPENDENT, FCT, FASTFILL, OURS = "Ind. Train.", "FCT", "FastFill", "Ours"
Table = dict[tuple[str, str], tuple[float, ...]]

_MAPPED = ("F(old)/old", "F(old)/F(old)", "new/F(old)")
_OURS = ("F(old)/old", "F(old)/F(old)", "B(new)/F(old)", "B(new)/old", "B(new)/B(new)")
_METHODS = (
    (INDEPENDENT, ("old/old", "new/old", "new/new")),
    (FCT, _MAPPED),
    (FASTFILL, _MAPPED),
    (OURS, _OURS),
)


def _table(*values: tuple[float, ...], without: tuple[str, ...] = ()) -> Table:
    keys = [(m, case) for m, cases in _METHODS if m not in without for case in cases]
    return dict(zip(keys, values, strict=True))


# (CMC-Top1, mAP) of each method and case.
COMPATIBILITY: dict[str, Table] = {
    "Table 1a (ImageNet-1K, 500 → 1000 classes, ResNet-34 128-d)": _table(
        *((43.56, 25.18), (0.10, 0.15), (61.61, 35.69)),
        *((0.10, 0.15), (50.13, 30.93), (57.21, 33.00)),
        *((0.10, 0.15), (50.63, 31.48), (57.21, 33.19)),
        *((44.59, 26.70), (51.46, 33.75), (57.41, 34.53), (43.94, 25.75), (61.61, 35.69)),
    ),
    "Appendix A (Places, 205 → 365 classes, ResNet-50)": _table(
        *((33.86, 15.76), (0.21, 0.33), (37.37, 19.11)),
        *((0.21, 0.33), (36.43, 19.02), (37.04, 18.99)),
        *((0.21, 0.33), (39.71, 23.98), (38.42, 19.94)),
        *((38.65, 21.88), (39.96, 26.19), (38.50, 21.77), (35.47, 17.98), (37.37, 19.11)),
    ),
    "Table 1b (ImageNet-1K, ResNet-18 → ViT-L-16)": _table(
        *((55.62, 26.91), (0.04, 0.17), (76.62, 56.84)),
        *((0.04, 0.17), (59.39, 42.65), (72.54, 49.85)),
        *((0.04, 0.17), (61.17, 46.28), (73.33, 52.83)),
        *((60.83, 40.69), (61.10, 45.91), (73.53, 52.06), (65.54, 38.55), (76.62, 56.84)),
    ),
    "Appendix B (ImageNet-1K, DenseNet-121 → EfficientNet-B3)": _table(
        *((62.02, 32.95), (0.11, 0.16), (71.60, 54.90)),
        *((0.11, 0.16), (68.16, 53.22), (70.64, 54.63)),
        *((0.11, 0.16), (67.76, 57.22), (69.47, 57.43)),
        *((69.25, 50.20), (69.29, 57.36), (71.33, 57.50), (67.23, 44.34), (71.60, 54.90)),
    ),
    "Appendix C (ImageNet-1K, ResNet-18 → DINOv2 ViT-S-14)": _table(
        *((55.62, 26.91), (0.04, 0.17), (71.92, 44.07)),
        *((0.04, 0.17), (59.33, 37.53), (67.97, 41.07)),
        *((54.82, 32.14), (61.30, 41.95), (68.74, 43.78), (58.73, 31.50), (71.92, 44.07)),
        without=(FASTFILL,),
    ),
    "Appendix C (ImageNet-1K, ResNet-18 → CLIP CC12M)": _table(
        *((55.62, 26.91), (0.04, 0.17), (44.29, 16.15)),
        *((0.04, 0.17), (42.58, 16.93), (42.96, 16.88)),
        *((61.13, 41.22), (57.69, 41.08), (44.93, 29.26), (30.02, 16.68), (44.29, 16.15)),
        without=(FASTFILL,),
    ),
}

# (CMC-Top1,) of each method and case; the zero-shot change of B(new)/B(new) apart.
DOWNSTREAM: dict[str, Table] = {
    "Table 2 (CUB-200)": _table(
        *((44.82,), (0.4,), (71.78,)),
        *((0.04,), (51.10,), (62.13,)),
        *((0.4,), (54.50,), (61.49,)),
        *((51.12,), (59.92,), (70.72,), (60.64,), (75.44,)),
    ),
    "Table 2 (CIFAR-100)": _table(
        *((51.13,), (0.8,), (74.08,)),
        *((0.8,), (57.35,), (69.80,)),
        *((0.8,), (66.17,), (67.23,)),
        *((67.29,), (67.72,), (72.08,), (71.85,), (78.23,)),
    ),
    "Appendix D (Places365)": _table(
        *((22.41,), (0.20,), (35.15,)),
        *((0.20,), (28.17,), (32.12,)),
        *((0.20,), (26.38,), (33.04,)),
        *((28.84,), (29.80,), (33.27,), (29.94,), (36.38,)),
    ),
    "Appendix D (Flowers-102)": _table(
        *((84.35,), (1.20,), (99.39,)),
        *((1.20,), (86.71,), (99.07,)),
        *((1.20,), (53.78,), (11.12,)),
        *((83.36,), (89.90,), (99.41,), (98.17,), (99.54,)),
    ),
}
ZERO_SHOT = {
    "Table 2 (CUB-200)": 0.025,
    "Table 2 (CIFAR-100)": 0.112,
    "Appendix D (Places365)": 0.38,
    "Appendix D (Flowers-102)": 0.01,
}

# M̃ as (CMC-Top1, mAP).
BACKFILL: dict[str, dict[str, tuple[float, float]]] = {
    "Table 3 (extending classes)": {
        FCT: (58.72, 33.57),
        FASTFILL: (60.49, 35.59),
        OURS: (61.20, 36.46),
    },
    "Table 4 (independently pretrained)": {
        FCT: (73.86, 52.02),
        FASTFILL: (75.06, 55.34),
        OURS: (76.59, 57.72),
    },
}
ORDER_METRIC: dict[str, dict[str, tuple[float, float]]] = {
    "Appendix G (extending classes)": {"MSE": (61.20, 36.46), "cosine": (61.68, 37.10)},
    "Appendix G (independently pretrained)": {"MSE": (76.59, 57.72), "cosine": (76.49, 58.18)},
}

# λ → F(old)/F(old), B(new)/F(old), B(new)/B(new), zero-shot change; CMC-Top1 on CUB-200.
STRICT = -1.0
"""Stands for ⊥, an exactly orthogonal B."""
LAMBDA: dict[float, tuple[float, float, float, float]] = {
    STRICT: (57.52, 66.89, 71.78, 0.000),
    0: (57.49, 66.79, 71.54, -0.001),
    3: (57.52, 66.72, 72.00, 0.008),
    6: (58.09, 68.77, 73.07, 0.028),
    12: (59.92, 70.72, 75.44, 0.028),
    16: (59.68, 70.21, 76.40, 0.062),
    22: (60.20, 69.50, 77.89, -0.318),
    36: (59.32, 63.34, 78.77, -3.008),
    math.inf: (59.26, 62.84, 78.89, -3.526),
}

# (weight, regularizer) → F/F, B/F, B/B, zero-shot change, ‖WᵀW − I‖_F; CMC-Top1 on CUB-200.
REGULARIZERS: dict[tuple[float, str], tuple[float, float, float, float, float]] = {
    (1, "SO"): (57.48, 66.79, 71.54, -0.001, 0.09),
    (1, "SRIP"): (57.38, 66.57, 71.66, -0.001, 0.08),
    (1, "λ = 12"): (59.92, 70.72, 75.44, 0.028, 12.05),
    (0.1, "SO"): (59.11, 69.56, 74.88, 0.022, 9.50),
    (0.1, "SRIP"): (58.88, 63.58, 78.77, -1.467, 29.55),
    (0.1, "λ = 12"): (59.93, 70.70, 75.20, 0.076, 12.12),
    (0.01, "SO"): (59.06, 63.54, 79.06, -1.344, 29.27),
    (0.01, "SRIP"): (59.23, 63.42, 78.73, -3.077, 35.42),
    (0.01, "λ = 12"): (59.06, 63.54, 79.06, -1.344, 29.27),
    (0.001, "SO"): (58.71, 62.91, 78.78, -3.162, 35.54),
    (0.001, "SRIP"): (58.83, 63.18, 78.92, -3.457, 38.63),
    (0.001, "λ = 12"): (58.71, 62.91, 78.78, -3.162, 35.54),
}

# (L_F, L_B, L_C) → F/old, F/F, B/old, B/F, B/B; CMC-Top1.
LOSS_CASES = ("F(old)/old", "F(old)/F(old)", "B(new)/old", "B(new)/F(old)", "B(new)/B(new)")
Losses = dict[tuple[bool, bool, bool], tuple[float, float, float, float, float]]
_T, _F = True, False
LOSSES: dict[str, Losses] = {
    "Appendix F (ImageNet-1K, orthogonal B)": {
        (_T, _F, _F): (0.04, 59.09, 0.04, 72.27, 76.63),
        (_F, _T, _F): (0.04, 49.34, 62.75, 0.04, 76.63),
        (_F, _F, _T): (61.24, 58.63, 64.97, 60.83, 76.63),
        (_T, _T, _F): (54.18, 59.29, 62.77, 72.46, 76.63),
        (_T, _F, _T): (61.25, 60.43, 65.13, 73.44, 76.63),
        (_F, _T, _T): (60.85, 59.09, 65.42, 57.90, 76.63),
        (_T, _T, _T): (60.83, 61.10, 65.54, 73.53, 76.63),
    },
    "Appendix F (CUB-200, near-orthogonal B, λ = 12)": {
        (_T, _F, _F): (0.0, 51.72, 0.0, 63.82, 72.14),
        (_F, _T, _F): (0.0, 35.27, 45.80, 0.0, 71.91),
        (_T, _T, _F): (37.15, 47.56, 46.56, 60.70, 69.76),
        (_F, _F, _T): (52.79, 59.14, 58.38, 66.46, 73.36),
        (_T, _F, _T): (50.43, 59.88, 58.57, 70.13, 74.86),
        (_F, _T, _T): (53.27, 58.66, 60.45, 59.44, 73.12),
        (_T, _T, _T): (51.12, 59.92, 60.64, 70.72, 75.44),
    },
}
