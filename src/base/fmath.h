/* Elementary functions that give the same bits on every platform.
 *
 * The C library's expf differs between glibc, musl and the Windows runtime in the last bit; ours are computed in double
 * by fixed polynomials with -ffp-contract=off, and rounded once. The float results are right to within 0.51 ulp.
 */
#ifndef MLXCEL_BASE_FMATH_H
#define MLXCEL_BASE_FMATH_H

#include <math.h> /* sqrt, fabs, floor: exact by IEEE 754 */

#include <stdint.h>
#include <string.h>

double m_exp(double x);
double m_log(double x);
double m_pow(double x, double y); /* x >= 0 */
/* Accurate for |x| up to 2^31: argument reduction with a three-part pi/2. */
void m_sincos(double x, double *out_sin, double *out_cos);
double m_tanh(double x);
double m_erf(double x);

static inline float m_expf(float x) {
    return (float)m_exp((double)x);
}
static inline float m_logf(float x) {
    return (float)m_log((double)x);
}
static inline float m_tanhf(float x) {
    return (float)m_tanh((double)x);
}
static inline float m_erff(float x) {
    return (float)m_erf((double)x);
}
static inline float m_powf(float x, float y) {
    return (float)m_pow((double)x, (double)y);
}

/* a * b + c, rounded once. The C library's fmaf should be that; the one of Windows' gcc rounds twice. The product is exact in
 * double; where the sum is not, its last bit is made odd, so that the second rounding cannot take it for a tie. */
static inline float m_fmaf(float a, float b, float c) {
    double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
    double rest = (product - (sum - part)) + ((double)c - part);
    if (isfinite(sum) && rest != 0) {
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (!(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : (uint64_t)-1;
        memcpy(&sum, &bits, sizeof bits);
    }
    return (float)sum;
}

#endif
