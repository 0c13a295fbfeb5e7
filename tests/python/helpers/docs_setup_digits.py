# SPDX-License-Identifier: Apache-2.0
"""`train_set`, as the pages' examples use it: scikit-learn's 1,797 images of handwritten digits."""

import torch
from sklearn.datasets import load_digits

_digits = load_digits()
train_set = torch.utils.data.TensorDataset(
    torch.tensor(_digits.images, dtype=torch.float32) / 16, torch.tensor(_digits.target)
)
