"""The metrics of GLUE (Wang et al., ICLR 2019, section 3) over a whole set, in percent.

If all predictions are equal, the formulas divide by 0; correlations and F1 are then 0.
"""

import numpy as np
from scipy.stats import rankdata


def f1(predicted: np.ndarray, true: np.ndarray) -> float:
    """F1 of class 1 (N zeros and ones each), for MRPC and QQP: 2·TP / (2·TP + FP + FN)."""
    hits = np.sum(predicted * true)
    wrong = np.sum(predicted != true)
    return 100 * 2 * hits / (2 * hits + wrong) if hits else 0.0


def pearson(predicted: np.ndarray, true: np.ndarray) -> float:
    """Pearson correlation of two vectors (N numbers each), the metric of STS-B.

    Of zeros and ones, it is Matthews correlation, the metric of CoLA.
    """
    x = predicted.astype(np.float64)
    x = x - x.mean()
    y = true.astype(np.float64)
    y = y - y.mean()
    scale = np.sqrt((x @ x) * (y @ y))
    # Also False where a diverged model predicts NaN.
    return float(100 * (x @ y) / scale) if scale > 0 else 0.0


def spearman(predicted: np.ndarray, true: np.ndarray) -> float:
    """Spearman correlation (N numbers each), for STS-B: Pearson's of the ranks, ties averaged."""
    return pearson(rankdata(predicted), rankdata(true))
