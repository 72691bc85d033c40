/* SPDX-License-Identifier: MIT */
/* Which way a branch goes nearly always. */
#ifndef CT_BASE_BRANCH_H
#define CT_BASE_BRANCH_H

#define CT_LIKELY(x)   __builtin_expect(!!(x), 1)
#define CT_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
