"""Networks in forms that quantisers give them, and with quantisers placed at random: products on the core, equal
integers. `benchmarks/core/placement.py` runs all of them."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.core import placement
from benchmarks.zoo import placement_networks as networks

NAMES = list(networks.NETWORKS)
FORMS = networks.forms()
DIFFERENT = [(name, FORMS[(7 * number) % len(FORMS)]) for number, name in enumerate(NAMES)]


def _check(name: str, form: object, seed: int = 0) -> None:
    step = 2.0**-4 if form.power_of_two else 0.05  # type: ignore[attr-defined]
    result = placement.placed(networks.network(name, form, seed), "tiny", step)
    assert not result.fault, f"{name}: {form}: {result.fault}"


@pytest.mark.parametrize(("name", "form"), DIFFERENT, ids=lambda value: str(value))
def test_products_are_on_the_core_in_every_form(name: str, form: object) -> None:
    _check(name, form)


@pytest.mark.parametrize("seed", range(6))
def test_quantisers_placed_at_random(seed: int) -> None:
    (form,) = islice(networks.random_forms(seed), 1)
    _check(NAMES[seed % len(NAMES)], form, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6, 200))
def test_many_quantisers_placed_at_random(seed: int) -> None:
    (form,) = islice(networks.random_forms(seed), 1)
    _check(NAMES[seed % len(NAMES)], form, seed)


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_equal_quantisers_are_one(shared: float) -> None:
    """A pair for each of two readers: what is before them is computed once."""
    form = networks.Form(everywhere=0.0, shared=shared)
    assert placement.placed(networks.network("branches", form), "tiny", 0.05).repeated == 1
    g = networks.FormedGraph(form, 0)
    y = g.active(g.convolved(g.input("x", *networks.SHAPE), 8, 8))
    model = g.model(*(g.head(g.convolved(y, 8, 8)) for _ in range(2)))
    assert placement.placed(model, "tiny", 0.05).repeated == 1


def test_a_product_on_the_host_is_a_fault() -> None:
    g = networks.FormedGraph(networks.Form(), 0)
    w = g.constant(g.random.normal(size=(4, 8, 1, 1)), "f4")
    y = g.op("Conv", g.convolved(g.input("x", *networks.SHAPE), 8, 8), w)
    result = placement.placed(g.model(y), "tiny", 0.05)
    assert result.fault == "95% on the core"
