"""Layers of language models: what the page says of the selected kernels beside torch.matmul."""

from __future__ import annotations

import json

import pytest

from tests.gpu.measured import STORED, geometric_mean
from tests.plan.pages import words_of

US = json.loads(STORED.with_name("h100_layers.json").read_text())["us"]
PAGE = words_of("performance_h100.md")
ROWS = ((1, 8), (16, 48), (64, 192), (256, 512), (1024, 4096))


def row_of(name: str, times: list[list[float]]) -> str:
    graph, launch = ([us[which] / us[which + 1] for us in times] for which in (0, 2))
    figures = (geometric_mean(graph), min(graph), geometric_mean(launch), min(launch))
    return f"| {name} | {len(times)} | " + " | ".join(f"{each:.2f}" for each in figures) + " |"


def test_the_page_has_the_times() -> None:
    for least, most in ROWS:
        times = [us for text, us in US.items() if least <= int(text.partition("x")[0]) <= most]
        assert row_of(f"{least} to {most}", times) in PAGE
    assert row_of("all", list(US.values())) in PAGE


def test_the_readme_has_the_mean() -> None:
    mean = geometric_mean([torch_us / us for torch_us, us, *_ in US.values()])
    layers = len({tuple(map(int, text.split("x")[1:])) for text in US})
    rows = len({text.partition("x")[0] for text in US})
    page = words_of("../README.md")
    assert f"[{layers} layers of language models](docs/performance_h100.md" in page
    assert f"at {rows} numbers of rows {mean:.2f}" in page


def test_the_page_says_which_are_slower_than_torch() -> None:
    graph = {text: us[0] / us[1] for text, us in US.items()}
    most = min(graph, key=graph.__getitem__).replace("x", " x ")
    slower = sum(each < 1 for each in graph.values())
    assert f"In the graph {slower} of the {len(US)} are slower than torch, {most} the most." in PAGE


def test_the_page_names_the_layers() -> None:
    layers = {tuple(map(int, text.split("x")[1:])) for text in US}
    rows = {text.partition("x")[0] for text in US}
    assert f"{len(layers)} layers" in PAGE
    assert f"{len(rows)} numbers of rows" in PAGE
    (least_n, least_k), (most_n, most_k) = min(layers), max(layers)
    assert f"N x K from {least_n} x {least_k} to {most_n} x {most_k}" in PAGE


TRAINING = {"TN": "layer", "TT": "gradient of the input", "NT": "gradient of the weight"}


@pytest.mark.parametrize("majors", TRAINING)
def test_the_page_has_the_times_in_training(majors: str) -> None:
    times = json.loads(STORED.with_name("h100_training.json").read_text())["us"][majors].values()
    fastest = "" if majors == "TN" else f"{geometric_mean([us / best for _, us, _, _, best in times]):.2f} "
    assert row_of(f"{TRAINING[majors]}, {majors}", list(times)) + f" {fastest}|" in PAGE
