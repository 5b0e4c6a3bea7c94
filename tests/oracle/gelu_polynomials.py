"""Prints the coefficients in src/kernels/internal/vector_math.h: minimax polynomials by Remez's exchange.

exp:  exp(r) = 1 + r + r^2 (e0 + e1 r + ... + e4 r^4), |r| <= ln(2) / 2, relative error.
tail: Phi(-a) exp(a^2 / 2) = t (c0 + c1 t + ... + c9 t^9), t = 1 / (1 + 0.3 a), 0 <= a <= 13.4, relative error.
tanh: tanh(x) = x + x z (h0 + h1 z + ... + h4 z^4), z = x^2 <= 0.4, relative error.

Needs mpmath (1.3.0).
"""
from mpmath import cos, erfc, exp, log, lu_solve, matrix, mp, mpf, nstr, pi, sqrt, tanh

mp.dps = 40


def remez(target, basis, weight, low, high, grid):
    """Coefficients of the best weighted combination of `basis`, and its largest error."""
    count = len(basis)
    points = [(low + high) / 2 - (high - low) / 2 * cos(pi * k / count) for k in range(count + 1)]
    for _ in range(12):
        system, right = matrix(count + 1, count + 1), matrix(count + 1, 1)
        for i, x in enumerate(points):
            for j, term in enumerate(basis):
                system[i, j] = term(x) * weight(x)
            system[i, count] = (-1) ** i
            right[i] = target(x) * weight(x)
        solution = lu_solve(system, right)
        extrema = []
        for k in range(grid + 1):
            x = (low + high) / 2 - (high - low) / 2 * cos(pi * k / grid)
            error = (sum(solution[j] * term(x) for j, term in enumerate(basis)) - target(x)) * weight(x)
            if extrema and (extrema[-1][1] > 0) == (error > 0):
                if abs(error) > abs(extrema[-1][1]):
                    extrema[-1] = (x, error)
            else:
                extrema.append((x, error))
        while len(extrema) > count + 1:
            extrema.pop(0 if abs(extrema[0][1]) < abs(extrema[-1][1]) else -1)
        largest = max(abs(error) for _, error in extrema)
        if len(extrema) < count + 1 or largest < abs(solution[count]) * mpf("1.0001"):
            break
        points = [x for x, _ in extrema]
    return [solution[j] for j in range(count)], largest


def show(name, result):
    coefficients, error = result
    print(name, "largest relative error", nstr(error, 3))
    for value in coefficients:
        print("  ", nstr(value, 10))


show("tanh", remez(lambda z: tanh(sqrt(z)) / sqrt(z) - 1, [lambda z, j=j: z ** (j + 1) for j in range(5)],
                   lambda z: sqrt(z) / tanh(sqrt(z)), mpf("1e-8"), mpf("0.4"), 1500))

half_ln2 = log(2) / 2
show("exp", remez(lambda r: exp(r) - 1 - r, [lambda r, j=j: r ** (j + 2) for j in range(5)], lambda r: exp(-r),
                  -half_ln2, half_ln2, 1500))

p = mpf("0.3")


def tail(t):
    a = (1 / t - 1) / p
    return erfc(a / sqrt(2)) * exp(a * a / 2) / 2


show("tail", remez(tail, [lambda t, j=j: t ** (j + 1) for j in range(10)], lambda t: 1 / tail(t),
                   1 / (1 + p * mpf("13.4")), mpf(1), 400))
