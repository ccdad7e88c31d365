"""VGG16 on small images, which a processor trains with 32 samples in seconds."""

from stagecut.models.families.vgg import VggShape
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.models.modules.vgg import vgg_modules

SIDE = 64
"""Pixels; 224 takes twelve times as long."""


def vgg16() -> ModuleChain:
    """All 13 convolutions and 3 linear layers, without dropout, so that a step can be compared with one process."""
    return vgg_modules(f"vgg16-{SIDE}", VggShape(repeats=(2, 2, 3, 3, 3), side=SIDE), dropout=0.0)
