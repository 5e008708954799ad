"""Draws are those of the documented derivation, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from fedsuite.core.seeds import generator, integer


def crc32(text: str) -> int:
    """CRC-32 (IEEE 802.3), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in text.encode():
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("seed", "purpose", "numbers", "raw"),
    [
        (0, "batches", (1, 2), [17614025560870714859, 14031381754597977956]),
        (7, "batches", (3, 2), [16561590394098131366, 6534386248486681982]),
        (7, "probe", (), [10856196751497111609, 13589189392215431076]),
    ],
)
def test_a_generator_is_pcg64_of_seed_purpose_and_numbers(
    seed: int, purpose: str, numbers: tuple[int, ...], raw: list[int]
) -> None:
    """CRC-32 of "batches" is 4033766739; the raw numbers are PCG64's for these words."""
    words = [seed, crc32(purpose), *numbers]
    expected = np.random.PCG64(np.random.SeedSequence(words)).random_raw(2)
    drawn = generator(seed, purpose, *numbers).bit_generator.random_raw(2)
    assert drawn.tolist() == expected.tolist() == raw


def test_an_integer_is_the_generators_first_of_31_bits() -> None:
    assert integer(0, "batches", 1, 2) == 1445773044
    assert integer(7, "batches", 3, 2) == 836686034
    assert all(0 <= integer(seed, "partition") < 2**31 - 1 for seed in range(50))


def test_every_number_of_the_derivation_counts() -> None:
    draws = [
        integer(0, "a", 1, 2),
        integer(1, "a", 1, 2),
        integer(0, "b", 1, 2),
        integer(0, "a", 2, 1),
        integer(0, "a", 1),
        integer(0, "a"),
    ]
    assert len(set(draws)) == 6
