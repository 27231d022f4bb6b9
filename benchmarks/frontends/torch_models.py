"""Whole networks of PyTorch's model libraries, with random weights: read, compiled for this processor, beside eager.

    python benchmarks/frontends/torch_models.py         # all; the exit status is 1 where one differs
    python benchmarks/frontends/torch_models.py --only swin --json models.json
    python benchmarks/frontends/torch_models.py --read  # only read by the front end, not compiled

Needs `pip install 'weft[torch]' torchvision timm transformers`. Networks of `timm` are one small member of each family;
those of `transformers` have two layers. Every parameter and buffer is stirred first: as they are made, many are zero or
one everywhere, which hides what is done with them. A network counts as equal where the largest difference is at most
1e-4 of the largest result. Times are CPU seconds: of reading (`torch.export`, decompositions and the reader) and of
compiling.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import weft

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.common import Record, print_table, processor, write_json

TOLERANCE = 1e-4
SECONDS = 600.0
"""Of the processor, for one network."""

STIRRED = 0.3
"""How far a weight is moved at most: of its tensor's deviation, or of 1 where all are alike. So what is positive and
the same everywhere, as variances are made, stays positive."""

A_MASK = 1e4
"""Larger values mean "not this one", and stay as they are."""

TIMM = (
    "bat_resnext26ts", "botnet26t_256", "cait_xxs24_224", "coat_tiny", "coatnet_pico_rw_224", "convit_tiny",
    "convnext_zepto_rms", "convnextv2_atto", "cpubone_nano", "crossvit_tiny_240", "cs3darknet_focus_s", "csatv2",
    "davit_tiny", "deit_tiny_patch16_224", "densenetblur121d", "dla46x_c", "dpn48b", "edgenext_xx_small",
    "efficientformer_l1", "efficientformerv2_s0", "efficientvim_m1", "efficientvit_m0", "ese_vovnet19b_slim_dw",
    "eva02_tiny_patch14_224", "fasternet_t0", "fastvit_t8", "fbnetv3_b", "focalnet_tiny_srf", "gcresnext26ts",
    "gcvit_xxtiny", "ghostnetv3_050", "gmixer_12_224", "gmlp_ti16_224", "halonet_h1", "hardcorenas_b", "hgnetv2_b0",
    "hiera_tiny_224", "hrnet_w18_small", "iformer_t", "inception_next_atto", "lambda_resnet26t", "lcnetv2_small",
    "levit_128s", "maxvit_pico_rw_256", "mixnet_s", "mobilenetv3_small_050", "mobileone_s1", "mobilevit_xxs",
    "mobilevitv2_050", "mvitv2_tiny", "nest_tiny", "nf_regnet_b0", "pit_ti_224", "poolformerv2_s12", "pvt_v2_b0",
    "regnety_002", "repvgg_a0", "repvit_m1", "resmlp_12_224", "resnest14d", "resnetv2_18", "rexnet_100",
    "sebotnet33ts_256", "sequencer2d_s", "shvit_s1", "skresnet18", "starnet_s050", "swiftformer_xs",
    "swinv2_cr_tiny_224", "tf_mobilenetv3_small_075", "tiny_vit_5m_224", "tnt_s_legacy_patch16_224",
    "twins_svt_small", "vit_tiny_patch16_dinov3_qkvb", "volo_d1_224", "xcit_nano_12_p8_224",
)  # fmt: skip
TORCHVISION = (
    "googlenet",
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
    "efficientnet_b0",
    "vit_b_16",
    "lraspp_mobilenet_v3_large",
)
TRANSFORMERS = ("Bert", "DistilBert", "GPT2", "Llama", "Qwen3", "Gemma2", "Albert", "Electra", "GPTNeoX", "Phi")
TWO_LAYERS = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500,
    "intermediate_size": 128, "head_dim": 16, "n_embd": 64, "n_layer": 2, "n_head": 4, "dim": 64, "n_layers": 2,
    "n_heads": 4, "hidden_dim": 128, "embedding_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Sizes under the names that one or another configuration has for them."""


@dataclass(frozen=True)
class Tried:
    """``result``: "equal", "read", "different", or the error."""

    result: str
    difference: float = 0.0
    reading: float = 0.0
    compiling: float = 0.0


