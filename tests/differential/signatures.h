/* SPDX-License-Identifier: MIT */
/*
 * Functions that depend on nothing but their arguments, and these, a letter each:
 *
 *   d s     bytes to write to, to read            n m     a number of bytes, of elements
 *   S T W   a string, one to append to, a wide one N       a number as text
 *   c i b   a character, any number, a base       p P     16 words for results, a number of bytes behind a pointer
 *   D F G   double, float, two floats in one      L Q V   long double, float128, a whole vector
 *   x       128 bits in two registers             k       keys that one call makes and the next uses
 *   z q     size of an element, comparison        f       a format for what follows: double, long double, int, string
 *   B E     128, 192 or 256; 0 or 1               0       zero
 *   = .     in front: the result is in rax and rdx; it is not in rax
 *
 * Several calls are separated by ';' and share their k.
 */
#ifndef CT_TESTS_SIGNATURES_H
#define CT_TESTS_SIGNATURES_H

struct signature {
  const char *names; /* separated by spaces; each call of a sequence has its name in front of ':' instead */
  const char *arguments;
};

struct library {
  const char *path;
  const struct signature *signatures;
};

extern const struct library libraries[];

#endif
