/* Matrices. Sines and cosines are the C library's, as in Python. */
#include "daemon/data/decode/transform/warp.h"

#include <math.h>

static double warp_radians(double degrees)
{
    return degrees * (M_PI / 180);
}

/* As torchvision/transforms/functional.py multiplies and adds up: half a step of 2^-53 shows where
 * a place lies just between two pixels. */
static void warp_affine_matrix_first(const struct warp_parameters *p, double ret[static 6])
{
    double turn = warp_radians(p->angle);
    double sx = warp_radians(p->shear[0]), sy = warp_radians(p->shear[1]);
    double a = cos(turn - sy) / cos(sy), b = -cos(turn - sy) * tan(sx) / cos(sy) - sin(turn);
    double c = sin(turn - sy) / cos(sy), d = -sin(turn - sy) * tan(sx) / cos(sy) + cos(turn);
    double x = -p->center[0] - p->translate[0], y = -p->center[1] - p->translate[1];

    ret[0] = d / p->scale;
    ret[1] = -b / p->scale;
    ret[3] = -c / p->scale;
    ret[4] = a / p->scale;
    ret[2] = ret[0] * x + ret[1] * y + p->center[0];
    ret[5] = ret[3] * x + ret[4] * y + p->center[1];
}

/* As torchvision/transforms/v2/functional/_geometry.py. */
void warp_affine_matrix(const struct warp_parameters *p, double ret[static 6])
{
    if (p->first_generation) {
        warp_affine_matrix_first(p, ret);
        return;
    }
    double turn = warp_radians(p->angle);
    double sx = warp_radians(p->shear[0]), sy = warp_radians(p->shear[1]);
    double a = cos(turn - sy) / cos(sy), b = -(a * tan(sx) + sin(turn));
    double c = sin(turn - sy) / cos(sy), d = cos(turn) - c * tan(sx);
    double x = p->center[0] + p->translate[0], y = p->center[1] + p->translate[1];

    ret[0] = d / p->scale;
    ret[1] = -b / p->scale;
    ret[3] = -c / p->scale;
    ret[4] = a / p->scale;
    ret[2] = p->center[0] - ret[0] * x - ret[1] * y;
    ret[5] = p->center[1] - ret[3] * x - ret[4] * y;
}

/* 128 bits wherever this runs. A long double has them on ARM and 80 on x86, and what is left there
 * of coefficients that are 0 would differ, which a pixel between two others may show. */
#if __LDBL_MANT_DIG__ == 113
typedef long double warp_wide;
#else
__extension__ typedef __float128 warp_wide;
#endif

static warp_wide warp_size(warp_wide x)
{
    return x < 0 ? -x : x;
}

/* Gauss's elimination with the greatest pivot: rows of 8 unknowns and a result. */
static bool warp_solve(warp_wide m[static 8][9], double ret[static 8])
{
    for (int k = 0; k < 8; k++) {
        int best = k;
        for (int i = k + 1; i < 8; i++)
            best = warp_size(m[i][k]) > warp_size(m[best][k]) ? i : best;
        if (warp_size(m[best][k]) < 1e-12)
            return false;
        for (int j = 0; j < 9; j++) {
            warp_wide kept = m[k][j];
            m[k][j] = m[best][j];
            m[best][j] = kept;
        }
        for (int i = 0; i < 8; i++) {
            warp_wide times = i == k ? 0 : m[i][k] / m[k][k];
            for (int j = k; j < 9; j++)
                m[i][j] -= times * m[k][j];
        }
    }
    for (int k = 0; k < 8; k++)
        ret[k] = (double)(float)(m[k][8] / m[k][k]);
    return true;
}

bool warp_perspective_matrix(const double from[static 4][2], const double to[static 4][2],
                             double ret[static 8])
{
    warp_wide m[8][9] = {{0}};

    for (int i = 0; i < 4; i++) {
        double x = to[i][0], y = to[i][1];
        for (int k = 0; k < 2; k++) {
            warp_wide *row = m[2 * i + k];
            row[3 * k] = (warp_wide)x;
            row[3 * k + 1] = (warp_wide)y;
            row[3 * k + 2] = 1;
            row[6] = -(warp_wide)(from[i][k] * x);
            row[7] = -(warp_wide)(from[i][k] * y);
            row[8] = (warp_wide)from[i][k];
        }
    }
    return warp_solve(m, ret);
}
