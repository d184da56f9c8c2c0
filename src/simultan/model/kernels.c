/* Linear layers, attention and selection of rows, on one thread of a processor with AVX-512 VNNI.

   What belongs to a row is computed from this row alone, in one order: it is the same, to the last
   bit, whatever other rows are there. kernels.py says what the arguments are. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define VECTORS 4              /* of 16 outputs each, that are computed at once, */
#define ROWS 6                 /* for so many rows: as many sums as there are registers for */
#define OUTPUTS (16 * VECTORS)
#define CHUNK 48               /* rows whose inputs stay in the cache */
#define FEW 3                  /* rows, that are computed in one go: */
#define AHEAD 8192             /* bytes of weights that are asked for early */

typedef struct {
  long inputs, outputs;
  const char *weight;     /* [N / 64, steps, 64] of four bytes: a float, or int8 of four inputs */
  const float *bias;      /* [N], or none */
  const float *scales;    /* int8: [N]; none: float32 */
  const int32_t *offsets; /* int8: what the level of zero adds to each sum, [N] */
  double step;            /* int8: between two levels of a row whose largest number is below 1 */
  int zero;               /* int8: the level of zero */
} Layer;

INLINE __mmask16 first(long count) { return count >= 16 ? 0xffff : (1 << count) - 1; }

/* A row in 255 levels of its own scale, a power of two times the layer's step. */
static float quantize(const float *x, const Layer *layer, uint8_t *levels) {
  __m512 most = _mm512_setzero_ps();
  for (long k = 0; k < layer->inputs; k += 16) {
    __m512 part = _mm512_maskz_loadu_ps(first(layer->inputs - k), x + k);
    most = _mm512_max_ps(most, _mm512_abs_ps(part));
  }
  int exponent;
  frexpf(_mm512_reduce_max_ps(most), &exponent);
  float scale = ldexp(layer->step, exponent);
  __m512 inverse = _mm512_set1_ps(1 / scale), zero = _mm512_set1_ps(layer->zero);
  for (long k = 0; k < layer->inputs; k += 16) {
    __mmask16 some = first(layer->inputs - k);
    __m512 part = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(some, x + k), inverse, zero);
    __m512i level = _mm512_max_epi32(_mm512_cvtps_epi32(part), _mm512_setzero_si512());
    _mm512_mask_cvtusepi32_storeu_epi8(levels + k, some, level);
  }
  return scale;
}

/* `rows` rows and 64 outputs, from output n on. */
INLINE void tile(const int rows, const int int8, const Layer *layer, const char *x, long x_row,
                 const char *w, long n, const float *scale, int relu, const float *plus, float *y) {
  __m512 sum[ROWS][VECTORS]; /* of floats, */
  __m512i count[ROWS][VECTORS]; /* or of integers */
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int v = 0; v < VECTORS; v++)
      sum[r][v] = _mm512_setzero_ps(), count[r][v] = _mm512_setzero_si512();
  for (long at = 0; at < x_row; at += 4, w += 4 * OUTPUTS) {
    __m512i part[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) {
      /* floats that are read once need no place in the caches, Python does */
      if (!int8 && rows <= FEW) _mm_prefetch(w + 64 * v + AHEAD, _MM_HINT_NTA);
      part[v] = _mm512_loadu_si512(w + 64 * v);
      __asm__("" : "+v"(part[v])); /* else it is loaded again for every row */
    }
    UNROLL for (int r = 0; r < rows; r++) {
      __m512i input = _mm512_set1_epi32(*(const int32_t *)(x + r * x_row + at));
      UNROLL for (int v = 0; v < VECTORS; v++)
        if (int8)
          count[r][v] = _mm512_dpbusd_epi32(count[r][v], input, part[v]);
        else
          sum[r][v] = _mm512_fmadd_ps((__m512)input, (__m512)part[v], sum[r][v]);
    }
  }
  UNROLL for (int v = 0; v < VECTORS; v++) {
    long at = n + 16 * v, left = layer->outputs - at;
    if (left <= 0) break;
    __mmask16 some = first(left);
    UNROLL for (int r = 0; r < rows; r++) {
      __m512 value = sum[r][v];
      if (int8) {
        __m512i offset = _mm512_maskz_loadu_epi32(some, layer->offsets + at);
        __m512 factor = _mm512_maskz_loadu_ps(some, layer->scales + at) * scale[r];
        value = _mm512_cvtepi32_ps(_mm512_sub_epi32(count[r][v], offset)) * factor;
      }
      if (layer->bias) value += _mm512_maskz_loadu_ps(some, layer->bias + at);
      if (relu) value = _mm512_max_ps(value, _mm512_setzero_ps());
      if (plus) value += _mm512_maskz_loadu_ps(some, plus + r * layer->outputs + at);
      _mm512_mask_storeu_ps(y + r * layer->outputs + at, some, value);
    }
  }
}

