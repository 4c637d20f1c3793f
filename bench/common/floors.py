"""The least possible time of a convolution: its operations and bytes at the rates of an H200. Needs no torch."""

# Measured ceilings of an H200: FLOP/s of matrix products of 8192^3, and bytes/s of a copy (read + written).
# `highest` has the TF32 ceiling: its products of split operands run on the same units.
FLOPS = {"high": 356e12, "highest": 356e12, "medium": 672e12, "bf16": 672e12, "f16": 672e12}
BYTES_PER_SECOND = 4.3e12
ELEMENT_BYTES = {"high": 4, "highest": 4, "medium": 4, "bf16": 2, "f16": 2}


def floor_ms(operations, elements, precision):
    return 1e3 * max(operations / FLOPS[precision], elements * ELEMENT_BYTES[precision] / BYTES_PER_SECOND)


def touching_pairs(big, small, kernel, stride, padding, dilation):
    """Pairs of a coarse cell and a tap that touch a cell of the fine grid; padding crops some of them."""
    pairs = 1
    for axis in range(3):
        pairs *= sum(0 <= i * stride[axis] - padding[axis] + k * dilation[axis] < big[axis]
                     for i in range(small[axis]) for k in range(kernel[axis]))
    return pairs
