/* SPDX-License-Identifier: MIT */
/*
 * The levels of a demangled name: what stands between the `::` that are outside of all brackets. Where one level ends,
 * and where a parameter list begins, is a wall that the `*` of a one-level glob does not go through (base/glob.h).
 *
 *   foo::max<a::b>(int) const         walls:      ^^         ^        the :: and the (
 *   foo::(anonymous namespace)::f()              ^^                     ^^ ^
 *   <a::B as c::D>::f                                          ^^
 *   a::operator()(int), a::operator<<<b::c>()     ^^         ^;  ^^              ^
 *
 * Names come from files that nobody vouches for: brackets that do not match cost a wrong wall, nothing else.
 */
#ifndef CT_BASE_LEVELS_H
#define CT_BASE_LEVELS_H

#include <stddef.h>
#include <stdint.h>

enum ct_level_mark {
  CT_LEVEL_WALL = 1,   /* a character of a `::` between levels, or the `(` of a parameter list */
  CT_LEVEL_INSIDE = 2, /* a character inside brackets, the closing one not included */
};

/* Fills marks[0..length) with ct_level_mark bits. */
void ct_levels_mark(const char *name, size_t length, uint8_t *marks);

#endif
