"""``weft verify``: a proof that the programs in an artifact compute their model, for all inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..progress import progress
from ..runtime.artifact import load as load_artifact
from .app import app
from .output import JsonOption, KernelsOption, SignatureOption, err, input_file, out, print_json
from .source import given_file

if TYPE_CHECKING:
    from ..verify import Certificate


def print_certificate(certificate: Certificate) -> None:
    """What was proved, and what was not."""
    for alarm in certificate.alarms:
        out.print(f"not proved: {alarm}", highlight=False, markup=False, soft_wrap=True)
    for what in certificate.trusted:
        out.print(f"trusted: {what}", highlight=False, markup=False, soft_wrap=True)
    out.print(certificate.summary(), highlight=False, markup=False, soft_wrap=True)


@app.command()
def verify(
    artifact: Annotated[Path, typer.Argument(help="What 'weft compile' wrote.")],
    model: Annotated[
        Path | None,
        input_file("--model", "-m", help="The model that it was made of. Without: the artifact's own graph."),
    ] = None,
    kernels: KernelsOption = None,
    signature: SignatureOption = None,
    integers: Annotated[
        str | None, typer.Option(help="The option of that name at compilation. Default: what the artifact says.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Repeat a proof: the seed that it printed. Default: a new one.")
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Proofs with other random numbers: chances of error multiply.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Prove that an artifact's programs compute a model for all inputs. The exit status is 1 if they are not proved."""
    if model is None:
        for flag, value in (("--integers", integers), ("--kernels", kernels), ("--signature", signature)):
            if value is not None:
                raise typer.BadParameter("it says how a model is read, but none is given: --model", param_hint=flag)
    compiled = load_artifact(artifact)
    chosen = None if seed is None else _seed(seed)
    from ..api import certify

    with progress("proving", err):
        whole = None if model is None else given_file(model, kernels, signature)
        certificate = certify(compiled, whole, integers=integers, seed=chosen, repeat=repeat)
    if as_json:
        print_json(certificate.record())
    else:
        print_certificate(certificate)
    if not certificate.proved:
        raise typer.Exit(1)


def _seed(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no hexadecimal number", param_hint="--seed") from None
