/* SPDX-License-Identifier: MIT */
/* What library code needs to fail with one of the public codes and a reason. Only front ends print. */
#ifndef CT_BASE_ERROR_H
#define CT_BASE_ERROR_H

#include <contrail/error.h>

/* Formats the reason into diag (which may be NULL) and returns code. */
int ct_fail(struct ct_diag *diag, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The ct_err code that stands for a value of errno. */
int ct_err_from_errno(int err);

#endif
