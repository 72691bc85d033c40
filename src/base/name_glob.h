/* SPDX-License-Identifier: MIT */
/*
 * What a pattern of functions (<contrail/select.h>) says of names: a glob of one scope or deep, matched against the
 * readable name with and without its parameters and against what the symbol table has.
 */
#ifndef CT_BASE_NAME_GLOB_H
#define CT_BASE_NAME_GLOB_H

#include "base/glob.h"
#include "base/scopes.h"

struct ct_name_glob {
  struct ct_glob *glob; /* NULL: matches every name */
  bool is_mangled;
  struct ct_scope_marks marks;
};

/* As ct_glob_compile_scopes; free with ct_name_glob_free. */
int ct_name_glob_compile(const char *text, struct ct_name_glob *out, struct ct_diag *diag);
void ct_name_glob_free(struct ct_name_glob *names); /* accepts a zeroed one */
/* name: the readable one, with its parameters; NULL: only raw_name is known, as the symbol table has it. */
bool ct_name_glob_matches(struct ct_name_glob *names, const char *name, const char *raw_name);

#endif
