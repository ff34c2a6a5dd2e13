/* CRC-32C (Castagnoli, record batches v2) and CRC-32 (IEEE, message sets v0 and v1), without the GIL.
 *
 * gkafka_crc32c(data, size, crc): crc is the value so far, 0 to begin. Chooses by what the processor can do:
 *   x86-64 with SSE4.2 and PCLMULQDQ: three streams of the crc32 instruction, joined by a carry-less product;
 *   ARMv8 with the CRC extension: the crc32c instructions;
 *   anything else: eight tables, eight bytes a step.
 * gkafka_crc_init() must have run once before; the module does that at import.
 */
#ifndef GKAFKA_CRC_H
#define GKAFKA_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#  define GKAFKA_CRC_X86 1
#  include <immintrin.h>
#  if defined(_MSC_VER)
#    include <intrin.h>
#    define GKAFKA_TARGET_X86
#  else
#    include <cpuid.h>
#    define GKAFKA_TARGET_X86 __attribute__((target("sse4.2,pclmul")))
#  endif
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#  if defined(__ARM_FEATURE_CRC32)
#    define GKAFKA_CRC_ARM 1
#    define GKAFKA_TARGET_ARM
#  elif defined(__linux__) && !defined(__clang__)
#    define GKAFKA_CRC_ARM 1
#    define GKAFKA_TARGET_ARM __attribute__((target("+crc")))
#  endif
#  if defined(GKAFKA_CRC_ARM)
#    if defined(__linux__)
#      include <sys/auxv.h>
#    endif
#    if defined(__ARM_FEATURE_CRC32)
#      include <arm_acle.h>
#    else
#      pragma GCC push_options
#      pragma GCC target("+crc")
#      include <arm_acle.h>
#      pragma GCC pop_options
#    endif
#  endif
#endif

static uint32_t gkafka_crc32c_table[8][256];
static uint32_t gkafka_crc32_table[8][256];
static int gkafka_crc_hardware = 0;

static void gkafka_crc_table(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1u)));
        table[0][n] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int n = 0; n < 256; n++)
            table[slice][n] = (table[slice - 1][n] >> 8) ^ table[0][table[slice - 1][n] & 0xff];
}

/* Bytes are put together by shifts, so that the tables serve machines of either byte order. */
static uint32_t gkafka_crc_by_table(uint32_t table[8][256], const unsigned char *p, size_t n, uint32_t crc) {
    crc = ~crc;
    while (n >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][(low >> 8) & 0xff] ^ table[5][(low >> 16) & 0xff] ^ table[4][low >> 24]
            ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

/* The product of two reflected polynomials mod P. */
static uint32_t gkafka_crc32c_times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ (0x82f63b78u & (0u - (b & 1u)));
    }
    return product;
}

/* The checksum of two pieces, one behind the other, from those of each; n: bytes of the second. */
static uint32_t gkafka_crc32c_join(uint32_t first, uint32_t second, size_t n) {
    uint32_t square = 0x00800000u; /* x^8: a byte */
    for (; n; n >>= 1, square = gkafka_crc32c_times(square, square))
        if (n & 1)
            first = gkafka_crc32c_times(square, first);
    return first ^ second;
}

#if defined(GKAFKA_CRC_X86)
/* The crc32 instruction takes 3 cycles but one can start each cycle: three streams keep it busy. */
#define GKAFKA_CRC_LONG 2048
#define GKAFKA_CRC_SHORT 192
static uint32_t gkafka_crc_skip[4]; /* x^(8 * bytes - 33) mod P for 2 * LONG, LONG, 2 * SHORT, SHORT bytes */

static uint32_t gkafka_crc_power(uint32_t exponent) {
    uint32_t value = 0x80000000u;
    while (exponent--)
        value = (value >> 1) ^ (0x82f63b78u & (0u - (value & 1u)));
    return value;
}

/* The crc after as many zero bytes as `skip` stands for. A product of two reflected 32-bit values comes out one bit
 * short, and the crc32 instruction multiplies by x^32: hence 33 less in the exponent. */
GKAFKA_TARGET_X86 static inline uint64_t gkafka_crc_shift(uint64_t crc, uint32_t skip) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)skip), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

