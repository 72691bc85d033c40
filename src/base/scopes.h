/* SPDX-License-Identifier: MIT */
/*
 * The scopes of a demangled name: what stands between the `::` that are outside of all brackets. Where one scope ends,
 * and where a parameter list begins, is a scope boundary that the `*` of a one-scope glob does not go through
 * (base/glob.h).
 *
 *   foo::max<a::b>(int) const         bounds:     ^^         ^        the :: and the (
 *   foo::(anonymous namespace)::f()              ^^                     ^^ ^
 *   <a::B as c::D>::f                                          ^^
 *   a::operator()(int), a::operator<<<b::c>()     ^^         ^;  ^^              ^
 *
 * Names come from files that nobody vouches for: brackets that do not match cost a wrong boundary, nothing else.
 */
#ifndef CT_BASE_SCOPES_H
#define CT_BASE_SCOPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_scope_mark {
  CT_SCOPE_BOUNDARY = 1, /* a character of a `::` between scopes, or the `(` of a parameter list */
  CT_SCOPE_INSIDE = 2,   /* a character inside brackets, the closing one not included */
};

/* Fills marks[0..length) with ct_scope_mark bits. */
void ct_scopes_mark(const char *name, size_t length, uint8_t *marks);

/* Marks of one name after the other, in memory that grows; bytes: to be freed. */
struct ct_scope_marks {
  uint8_t *bytes;
  size_t size;
};
/* False: out of memory. */
bool ct_scope_marks_make(struct ct_scope_marks *marks, const char *name, size_t length);

#endif