static void normalize(const float *x, long size, const float *gain, const float *bias, float eps,
                      float *y) {
  float mean = 0, variance = 0;
#pragma omp simd reduction(+ : mean)
  for (long k = 0; k < size; k++) mean += x[k];
  mean /= size;
#pragma omp simd reduction(+ : variance)
  for (long k = 0; k < size; k++) variance += (x[k] - mean) * (x[k] - mean);
  float scale = 1 / sqrtf(variance / size + eps);
#pragma omp simd
  for (long k = 0; k < size; k++) y[k] = (x[k] - mean) * scale * gain[k] + bias[k];
}

void linear(const Layer *layer, const float *x, long rows, const float *norm_gain,
            const float *norm_bias, float eps, int relu, const float *plus, float *y) {
  const int int8 = layer->scales != NULL;
  long x_row = int8 ? (layer->inputs + 3) / 4 * 4 : layer->inputs * 4; /* in bytes */
  uint8_t *levels = int8 ? malloc(CHUNK * x_row) : NULL;
  float *normal = norm_gain ? malloc(CHUNK * layer->inputs * sizeof(float)) : NULL;
  float scales[CHUNK];
  for (long begin = 0; begin < rows; begin += CHUNK) {
    long end = rows - begin < CHUNK ? rows : begin + CHUNK;
    const float *inputs = x + begin * layer->inputs;
    for (long r = 0; norm_gain && r < end - begin; r++)
      normalize(inputs + r * layer->inputs, layer->inputs, norm_gain, norm_bias, eps,
                normal + r * layer->inputs);
    if (norm_gain) inputs = normal;
    for (long r = 0; int8 && r < end - begin; r++)
      scales[r] = quantize(inputs + r * layer->inputs, layer, levels + r * x_row);
    const char *w = layer->weight;
    for (long n = 0; n < layer->outputs; n += OUTPUTS, w += x_row * OUTPUTS)
      for (long r = begin, now; r < end; r += now) {
        long parts = (end - r + ROWS - 1) / ROWS, at = r * layer->outputs;
        now = (end - r + parts - 1) / parts; /* parts of like sizes */
        const char *some = (int8 ? (const char *)levels : (const char *)inputs);
#define TILE(count, kind)                                                                    \
  case 2 * count + kind:                                                                     \
    tile(count, kind, layer, some + (r - begin) * x_row, x_row, w, n, scales + (r - begin),  \
         relu, plus ? plus + at : NULL, y + at);                                             \
    break;
#define TILES(kind) TILE(1, kind) TILE(2, kind) TILE(3, kind) TILE(4, kind) TILE(5, kind) TILE(6, kind)
        switch (2 * now + int8) { TILES(0) TILES(1) }
      }
  }
  free(levels);
  free(normal);
}

INLINE float dot(const float *a, const float *b, long size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (long d = 0; d < size; d++) sum += a[d] * b[d];
  return sum;
}

void append(const float *new, long new_row, float **caches, long layers, long row, long position,
            const long *row_of, const int *ends, long rows, long heads) {
  for (long r = 0; r < rows; r++)
    for (long l = 0; l < layers; l++)
      memcpy(caches[l] + row_of[r] * row + (ends[r * heads] - 1) * position,
             new + r * new_row + l * position, position * sizeof(float));
}

void attend(const float *q, long q_row, const float *cache, long row, long position, long value,
            const long *row_of, const int *begins, const int *ends, long rows, long heads,
            long size, float *y) {
  float scale = 1 / sqrtf(size);
  for (long i = 0; i < rows * heads; i++, y += size) {
    long r = i / heads, h = i % heads, count = ends[i] - begins[i];
    const float *key = cache + row_of[r] * row + begins[i] * position + h * size;
    float weights[count], most = -INFINITY, total = 0;
    for (long j = 0; j < count; j++) {
      weights[j] = scale * dot(q + r * q_row + h * size, key + j * position, size);
      most = fmaxf(most, weights[j]);
    }
    for (long j = 0; j < count; j++) total += weights[j] = expf(weights[j] - most);
    for (long d = 0; d < size; d++) y[d] = 0;
    for (long j = 0; j < count; j++) {
      const float weight = weights[j] / total, *from = key + value + j * position;
#pragma omp simd
      for (long d = 0; d < size; d++) y[d] += weight * from[d];
    }
  }
}

void look_back(const float *qkv, float *cache, long row, long position, const long *row_of,
               const int *begins, const int *ends, long rows, long heads, long size, float *y) {
  long width = heads * size;
  append(qkv + width, 3 * width, &cache, 1, row, position, row_of, ends, rows, heads);
  attend(qkv, 3 * width, cache, row, position, width, row_of, begins, ends, rows, heads, size, y);
}

void scan(const float *q, long q_row, const float *cache, long row, long position,
          const long *row_of, int *begins, const int *ends, const double *limits, long rows,
          long heads, long size, const float *gain, const float *bias) {
  float scale = 1 / sqrtf(size);
  for (long i = 0; i < rows * heads; i++) {
    long r = i / heads, h = i % heads;
    const float *query = q + r * q_row + h * size, *key = cache + row_of[r] * row + h * size;
    for (; begins[i] < ends[i]; begins[i]++) {
      float energy = scale * dot(query, key + begins[i] * position, size);
      if (gain) energy *= gain[h];
      if (bias) energy += bias[h];
      if (energy > limits[r]) break;
    }
  }
}
