"""The pages of CuTe's first tutorial say every key of their specs."""

from __future__ import annotations

from tests.house.test_systems import mapped, written

NT, TN = "simt_sgemm_nt", "simt_sgemm_tn"


def test_the_page_maps_every_key_of_its_spec() -> None:
    assert mapped(NT) == written(NT)


def test_the_other_side_differs_in_what_its_page_says() -> None:
    nt, tn = written(NT), written(TN)
    assert mapped(TN) == {key: value for key, value in tn.items() if value != nt[key]}
    assert set(nt) == set(tn)
