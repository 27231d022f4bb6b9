// Sign extension in the models that Verilator writes, by two shifts: one or two instructions where the runtime's own
// `-(x & sign) | x` takes three or four. Given to the compiler before a model's files, so that the runtime's headers are
// read first and stay as they are. As there, bits above `lbits` come in as zeros, and go out as copies of the sign.
#pragma once

#include "verilated.h"

static inline int32_t weft_signed_i(int lbits, IData value) {
    return static_cast<int32_t>(value << (VL_IDATASIZE - lbits)) >> (VL_IDATASIZE - lbits);
}
static inline int64_t weft_signed_q(int lbits, QData value) {
    return static_cast<int64_t>(value << (VL_QUADSIZE - lbits)) >> (VL_QUADSIZE - lbits);
}

#define VL_EXTENDS_II(obits, lbits, value) static_cast<IData>(weft_signed_i((lbits), (value)))
#define VL_EXTENDS_QI(obits, lbits, value) static_cast<QData>(weft_signed_q((lbits), (value)))
#define VL_EXTENDS_QQ(obits, lbits, value) static_cast<QData>(weft_signed_q((lbits), (value)))
#define VL_MULS_III(lbits, a, b) (static_cast<IData>(weft_signed_i((lbits), (a))) * static_cast<IData>(weft_signed_i((lbits), (b))))
#define VL_MULS_QQQ(lbits, a, b) (static_cast<QData>(weft_signed_q((lbits), (a))) * static_cast<QData>(weft_signed_q((lbits), (b))))
#define VL_GTS_III(lbits, a, b) IData(weft_signed_i((lbits), (a)) > weft_signed_i((lbits), (b)))
#define VL_GTES_III(lbits, a, b) IData(weft_signed_i((lbits), (a)) >= weft_signed_i((lbits), (b)))
#define VL_LTS_III(lbits, a, b) IData(weft_signed_i((lbits), (a)) < weft_signed_i((lbits), (b)))
#define VL_LTES_III(lbits, a, b) IData(weft_signed_i((lbits), (a)) <= weft_signed_i((lbits), (b)))
#define VL_GTS_IQQ(lbits, a, b) IData(weft_signed_q((lbits), (a)) > weft_signed_q((lbits), (b)))
#define VL_GTES_IQQ(lbits, a, b) IData(weft_signed_q((lbits), (a)) >= weft_signed_q((lbits), (b)))
#define VL_LTS_IQQ(lbits, a, b) IData(weft_signed_q((lbits), (a)) < weft_signed_q((lbits), (b)))
#define VL_LTES_IQQ(lbits, a, b) IData(weft_signed_q((lbits), (a)) <= weft_signed_q((lbits), (b)))
