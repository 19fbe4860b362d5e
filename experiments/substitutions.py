"""What stands in for the paper's data in a run, said plainly."""

from __future__ import annotations

KNOWN = {
    "tinyimagenet-extending-classes": (
        "Tiny-ImageNet-200 (64×64) in place of ImageNet-1K: ResNet-34 with 128 dimensions, the old "
        "one trained on the first 100 classes, the new one on all 200. The adapters are learned "
        "from 40,000 training images, which both backbones have seen, as in the paper."
    ),
    "tinyimagenet-architecture": (
        "Tiny-ImageNet-200 in place of ImageNet-1K, and ResNet-18 (512) → ResNet-50 (1024), both "
        "trained on it, in place of ResNet-18 → ViT-L-16. Adapters learned from 10,000 images."
    ),
    "flowers102-downstream": (
        "EfficientNet-Lite0 → Lite2 (both 1280-d, ImageNet-1K weights) in place of ResNet-18 → "
        "ViT-L-16. 2,100 training and 2,000 test images of Flowers-102; zero-shot is measured on "
        "2,000 Tiny-ImageNet images in place of ImageNet-1K. Here the new model is *not* better "
        "than the old one on the task."
    ),
    "banking77-text": (
        "Text in place of images: 77 intents of banking77, sentence embeddings. There is no "
        "zero-shot set and no classifier of the new model: FastFill's is fitted on the new vectors."
    ),
}


def said(name: str) -> str:
    """For a features file of that name."""
    return KNOWN.get(name, f"Run on {name} in place of the paper's data.")
