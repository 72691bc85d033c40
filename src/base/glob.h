/* SPDX-License-Identifier: MIT */
/*
 * Globs over names of functions and files, compiled once:
 *
 *   *        any characters, also none          [a-z_]  one of these        [!a-z] [^a-z]  one that is none of these
 *   ?        one character                      \c      the character c
 *
 * As fnmatch(3) without flags, but for one thing: "[]" stands for itself, since it is part of names (operator[]).
 */
#ifndef CT_BASE_GLOB_H
#define CT_BASE_GLOB_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_GLOB_BYTES_MAX 4096

struct ct_glob; /* opaque */

/* 0, CT_ENOMEM, or CT_EINVAL with the reason in diag. */
int ct_glob_compile(const char *text, size_t length, struct ct_glob **out, struct ct_diag *diag);
/*
 * The same for names that have scopes (base/scopes.h): `*`, `?` and sets take no boundary. `**` takes anything; inside
 * brackets, where it is part of a type (`f(char **)`), it is as `*`.
 */
int ct_glob_compile_scopes(const char *text, size_t length, struct ct_glob **out, struct ct_diag *diag);
void ct_glob_free(struct ct_glob *glob); /* accepts NULL */

bool ct_glob_matches(const struct ct_glob *glob, const char *text, size_t length);
/* For a glob of ct_glob_compile_scopes; marks are those of text (ct_scopes_mark). */
bool ct_glob_matches_scopes(const struct ct_glob *glob, const char *text, size_t length, const uint8_t *marks);
/* True when it has a `**` that takes anything. */
bool ct_glob_is_deep(const struct ct_glob *glob);
/* The one text that matches, when there is no wildcard; else NULL. */
const char *ct_glob_plain(const struct ct_glob *glob);
/* The character that everything that matches begins with, or CT_GLOB_FIRST_ANY when it is not one alone. */
#define CT_GLOB_FIRST_ANY 256
int ct_glob_first(const struct ct_glob *glob);
/* True for a glob that matches every text. */
bool ct_glob_is_all(const struct ct_glob *glob);

/* Where the module of a pattern [MODULE!]FUNCTION ends: its '!'. NULL when it has none. */
const char *ct_glob_separator(const char *pattern);

#endif
