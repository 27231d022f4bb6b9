"""Conversions of float16 for processors of x86-64 without F16C, where LLVM calls the compiler's library: the process
that loads the code need not have that."""

from __future__ import annotations

HALF_FUNCTIONS = """
define weak hidden float @__extendhfsf2(half %value) nounwind {
  %narrow = bitcast half %value to i16
  %bits = zext i16 %narrow to i32
  %magnitude = and i32 %bits, 32767
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000 ; 2**112, exact, of denormals too
  %finite = bitcast float %scaled to i32
  %without = or i32 %moved, 2139095040
  %quiet = or i32 %without, 4194304
  %nan = icmp ugt i32 %magnitude, 31744
  %special = select i1 %nan, i32 %quiet, i32 %without
  %large = icmp uge i32 %magnitude, 31744
  %unsigned = select i1 %large, i32 %special, i32 %finite
  %sign = and i32 %bits, 32768
  %top = shl i32 %sign, 16
  %whole = or i32 %unsigned, %top
  %result = bitcast i32 %whole to float
  ret float %result
}

define weak hidden half @__truncsfhf2(float %value) nounwind {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %absolute = bitcast i32 %magnitude to float
  %aligned = fadd float %absolute, 5.0e-01 ; its last bit is 2**-24: rounded as a denormal
  %raised = bitcast float %aligned to i32
  %denormal = sub i32 %raised, 1056964608
  %last = lshr i32 %magnitude, 13
  %odd = and i32 %last, 1
  %nearly = add i32 %magnitude, %odd
  %up = sub i32 %nearly, 939520001 ; 2**23 * 112 - 4095: another bias, and half of the last bit less a little
  %normal = lshr i32 %up, 13
  %tiny = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %tiny, i32 %denormal, i32 %normal
  %payload = and i32 %last, 1023
  %quiet = or i32 %payload, 32256
  %nan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %nan, i32 %quiet, i32 31744
  %large = icmp uge i32 %magnitude, 1199570944
  %unsigned = select i1 %large, i32 %special, i32 %finite
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %whole = or i32 %unsigned, %sign
  %narrow = trunc i32 %whole to i16
  %result = bitcast i16 %narrow to half
  ret half %result
}
"""
"""LLVM IR of the two that LLVM calls, rounded to nearest, ties to even; as the instructions of F16C, NaNs included."""
