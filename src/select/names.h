/* SPDX-License-Identifier: MIT */
/*
 * Matching the functions of a module by their names: what exclusion (exclude.h) and selection (select.h) share. A rule
 * is [MODULE!]FUNCTION. The module is a glob, tried on the last part of the path, the whole path and the soname. A
 * function is tried by each of its names: as in the symbol table, also without a version (@GLIBC_2.14) and what the
 * compiler appended (.isra.0, .cold); demangled without its return type, and also without its parameter list; one
 * without a name as module+0x1234.
 *
 * A rule whose function is a plain name is found through a hash table, so any number of them costs the same; those with
 * wildcards are tried one after the other. For each module the rules whose module matches are made active. A name is
 * demangled only when an active rule could match the result: never for rules for C alone (raw), rarely for plain names.
 */
#ifndef CT_SELECT_NAMES_H
#define CT_SELECT_NAMES_H

#include "plan/plan.h"

enum ct_names_style {
  CT_NAMES_FREE,   /* a `*` takes any characters; tried on mangled names as well */
  CT_NAMES_SCOPES, /* a `*` stays in its level, `**` does not; on a mangled name only when it begins like one */
};

struct ct_names; /* opaque; of one thread */

struct ct_names *ct_names_create(enum ct_names_style style); /* NULL: out of memory */
void ct_names_free(struct ct_names *names);                  /* accepts NULL */

/*
 * Adds a rule and gives its number: the smallest that is free. The module is that of the pattern; function is the
 * pattern's, or NULL for a rule that is about modules only: it becomes active and matches no name. Both are copied. 0,
 * CT_ENOMEM, or CT_EINVAL with the reason in diag.
 */
int ct_names_add(struct ct_names *names, const char *pattern, const char *function, uint32_t *rule,
                 struct ct_diag *diag);
void ct_names_remove(struct ct_names *names, uint32_t rule);
/* The rule is not for names that are mangled. */
void ct_names_set_raw(struct ct_names *names, uint32_t rule);
/* Whether the rule has a `**` (CT_NAMES_SCOPES). */
bool ct_names_is_deep(const struct ct_names *names, uint32_t rule);
/* The one name of a rule without wildcards; else NULL. */
const char *ct_names_plain(const struct ct_names *names, uint32_t rule);

/* One module. Rules for which skip (by number; NULL: none) is true are left alone. plan lives until the last match. */
void ct_names_begin(struct ct_names *names, const struct ct_plan *plan, const char *module_path, const bool *skip);
bool ct_names_is_active(const struct ct_names *names, uint32_t rule);
bool ct_names_has_active(const struct ct_names *names); /* one that is about names */
/* True when every function matches an active rule. */
bool ct_names_has_all(const struct ct_names *names);
/* The numbers of the active rules that match the function, and how many: theirs until the next call. */
size_t ct_names_match(struct ct_names *names, const struct ct_planned *planned, const uint32_t **rules);
/* From now on the rule need not be among the numbers when another one is: saves trying it. */
void ct_names_reconcile(struct ct_names *names, uint32_t rule);

#endif
