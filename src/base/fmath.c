/* Elementary functions in double: argument reduction, a polynomial, reconstruction by exact scaling. */
#include "base/fmath.h"

#include <stdint.h>
#include <string.h>

static double pow2i(int n) { /* 2^n for -1022 <= n <= 1023 */
    uint64_t u = (uint64_t)(n + 1023) << 52;
    double d;
    memcpy(&d, &u, 8);
    return d;
}

static double scale2(double x, int n) {
    if (n > 1023) return x * pow2i(1023) * pow2i(n - 1023 > 1023 ? 1023 : n - 1023);
    if (n < -1022) return x * pow2i(-1022) * pow2i(n + 1022 < -1022 ? -1022 : n + 1022);
    return x * pow2i(n);
}

double m_exp(double x) {
    if (x != x) return x;
    if (x > 709.79) return INFINITY;
    if (x < -745.2) return 0.0;
    const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
    double n = floor(x * 1.44269504088896340736 + 0.5);
    double r = (x - n * ln2_hi) - n * ln2_lo; /* |r| <= 0.3466 */
    double p = 1.0 / 6227020800.0;            /* Taylor to r^13: error below 1e-17 */
    static const double inverse_factorial[] = {
        1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
    for (int i = 0; i < 13; i++) p = p * r + inverse_factorial[i];
    return scale2(p, (int)n);
}

double m_log(double x) {
    if (x != x || x < 0.0) return NAN;
    if (x == 0.0) return -INFINITY;
    if (x > 1.7976931348623157e308) return x;
    int e = 0;
    double m = frexp(x, &e); /* exact */
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        e--;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s; /* |s| <= 0.1716 */
    double p = 1.0 / 23.0;
    for (int k = 21; k >= 1; k -= 2) p = p * z + 1.0 / k; /* 2*atanh(s) */
    const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
    return e * ln2_hi + (2.0 * s * p + e * ln2_lo);
}

double m_pow(double x, double y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (x == 0.0) return y > 0.0 ? 0.0 : INFINITY;
    return m_exp(y * m_log(x));
}

/* sin and cos on [-pi/4, pi/4] by Taylor series; the next term is below 1e-17. */
static void sincos_small(double r, double *out_sin, double *out_cos) {
    double z = r * r, s = 0.0, c = 0.0;
    static const double sin_terms[] = {
        -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6};
    static const double cos_terms[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5};
    for (int i = 0; i < 7; i++) s = s * z + sin_terms[i];
    for (int i = 0; i < 8; i++) c = c * z + cos_terms[i];
    *out_sin = r + r * z * s;
    *out_cos = 1.0 + z * c;
}

void m_sincos(double x, double *out_sin, double *out_cos) {
    if (!(fabs(x) < 4e9)) {
        *out_sin = *out_cos = NAN;
        return;
    }
    /* pi/2 in three parts of 33 bits each: n * part is exact for n below 2^20, and good to 1e-12 at 2^31 */
    const double pio2_1 = 1.57079632673412561417e+00, pio2_2 = 6.07710050630396597660e-11, pio2_3 = 2.02226624879595063154e-21;
    double n = floor(x * 0.63661977236758134308 + 0.5);
    double r = ((x - n * pio2_1) - n * pio2_2) - n * pio2_3;
    double s, c;
    sincos_small(r, &s, &c);
    int quadrant = (int)((int64_t)n & 3);
    *out_sin = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
    *out_cos = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

double m_tanh(double x) {
    double a = fabs(x);
    if (a > 22.0) return x > 0 ? 1.0 : -1.0;
    if (a < 0.05) { /* the quotient would lose digits */
        double z = x * x;
        return x * (1.0 + z * (-1.0 / 3 + z * (2.0 / 15 + z * (-17.0 / 315 + z * (62.0 / 2835)))));
    }
    double e = m_exp(2.0 * a), t = (e - 1.0) / (e + 1.0);
    return x > 0 ? t : -t;
}

double m_erf(double x) {
    double a = fabs(x);
    if (x != x) return x;
    if (a > 6.0) return x > 0 ? 1.0 : -1.0;
    double sum, z = a * a;
    if (a < 3.0) { /* series with positive terms only: exp(-z) * sum 2^k z^k / (2k+1)!! */
        double term = a;
        sum = a;
        for (int k = 1; k < 80 && term > sum * 1e-17; k++) {
            term *= 2.0 * z / (2 * k + 1);
            sum += term;
        }
        sum *= 1.12837916709551257390 * m_exp(-z);
    } else { /* continued fraction of erfc */
        double f = a;
        for (int k = 60; k >= 1; k--) f = a + k * 0.5 / f;
        sum = 1.0 - m_exp(-z) / (f * 1.77245385090551602730);
    }
    return x > 0 ? sum : -sum;
}