class Logits(torch.nn.Module):
    """The first tensor of what a network returns."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.network(x)
        while not isinstance(found, torch.Tensor):
            found = next(iter(found.values())) if hasattr(found, "values") else found[0]
        return found


def image_network(library: str, name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network of `timm` or `torchvision` and a picture of the size that it is made for."""
    if library == "torchvision":
        from torchvision import models

        return models.get_model(name, weights=None, **_torchvision_options(name)), torch.randn(1, 3, 224, 224)
    import timm

    network = timm.create_model(name)
    return network, torch.randn(1, *network.default_cfg.get("input_size", (3, 224, 224)))


def _torchvision_options(name: str) -> dict[str, Any]:
    return {"init_weights": False} if name == "googlenet" else {"weights_backbone": None} if "lraspp" in name else {}


def text_network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network of `transformers` with two layers and a text of nine tokens."""
    import transformers

    config = getattr(transformers, f"{name}Config")()
    for key, value in TWO_LAYERS.items():
        if hasattr(config, key):
            setattr(config, key, value)
    config.use_cache = False
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:2]
    return getattr(transformers, f"{name}Model")(config), torch.randint(3, 500, (1, 9))


def stir(network: torch.nn.Module) -> None:
    """Random changes of all float parameters and buffers, of which none is zero, or the same, everywhere then. What is
    nowhere negative, such as a variance, stays so."""
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            usual = tensor[tensor.abs() < A_MASK]
            spread = float(usual.std()) if usual.numel() > 1 else 0.0
            noise = (2 * torch.rand_like(tensor) - 1) * STIRRED * (spread or 1.0)
            stirred = tensor + noise if bool((tensor < 0).any()) else (tensor + noise).abs()
            tensor.copy_(torch.where(tensor.abs() < A_MASK, stirred, tensor))


def networks(only: str) -> dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]]:
    """Builders by name."""
    found: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {}
    for library, names in (("timm", TIMM), ("torchvision", TORCHVISION)):
        found |= {f"{library}/{name}": lambda at=(library, name): image_network(*at) for name in names}  # type: ignore[misc]
    found |= {f"transformers/{name}": lambda at=name: text_network(at) for name in TRANSFORMERS}  # type: ignore[misc]
    return {name: build for name, build in found.items() if only in name}


def tried(build: Callable[[], tuple[torch.nn.Module, torch.Tensor]], read_only: bool) -> Tried:
    """Read, compile, run and compare one network."""
    torch.manual_seed(0)
    network, x = build()
    stir(network)
    network = Logits(network).eval()
    with torch.no_grad():
        wanted = network(x).numpy()
    started = time.process_time()
    try:
        module = weft.from_torch(network, (x,))
        read = time.process_time()
        if read_only:
            return Tried("read", reading=read - started)
        loaded = weft.load(weft.compile(module, target="cpu"))
        compiled = time.process_time()
        (found,) = loaded.run({"x": x.numpy()}).values()
    except weft.WeftError as error:
        return Tried(f"refused: {error}".splitlines()[0])
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    result = "equal" if found.shape == wanted.shape and difference <= TOLERANCE else "different"
    return Tried(result, difference, read - started, compiled - read)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="networks whose name contains this, such as timm/ or swin")
    parser.add_argument("--read", action="store_true", help="only read, do not compile")
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    builders = networks(arguments.only)
    found: dict[str, Tried] = {}
    for name, each in Isolated(lambda name: _named(builders[name], arguments.read), SECONDS).run(list(builders)):
        found[name] = Tried(f"{each.state}: {each.message}") if isinstance(each, Broken) else each
        print(f"{name}: {found[name].result}", flush=True)
    good = sum(each.result in ("equal", "read") for each in found.values())
    rows = [(name, each.result[:60], f"{each.difference:.1e}", f"{each.reading:.1f}", f"{each.compiling:.1f}")
            for name, each in found.items()]  # fmt: skip
    print_table(f"networks of PyTorch ({processor()}, torch {torch.__version__}): {good} of {len(found)}",
                ("network", "result", "difference", "reading, CPU s", "compiling, CPU s"), rows)  # fmt: skip
    if arguments.json:
        records = [Record("cpu", name, "result", each.result, "equal") for name, each in found.items()]
        records += [Record("cpu", name, "reading, CPU s", round(each.reading, 2)) for name, each in found.items()]
        records += [Record("cpu", name, "compiling, CPU s", round(each.compiling, 2)) for name, each in found.items()]
        write_json(arguments.json, records)
    return int(good < len(found))


def _named(build: Callable[[], tuple[torch.nn.Module, torch.Tensor]], read_only: bool) -> Tried:
    """As `tried`; what is no refusal of weft's is a result as well, and the others go on."""
    try:
        return tried(build, read_only)
    except Exception as error:
        return Tried(f"failed: {type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    sys.exit(main())
