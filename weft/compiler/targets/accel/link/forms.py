"""The forms in which a core computes depthwise convolutions. The default is chosen by the estimate (`slices`,
`passes/chain`); a tuning database may say another.

"vector": on the vector engine. "mode": in the array's depthwise mode, which a core may lack. "array": on the array by
diagonal matrices, where it is square. "shared": the array takes some channel groups, the vector engine the others.
"""

DEPTHWISE = "depthwise_conv2d"
"""The kind of such a layer's kernels."""

VECTOR, MODE, ARRAY, SHARED = FORMS = ("vector", "mode", "array", "shared")
