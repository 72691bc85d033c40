/* SPDX-License-Identifier: MIT */
/*
 * Functions that the user does not want recorded. A pattern is
 *
 *   FUNCTION            functions of that name in all modules; exact, or a glob: * ? [a-z]
 *   MODULE!FUNCTION     those of the modules that match, by the last part of the path, the whole path, or the soname
 *   MODULE!             all functions of these modules
 *   @leaf:BYTES         in place of FUNCTION: those of at most so many bytes that call nothing and make no system call
 *
 * A `*` matches any characters, `::` and parameters included (other than in select.h). A function is tried by all of
 * its names, as select.h says.
 *
 * Exclusion is a step of its own after planning: a plan is the same for everybody, the filter result belongs to a
 * recording. An excluded function is not patched. Two kinds keep a trampoline without an event: those that must find
 * the true return address in their return-address slot, since a recorded function may tail-call them, and those with a
 * callout, which contrail needs.
 *
 * Threads: a struct ct_exclude is of one thread, and of a session while that has it. Ownership: texts that are given
 * out are its own, until it changes.
 */
#ifndef CONTRAIL_EXCLUDE_H
#define CONTRAIL_EXCLUDE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_exclude; /* opaque */

struct ct_exclude *ct_exclude_create(void);       /* NULL: out of memory */
void ct_exclude_free(struct ct_exclude *exclude); /* accepts NULL */

/* Adds one pattern. 0, CT_ENOMEM, or CT_EINVAL with the reason in diag (without the pattern itself). */
int ct_exclude_add(struct ct_exclude *exclude, const char *pattern, struct ct_diag *diag);
/*
 * Removes the last pattern of that text; not one of the built-in list. 0 or CT_ENOENT. What is selected next is
 * selected without it.
 */
int ct_exclude_remove(struct ct_exclude *exclude, const char *pattern);
/* Adds the patterns of a file, one a line; empty lines and those that begin with # are skipped. */
int ct_exclude_add_file(struct ct_exclude *exclude, const char *path, struct ct_diag *diag);
/* Adds the built-in list of known hot spots. */
int ct_exclude_add_hot(struct ct_exclude *exclude, struct ct_diag *diag);
bool ct_exclude_is_empty(const struct ct_exclude *exclude); /* true for NULL */

/* The patterns of ct_exclude_add, counted from 0, as they were given; NULL ends. */
const char *ct_exclude_pattern(const struct ct_exclude *exclude, size_t n);
/* Whether that pattern has matched some function so far, excluded by it or not. */
bool ct_exclude_has_matched(const struct ct_exclude *exclude, size_t n);
/* As ct_select_info.likely. */
const char *ct_exclude_likely(const struct ct_exclude *exclude, size_t n);
/* Whether the built-in list was added. */
bool ct_exclude_has_hot(const struct ct_exclude *exclude);

/* The built-in list, in groups. May get members at its end. */
struct ct_hot {
  const char *what;     /* and where it is hot */
  const char *module;   /* of all its patterns; NULL: any */
  const char *patterns; /* FUNCTIONs, a space between */
  bool mangled;         /* C++ functions, even where a pattern does not look like it */
};
/* Calls visit with each pattern of the list, the module with it, until it returns nonzero; gives that. */
int ct_hot_each(int (*visit)(void *context, const struct ct_hot *group, const char *pattern), void *context);

#ifdef __cplusplus
}
#endif

#endif
