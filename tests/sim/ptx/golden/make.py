"""PTX of the kernels in kernels.cu, by NVIDIA's own compiler; it needs no GPU.

pip install nvidia-cuda-nvrtc-cu12==12.9.86
python tests/sim/ptx/golden/make.py
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

FOLDER = Path(__file__).parent
ARCHITECTURE = "compute_80"


def library() -> ctypes.CDLL:
    import nvidia.cuda_nvrtc

    folder = Path(next(iter(nvidia.cuda_nvrtc.__path__)), "lib")
    return ctypes.CDLL(str(next(folder.glob("libnvrtc.so*"))))


def compiled(source: str, options: list[str]) -> str:
    nvrtc, program = library(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(each.encode() for each in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    get = ("ProgramLog", "PTX")[status == 0]
    getattr(nvrtc, f"nvrtcGet{get}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{get}")(program, text)
    if status:
        raise SystemExit(text.value.decode())
    return text.value.decode()


def main() -> None:
    source = "#define INFINITY __int_as_float(0x7f800000)\n" + (FOLDER / "kernels.cu").read_text()
    text = compiled(source, [f"-arch={ARCHITECTURE}", "-default-device"])
    (FOLDER / "kernels.ptx").write_text(re.sub(r"[ \t]+\n", "\n", re.sub(r"\n{3,}", "\n\n", text)))


if __name__ == "__main__":
    main()
