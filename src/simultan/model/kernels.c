/* Linear layers, attention and selection of rows, on a processor with AVX-512 VNNI.

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
#define FEW 3                  /* rows, that wait for memory alone: threads would wait, too */
#define AHEAD 8192             /* bytes of weights that are asked for early */
#define WORTH (1 << 17)        /* bytes of weights, again for each ROWS: threads share no less */

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

/* A row in 255 levels of its scale, a power of two times the layer's step, or NaN. */
static float quantize(const float *x, const Layer *layer, uint8_t *levels) {
  __m512i most = _mm512_setzero_si512(); /* the bits of numbers >= 0 are in their order, then NaN */
  for (long k = 0; k < layer->inputs; k += 16) {
    __m512 part = _mm512_maskz_loadu_ps(first(layer->inputs - k), x + k);
    most = _mm512_max_epi32(most, (__m512i)_mm512_abs_ps(part));
  }
  int exponent, bits = _mm512_reduce_max_epi32(most);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  if (!isfinite(largest)) return NAN;
  frexpf(largest, &exponent);
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
      if (relu) value = _mm512_max_ps(_mm512_setzero_ps(), value); /* NaN stays */
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

/* PyTorch's GOMP_parallel, or none: calls a function in so many threads at once. */
void (*parallel)(void (*call)(void *), void *argument, unsigned threads, unsigned flags);

typedef struct {
  const Layer *layer;
  const char *x;
  const float *scales, *plus;
  float *y;
  long x_row, rows, parts, tasks, next; /* a task: 64 outputs of a part of the rows */
  int relu, shared;
} Product;

static void multiply(void *argument) {
  Product *all = argument, product = *all;
  const Layer *layer = product.layer;
  for (;;) {
    long task = product.shared ? __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED) : all->next++;
    if (task >= product.tasks) break;
    long part = task % product.parts, n = task / product.parts * OUTPUTS, x_row = product.x_row;
    long least = product.rows / product.parts, more = product.rows % product.parts;
    long r = part * least + (part < more ? part : more), at = r * layer->outputs;
    const char *x = product.x + r * x_row, *w = layer->weight + n * x_row;
    const float *plus = product.plus ? product.plus + at : NULL;
#define TILE(count, int8)                                                                        \
  case 2 * count + int8:                                                                         \
    tile(count, int8, layer, x, x_row, w, n, product.scales + r, product.relu, plus,             \
         product.y + at);                                                                        \
    break;
#define TILES(of) TILE(1, of) TILE(2, of) TILE(3, of) TILE(4, of) TILE(5, of) TILE(6, of)
    switch (2 * (least + (part < more)) + (layer->scales != NULL)) { TILES(0) TILES(1) }
  }
}

void linear(const Layer *layer, const float *x, long rows, const float *norm_gain,
            const float *norm_bias, float eps, int relu, const float *plus, float *y,
            unsigned threads) {
  const int int8 = layer->scales != NULL;
  long x_row = int8 ? (layer->inputs + 3) / 4 * 4 : layer->inputs * 4; /* in bytes */
  long room = rows < CHUNK ? rows : CHUNK;
  uint8_t *levels = int8 ? calloc(room, x_row) : NULL;
  float *normal = norm_gain ? malloc(room * layer->inputs * sizeof(float)) : NULL;
  float scales[CHUNK];
  for (long begin = 0; begin < rows; begin += room) {
    long count = rows - begin < room ? rows - begin : room, at = begin * layer->outputs;
    const float *inputs = x + begin * layer->inputs;
    for (long r = 0; norm_gain && r < count; r++)
      normalize(inputs + r * layer->inputs, layer->inputs, norm_gain, norm_bias, eps,
                normal + r * layer->inputs);
    if (norm_gain) inputs = normal;
    for (long r = 0; int8 && r < count; r++)
      scales[r] = quantize(inputs + r * layer->inputs, layer, levels + r * x_row);
    long parts = (count + ROWS - 1) / ROWS; /* of like sizes */
    long tasks = (layer->outputs + OUTPUTS - 1) / OUTPUTS * parts;
    int shared = parallel && threads > 1 && count > FEW && tasks * x_row * OUTPUTS >= WORTH;
    Product product = {
        layer, int8 ? (const char *)levels : (const char *)inputs, scales, plus ? plus + at : NULL,
        y + at, x_row, count, parts, tasks, 0, relu, shared};
    if (shared)
      parallel(multiply, &product, threads, 0);
    else
      multiply(&product);
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
  long longest = 0;
  for (long i = 0; i < rows * heads; i++)
    if (ends[i] - begins[i] > longest) longest = ends[i] - begins[i];
  float *weights = malloc(longest * sizeof(float)); /* too many for the stack of a thread */
  for (long i = 0; i < rows * heads; i++, y += size) {
    long r = i / heads, h = i % heads, count = ends[i] - begins[i];
    const float *key = cache + row_of[r] * row + begins[i] * position + h * size;
    float most = -INFINITY, total = 0;
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
  free(weights);
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
