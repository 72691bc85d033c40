/* SPDX-License-Identifier: MIT */
/* Names as the programmer wrote them, from the mangled ones of C++ (Itanium) and Rust (legacy and v0). */
#ifndef CT_BASE_DEMANGLE_H
#define CT_BASE_DEMANGLE_H

#include <stddef.h>

/* A malloc'd string, or NULL when raw is NULL, not mangled, or memory is exhausted. */
char *ct_demangle(const char *raw);
/* The same without the return type, which mangled names of function templates tell. */
char *ct_demangle_name(const char *raw);
/* Length of a demangled name without its last parameter list and what follows: "a::f(int) const" gives "a::f". */
size_t ct_demangled_name_length(const char *text);
/* Of a demangled name without a return type: what is before its last ::, "" if nothing is. NULL: out of memory. */
char *ct_demangled_class(const char *name);

#endif
