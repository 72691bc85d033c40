/* SPDX-License-Identifier: MIT */
/*
 * The patterns that begin with an @ and are about source files: @file:FILE, the file's name with or without extension,
 * the end of its path, or a glob for one of these; and @usercode, files below a folder that the caller knows.
 */
#ifndef CT_BASE_SOURCE_GLOB_H
#define CT_BASE_SOURCE_GLOB_H

#include "base/glob.h"

struct ct_source_glob {
  struct ct_glob *glob; /* NULL: @usercode, or no such pattern at all */
  bool has_folder;
};

/* text begins with an @. As ct_glob_compile; free with ct_source_glob_free. */
int ct_source_glob_compile(const char *text, struct ct_source_glob *out, struct ct_diag *diag);
void ct_source_glob_free(struct ct_source_glob *source);
bool ct_source_glob_matches(const struct ct_source_glob *source, const char *path);

/* Whether path lies below the folder root; both normalized. */
bool ct_path_is_below(const char *path, const char *root);
/* The same of a source file as debug information has it: a relative path is one that the compiler was asked to write
 * so, and counts when there is such a file below root. */
bool ct_source_is_below(const char *file, const char *root);

#endif
