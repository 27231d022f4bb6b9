// Kernels from which make.py makes PTX with NVIDIA's compiler: what the interpreter is tested with.

// Rows of 256 numbers, a warp each: shuffles, exponentials, a division.
extern "C" __global__ void softmax(const float *x, float *y) {
  int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const float *from = x + row * 256;
  float most = -INFINITY, total = 0.0f;
  for (int i = lane; i < 256; i += 32) most = fmaxf(most, from[i]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  for (int i = lane; i < 256; i += 32) total += expf(from[i] - most);
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  for (int i = lane; i < 256; i += 32) y[row * 256 + i] = expf(from[i] - most) / total;
}

// 32 x 32 tiles through shared memory with a column of room: no bank conflicts.
extern "C" __global__ void transpose(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[32][33];
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
#pragma unroll 1
  for (int i = threadIdx.y; i < 32; i += 8)
    if (column < columns && row + i < rows) tile[i][threadIdx.x] = x[(row + i) * columns + column];
  __syncthreads();
  int other = blockIdx.y * 32 + threadIdx.x, first = blockIdx.x * 32;
#pragma unroll 1
  for (int i = threadIdx.y; i < 32; i += 8)
    if (other < rows && first + i < columns) y[(first + i) * rows + other] = tile[threadIdx.x][i];
}

// A tile of 16 x 16 a block, edges included.
extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float left[16][16], right[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float total = 0.0f;
  for (int first = 0; first < k; first += 16) {
    left[threadIdx.y][threadIdx.x] = row < m && first + threadIdx.x < k ? a[row * k + first + threadIdx.x] : 0.0f;
    right[threadIdx.y][threadIdx.x] = column < n && first + threadIdx.y < k ? b[(first + threadIdx.y) * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; i++) total += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = total;
}

// Functions with tables and local memory, branches, and threads that leave early.
extern "C" __global__ void functions(const float *x, float *y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float v = x[i];
  y[i] = i % 3 == 0 ? tanhf(v) + erff(v) : i % 3 == 1 ? sinf(v * 1e6f) : logf(fabsf(v) + 1e-3f) * powf(fabsf(v), 1.7f);
}

// A requantise with 64 bits, to bytes.
extern "C" __global__ void requantise(const int *x, signed char *y, int multiplier, int shift, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long wide = (long long)x[i] * multiplier;
  long long rounded = (wide + (1ll << (shift - 1))) >> shift;
  y[i] = (signed char)(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
}

__device__ static unsigned address_of(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// int8 on tensor cores: 64 x 64 a block of 4 warps, a ring of three stages of 32 bytes of depth, rows swizzled.
// a is (m, k), b is (n, k), both multiples of the tile; c is (m, n).
extern "C" __global__ void bytes(const signed char *a, const signed char *b, int *c, int n, int k) {
  __shared__ __align__(128) signed char left[3][64 * 32], right[3][64 * 32];
  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int row = thread / 2, part = thread % 2, place = row * 32 + 16 * (part ^ (row / 4 % 2));
  const signed char *from = a + (blockIdx.y * 64 + row) * k + part * 16;
  const signed char *other = b + (blockIdx.x * 64 + row) * k + part * 16;
  int steps = k / 32, sums[8][4] = {};
  for (int stage = 0; stage < 2; stage++) {
    if (stage < steps) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(left[stage] + place)), "l"(from + stage * 32) : "memory");
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(right[stage] + place)), "l"(other + stage * 32) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    int next = step + 2;
    if (next < steps) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(left[next % 3] + place)), "l"(from + next * 32) : "memory");
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(right[next % 3] + place)), "l"(other + next * 32) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    int at = warp * 16 + lane % 16;
    unsigned x[4], where = address_of(left[step % 3] + at * 32 + 16 * ((lane / 16) ^ (at / 4 % 2)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(where) : "memory");
    for (int pair = 0; pair < 4; pair++) {
      int column = pair * 16 + lane % 8 + lane / 16 * 8;
      unsigned y[4], there = address_of(right[step % 3] + column * 32 + 16 * ((lane / 8 % 2) ^ (column / 4 % 2)));
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(there) : "memory");
      for (int half = 0; half < 2; half++) {
        int *s = sums[pair * 2 + half];
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * half]), "r"(y[2 * half + 1]));
      }
    }
  }
  for (int tile = 0; tile < 8; tile++)
    for (int half = 0; half < 2; half++) {
      int out = (blockIdx.y * 64 + warp * 16 + half * 8 + lane / 4) * n + blockIdx.x * 64 + tile * 8 + lane % 4 * 2;
      *(int2 *)(c + out) = make_int2(sums[tile][2 * half], sums[tile][2 * half + 1]);
    }
}
