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

/*
 * What a call fills in, where a parameter points to it: a number (one member without a name) or a structure. Of what
 * has no end by itself CT_KNOWN_OUT_BYTES are read, and shown.
 */
enum { CT_KNOWN_OUT_BYTES = 64, CT_KNOWN_MEMBERS = 8 };
struct ct_known_member {
  const char *name; /* NULL: the last one was it */
  uint8_t offset, bytes;
  uint8_t kind; /* enum ct_type_kind; CT_TYPE_POINTER: in hexadecimal */
};
struct ct_known_struct {
  const char *name;
  uint32_t bytes; /* that have all of these members */
  struct ct_known_member members[CT_KNOWN_MEMBERS];
};
const struct ct_known_struct *ct_known_struct_at(size_t n); /* NULL at the end */
/* What a type as "struct stat *" points to, or what such an array consists of; NULL: not known. */
const struct ct_known_struct *ct_known_struct(const char *pointer, bool is_array);
/* "filled", "text", "out", "some": what the call does with what the parameter points to. False: it is none of these. */
bool ct_known_out_parse(const char *word, size_t length, struct ct_parameter *parameter);
/* How much is read of what the call has filled in; 0: nothing. */
uint32_t ct_known_out_bytes(const struct ct_parameter *parameter);

/* "ENOENT"; NULL: no such error. */
const char *ct_error_name(int number);
/* The constants of this name ("open_flags"), NULL: none. */
const struct ct_constants *ct_known_constants(const char *name);

#endif
