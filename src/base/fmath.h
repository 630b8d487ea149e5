/* Elementary functions that give the same bits on every platform.
 *
 * The C library's expf differs between glibc, musl and the Windows runtime in the last bit; ours are computed in double
 * by fixed polynomials with -ffp-contract=off, and rounded once. The float results are right to within 0.51 ulp.
 */
#ifndef MLXCEL_BASE_FMATH_H
#define MLXCEL_BASE_FMATH_H

#include <math.h> /* sqrt, fabs, floor, fma: exact by IEEE 754 */

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

#endif
