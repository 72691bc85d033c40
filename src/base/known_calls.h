/* SPDX-License-Identifier: MIT */
/*
 * Prototypes of functions of the C library that everybody knows, so that their values can be shown without debug
 * information, with the names of their flags; and the names of errors.
 */
#ifndef CT_BASE_KNOWN_CALLS_H
#define CT_BASE_KNOWN_CALLS_H

#include "base/prototype.h"

/*
 * Whether the module is a C library: glibc or musl, with the libraries that belonged to it once. A program that has
 * none of them in its image is statically linked and has the functions itself.
 */
bool ct_known_calls_in(const char *module_name);
/* The line of the table for a symbol; NULL: none. is_glibc: there some names stand for the choice of a variant. */
const char *ct_known_call(const char *symbol, bool is_glibc);
/* The line is of a function that is quick and called all the time (strlen, memcpy): the library chooses a variant. */
bool ct_known_call_is_quick(const char *line);
/* The nth line, NULL at the end. */
const char *ct_known_call_at(size_t n);
/*
 * The prototype of a line; its names are put into buffer (CT_KNOWN_CALL_BYTES are enough). False when it does not
 * parse, which the tests rule out.
 */
enum { CT_KNOWN_CALL_BYTES = 1024 };
bool ct_known_call_parse(const char *line, char *buffer, size_t size, struct ct_prototype *prototype);

/* "ENOENT"; NULL: no such error. */
const char *ct_error_name(int number);
/* The constants of this name ("open_flags"), NULL: none. */
const struct ct_constants *ct_known_constants(const char *name);

#endif
