"""What the schema of LiteRT files numbers: operators, element types, and the fields of operators' options."""

from __future__ import annotations

from dataclasses import dataclass

CUSTOM = "CUSTOM"

_OPERATORS = (
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR "
    "FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC "
    "LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH "
    "SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN "
    "GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM "
    "STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM "
    "CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN "
    "TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT "
    "REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY "
    "SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS "
    "SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE "
    "MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 "
    "DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D "
    "IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE "
    "VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM "
    "MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX "
    "UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC "
    "STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP "
    "STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL "
    "STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR "
    "STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER "
    "STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE "
    "STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA "
    "STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER "
    "STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT "
    "STABLEHLO_CBRT STABLEHLO_CASE"
)

OPERATORS = tuple(_OPERATORS.split())
"""By number."""

_ELEMENTS = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant "
    "uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2"
)

ELEMENTS = tuple(_ELEMENTS.split())
"""Element types by number."""

STORED = frozenset(
    {"float32", "float16", "int32", "uint8", "int64", "bool", "int16", "int8", "float64", "uint64", "uint32", "uint16",
     "bfloat16", "int4", "uint4", "int2"}
)  # fmt: skip
"""Element types of tensors that a graph may have."""

NARROW = {"int4": 4, "uint4": 4, "int2": 2}
"""Bits of elements of which a byte holds several, the first in its low bits."""

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
SAME, VALID = 0, 1


@dataclass(frozen=True)
class Field:
    """One option: its slot, its kind as in `struct` (``s``: a text; behind a bracket for a vector), and its value if it
    is left out."""

    slot: int
    kind: str
    default: float = 0

    @property
    def is_vector(self) -> bool:
        return self.kind[0] == "["


def _fields(text: str) -> dict[str, Field]:
    """From words ``name:kind`` or ``name:kind=default`` in the order of the slots; a lone ``-`` is passed over."""
    result = {}
    for slot, word in enumerate(text.split()):
        if word != "-":
            name, _, kind = word.partition(":")
            kind, _, default = kind.partition("=")
            result[name] = Field(slot, kind, float(default or 0))
    return result


_REDUCER = (27, "keep_dims:?")
_ACTIVATION = "activation:b"

OPTIONS: dict[str, tuple[int, dict[str, Field]]] = {
    name: (kind, _fields(text))
    for name, (kind, text) in {
        "CONV_2D": (1, "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1"),
        "DEPTHWISE_CONV_2D": (2, "padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 "
                                 "dilation_h:i=1"),
        "AVERAGE_POOL_2D": (5, "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b"),
        "MAX_POOL_2D": (5, "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b"),
        "L2_POOL_2D": (5, "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b"),
        "FULLY_CONNECTED": (8, "activation:b weights_format:b keep_num_dims:? asymmetric_inputs:?"),
        "SOFTMAX": (9, "beta:f"),
        "CONCATENATION": (10, "axis:i activation:b"),
        "ADD": (11, _ACTIVATION),
        "L2_NORMALIZATION": (12, _ACTIVATION),
        "LOCAL_RESPONSE_NORMALIZATION": (13, "radius:i bias:f alpha:f beta:f"),
        "RESIZE_BILINEAR": (15, "- - align_corners:? half_pixel_centers:?"),
        "RESHAPE": (17, "new_shape:[i"),
        "SPACE_TO_DEPTH": (19, "block_size:i"),
        "MUL": (21, _ACTIVATION),
        "GATHER": (23, "axis:i batch_dims:i"),
        "MEAN": _REDUCER, "SUM": _REDUCER, "REDUCE_PROD": _REDUCER, "REDUCE_MAX": _REDUCER, "REDUCE_MIN": _REDUCER,
        "REDUCE_ANY": _REDUCER, "REDUCE_ALL": _REDUCER,
        "SUB": (28, _ACTIVATION),
        "DIV": (29, _ACTIVATION),
        "SQUEEZE": (30, "dims:[i"),
        "STRIDED_SLICE": (32, "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?"),
        "SPLIT": (35, "count:i"),
        "CAST": (37, "- -"),
        "TRANSPOSE_CONV": (49, "padding:b stride_w:i stride_h:i activation:b"),
        "FAKE_QUANT": (58, "min:f max:f bits:i narrow:?"),
        "PACK": (59, "count:i axis:i"),
        "ONE_HOT": (61, "axis:i"),
        "UNPACK": (64, "count:i axis:i"),
        "RESIZE_NEAREST_NEIGHBOR": (74, "align_corners:? half_pixel_centers:?"),
        "LEAKY_RELU": (75, "alpha:f"),
        "MIRROR_PAD": (77, "mode:b"),
        "REVERSE_SEQUENCE": (87, "seq_dim:i batch_dim:i"),
        "UNIDIRECTIONAL_SEQUENCE_RNN": (31, "time_major:? activation:b"),
        "UNIDIRECTIONAL_SEQUENCE_LSTM": (71, "activation:b cell_clip:f projection_clip:f time_major:?"),
        "BIDIRECTIONAL_SEQUENCE_RNN": (70, "time_major:? activation:b merge_outputs:?"),
        "BIDIRECTIONAL_SEQUENCE_LSTM": (69, "activation:b cell_clip:f projection_clip:f merge_outputs:? "
                                            "time_major:?=1"),
        "SVDF": (6, "rank:i activation:b asymmetric_inputs:?"),
        "CALL_ONCE": (103, "graph:i"),
        "VAR_HANDLE": (111, "container:s shared_name:s"),
        "IF": (92, "then:i otherwise:i"),
        "WHILE": (93, "condition:i body:i"),
        "DEPTH_TO_SPACE": (94, "block_size:i"),
        "BATCH_MATMUL": (101, "adj_x:? adj_y:? asymmetric_inputs:?"),
        "CUMSUM": (102, "exclusive:? reverse:?"),
        "CONV_3D": (106, "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 "
                         "dilation_h:i=1"),
        "CONV_3D_TRANSPOSE": (106, "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 "
                                   "dilation_w:i=1 dilation_h:i=1"),
        "BUCKETIZE": (115, "boundaries:[f"),
        "GELU": (116, "approximate:?"),
    }.items()
}  # fmt: skip
"""By operator: the number of its kind of options, and its fields. Operators that are not here have no option that
matters."""
