"""Quantised weights come back exactly as their integers, scale and zero point say, under their own names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file

from quantised import write_quantised
from understill.models.unpack import dequantise, read_weights

SCALES = st.floats(2.0**-40, 2.0**10, width=32)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@given(data=st.data())
def test_each_value_is_the_difference_times_the_scale_rounded_once(kind: type[np.integer], data: st.DataObject) -> None:
    limits = np.iinfo(kind)
    integers = data.draw(arrays.arrays(kind, arrays.array_shapes(max_dims=2)))
    scale, zero = data.draw(SCALES), data.draw(st.integers(int(limits.min), int(limits.max)))
    values = dequantise(integers, np.asarray(scale, np.float32), np.asarray(zero, kind))
    assert values.dtype == np.float32
    assert values.shape == integers.shape
    for integer, value in zip(integers.flat, values.flat, strict=True):
        exact = (int(integer) - zero) * Fraction(scale)
        # Python rounds a fraction to a float correctly, and these products need no more bits than that has.
        assert Fraction(float(exact)) == exact
        assert value == np.float32(float(exact))


def test_an_encoders_weights_come_back_under_the_names_they_had(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    held = {name: value for name, value in load_file(tiny / "model.safetensors").items() if "pooler" not in name}
    # Of a fresh model all biases are zero and alike; a mix-up among them has to show.
    random = np.random.default_rng(0)
    held = {name: random.normal(size=value.shape).astype(np.float32) for name, value in held.items()}
    expected = write_quantised(held, tmp_path / "model.onnx")
    result = read_weights(tmp_path / "model.onnx")
    assert result.keys() == held.keys()
    for name, value in result.items():
        assert value.dtype == np.float32 and value.flags.c_contiguous
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
        # Half a step of 8 bits is the most that rounding may have cost.
        assert abs(value - held[name]).max() <= np.ptp(held[name]) / 250, name