GKAFKA_TARGET_X86 static inline uint64_t gkafka_crc_load(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

GKAFKA_TARGET_X86 static inline uint64_t gkafka_crc_three(const unsigned char *p, size_t length, uint64_t a, uint32_t far, uint32_t near) {
    uint64_t b = 0, c = 0;
    for (size_t line = 0; line < length; line += 64) {
        /* Of what comes next: three streams are more than the processor itself looks ahead in. Behind the end it does nothing. */
        _mm_prefetch((const char *)(p + line + 3 * length), _MM_HINT_T0);
        _mm_prefetch((const char *)(p + line + 4 * length), _MM_HINT_T0);
        _mm_prefetch((const char *)(p + line + 5 * length), _MM_HINT_T0);
        for (size_t i = line; i < line + 64; i += 8) {
            a = _mm_crc32_u64(a, gkafka_crc_load(p + i));
            b = _mm_crc32_u64(b, gkafka_crc_load(p + i + length));
            c = _mm_crc32_u64(c, gkafka_crc_load(p + i + 2 * length));
        }
    }
    return gkafka_crc_shift(a, far) ^ gkafka_crc_shift(b, near) ^ c;
}

GKAFKA_TARGET_X86 static uint32_t gkafka_crc32c_x86(const unsigned char *p, size_t n, uint32_t crc) {
    uint64_t state = (uint32_t)~crc;
    for (; n >= 3 * GKAFKA_CRC_LONG; p += 3 * GKAFKA_CRC_LONG, n -= 3 * GKAFKA_CRC_LONG)
        state = gkafka_crc_three(p, GKAFKA_CRC_LONG, state, gkafka_crc_skip[0], gkafka_crc_skip[1]);
    for (; n >= 3 * GKAFKA_CRC_SHORT; p += 3 * GKAFKA_CRC_SHORT, n -= 3 * GKAFKA_CRC_SHORT)
        state = gkafka_crc_three(p, GKAFKA_CRC_SHORT, state, gkafka_crc_skip[2], gkafka_crc_skip[3]);
    for (; n >= 8; p += 8, n -= 8)
        state = _mm_crc32_u64(state, gkafka_crc_load(p));
    for (; n; p++, n--)
        state = _mm_crc32_u8((uint32_t)state, *p);
    return ~(uint32_t)state;
}

static int gkafka_crc_detect(void) {
    unsigned int ecx;
#if defined(_MSC_VER)
    int leaf[4];
    __cpuid(leaf, 1);
    ecx = (unsigned int)leaf[2];
#else
    unsigned int eax, ebx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return 0;
#endif
    gkafka_crc_skip[0] = gkafka_crc_power(8 * 2 * GKAFKA_CRC_LONG - 33);
    gkafka_crc_skip[1] = gkafka_crc_power(8 * GKAFKA_CRC_LONG - 33);
    gkafka_crc_skip[2] = gkafka_crc_power(8 * 2 * GKAFKA_CRC_SHORT - 33);
    gkafka_crc_skip[3] = gkafka_crc_power(8 * GKAFKA_CRC_SHORT - 33);
    return (ecx & (1u << 20)) != 0 && (ecx & (1u << 1)) != 0; /* SSE4.2 and PCLMULQDQ */
}
#elif defined(GKAFKA_CRC_ARM)
GKAFKA_TARGET_ARM static uint32_t gkafka_crc32c_arm(const unsigned char *p, size_t n, uint32_t crc) {
    crc = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = __crc32cd(crc, word);
    }
    for (; n; p++, n--)
        crc = __crc32cb(crc, *p);
    return ~crc;
}

static int gkafka_crc_detect(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1;
#endif
}
#else
static int gkafka_crc_detect(void) {
    return 0;
}
#endif

static void gkafka_crc_init(void) {
    gkafka_crc_table(gkafka_crc32c_table, 0x82f63b78u);
    gkafka_crc_table(gkafka_crc32_table, 0xedb88320u);
    gkafka_crc_hardware = gkafka_crc_detect();
}

static uint32_t gkafka_crc32c(const unsigned char *p, size_t n, uint32_t crc) {
#if defined(GKAFKA_CRC_X86)
    if (gkafka_crc_hardware)
        return gkafka_crc32c_x86(p, n, crc);
#elif defined(GKAFKA_CRC_ARM)
    if (gkafka_crc_hardware)
        return gkafka_crc32c_arm(p, n, crc);
#endif
    return gkafka_crc_by_table(gkafka_crc32c_table, p, n, crc);
}

static uint32_t gkafka_crc32c_portable(const unsigned char *p, size_t n, uint32_t crc) {
    return gkafka_crc_by_table(gkafka_crc32c_table, p, n, crc);
}

static uint32_t gkafka_crc32(const unsigned char *p, size_t n, uint32_t crc) {
    return gkafka_crc_by_table(gkafka_crc32_table, p, n, crc);
}

#endif
