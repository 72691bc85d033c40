/* SPDX-License-Identifier: MIT */
/* Names as the programmer wrote them, from the mangled ones of C++ (Itanium) and Rust (legacy and v0). */
#ifndef CT_BASE_DEMANGLE_H
#define CT_BASE_DEMANGLE_H

/* A malloc'd string, or NULL when raw is NULL, not mangled, or memory is exhausted. */
char *ct_demangle(const char *raw);

#endif
