/* SPDX-License-Identifier: MIT */
/*
 * The functions that the user wants recorded: an ordered list of patterns, which may change at any time.
 *
 *   foo::bar          functions of that name, exactly
 *   foo::*  foo*      one scope: a `*` takes neither a `::` nor parameters; `?` and [a-z] as in a shell
 *   foo::**           deep: a `**` takes anything
 *   @file:FILE        functions written in FILE: its name with or without extension, or the end of its path; or a glob
 *   @usercode         functions written below the project's root. Where no module has one, because there is no debug
 *                     information or it comes from elsewhere: all functions of the program itself
 *   MODULE!...        any of these, in the modules that match, by the last part of the path, the path or the soname (a
 *                     glob, whose `*` takes anything); MODULE! alone: all of their functions, deep
 *
 * A function is tried by each of its names: as in the symbol table, also without a version (@GLIBC_2.14) and what the
 * compiler appended (.isra.0); demangled without its return type, and also without its parameter list; one without a
 * name as module+0x1234. Wildcards are tried on mangled names only when the pattern begins like one. What is not
 * callable (parts of functions, stubs of the PLT) is matched by its exact name alone.
 *
 * A function is hooked in full (enter and return) when a pattern that matches it says so, else light (enter only).
 * Exact patterns and those of one scope say full, the others light; a pattern with at most CT_SELECT_FEW matches in all
 * modules together (CT_SELECT_FEW_BY_FILE of @file: and @usercode) says full, until there are more; the mode given with
 * it says more than all this.
 *
 * While there has never been a pattern everything is selected, in full. When the last one is removed nothing is.
 * Exclusion (exclude.h) says more than any pattern.
 *
 * Threads: a selection is of one thread. Ownership: texts that are given out are the selection's, until it changes.
 */
#ifndef CONTRAIL_SELECT_H
#define CONTRAIL_SELECT_H

#include <contrail/error.h>
#include <contrail/plan.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_SELECT_FEW 10
#define CT_SELECT_FEW_BY_FILE                                                                                          \
  500 /* of @file: and @usercode, whose functions are called less often than a library's                               \
       */

enum ct_select_kind { CT_SELECT_EXACT, CT_SELECT_SCOPE, CT_SELECT_DEEP, CT_SELECT_FILE, CT_SELECT_USERCODE };
enum ct_select_mode { CT_SELECT_AUTO, CT_SELECT_FULL, CT_SELECT_LIGHT };

struct ct_selection; /* opaque */
struct ct_exclude;   /* exclude.h */

struct ct_selection *ct_selection_create(void);         /* NULL: out of memory */
void ct_selection_free(struct ct_selection *selection); /* accepts NULL */
/* The project's root; without it the current directory. 0, CT_ENOMEM, or CT_EINVAL. */
int ct_selection_set_root(struct ct_selection *selection, const char *directory, struct ct_diag *diag);
/*
 * Whose first two arguments and result are recorded, of functions that are hooked in full: of those that an exact
 * pattern or one of one scope selected, of all, of none.
 */
enum ct_select_values { CT_VALUES_AUTO, CT_VALUES_ALL, CT_VALUES_NONE };
void ct_selection_set_values(struct ct_selection *selection, enum ct_select_values values);
/*
 * Functions that the pattern matches are recorded with detail: registers at the call and the return, and the stack; see
 * struct ct_session_options. They are hooked in full, also when no other pattern selects them. NULL: all that are
 * hooked in full. 0, CT_ENOMEM, or CT_EINVAL as ct_selection_add.
 */
int ct_selection_add_detail(struct ct_selection *selection, const char *pattern, struct ct_diag *diag);
/* With detail, of functions that a pattern names: what the structures hold that arguments point to. */
void ct_selection_set_members(struct ct_selection *selection);
/* What is recorded with detail: a selection of these patterns alone, which the caller may ask; NULL: nothing. */
const struct ct_selection *ct_selection_detail(const struct ct_selection *selection);
/* The mode of patterns that are added with CT_SELECT_AUTO, and of everything while there is no pattern. */
void ct_selection_set_mode(struct ct_selection *selection, enum ct_select_mode mode);

/*
 * Adds a pattern at the end, or gives the one of the same text this mode. 0, CT_ENOMEM, or CT_EINVAL with the reason in
 * diag (without the pattern itself).
 */
int ct_selection_add(struct ct_selection *selection, const char *pattern, enum ct_select_mode mode,
                     struct ct_diag *diag);
/* From now on only what patterns match is selected: nothing, while there is none. */
void ct_selection_set_none(struct ct_selection *selection);
int ct_selection_remove(struct ct_selection *selection, const char *pattern); /* 0 or CT_ENOENT */
/* True while no pattern has ever been added: everything is selected. Also for NULL. */
bool ct_selection_is_everything(const struct ct_selection *selection);

struct ct_select_info {
  size_t struct_size;
  const char *pattern;
  enum ct_select_kind kind;
  enum ct_select_mode asked; /* with the pattern, or for all */
  enum ct_select_mode mode;  /* as things stand: full or light */
  size_t matched;            /* in the modules that were looked at */
  size_t hooked;             /* of these, in modules that have been filtered */
  char note[512];            /* what @usercode stands for, why nothing can match; "" for nothing */
  const char *likely;        /* nothing matches: "perhaps a, b", as far as it was looked for (ct_plan_suggest); or "" */
};
/* The patterns in their order, counted from 0. CT_ERANGE after the last one. */
int ct_selection_info(const struct ct_selection *selection, size_t n, struct ct_select_info *info);
/* How many of the functions that the pattern matches were not hooked for this reason. */
size_t ct_selection_refused(const struct ct_selection *selection, size_t n, enum ct_refusal refusal);
/* All this as a JSON array, one object for each pattern, by malloc(); NULL: out of memory. */
char *ct_selection_json(const struct ct_selection *selection);
const char *ct_select_kind_name(enum ct_select_kind kind); /* "exact", "level", "deep", "file", "usercode" */
const char *ct_select_mode_name(enum ct_select_mode mode); /* "auto", "full", "light" */

/*
 * What a recording wants of a plan: selection, what it wants (NULL: everything); exclude, what it does not want all the
 * same (NULL: nothing); path: the module's, as users see it. The file is taken for the program itself.
 */
int ct_filter_result_create(const struct ct_plan *plan, struct ct_selection *selection, struct ct_exclude *exclude,
                            const char *path, struct ct_filter_result **out);
void ct_filter_result_destroy(struct ct_filter_result *filter_result); /* accepts NULL */
/*
 * Looks for names that are like those of patterns that have matched nothing so far (ct_select_info.likely,
 * ct_exclude_likely). path: as for ct_filter_result_create. Either may be NULL.
 */
void ct_plan_suggest(const struct ct_plan *plan, struct ct_selection *selection, struct ct_exclude *exclude,
                     const char *path);

#ifdef __cplusplus
}
#endif

#endif
