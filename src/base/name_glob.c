/* SPDX-License-Identifier: MIT */
/* See name_glob.h. */
#include "base/name_glob.h"

#include "base/demangle.h"

#include <stdlib.h>
#include <string.h>

static bool
looks_mangled(const char *name)
{
  return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

int
ct_name_glob_compile(const char *text, struct ct_name_glob *out, struct ct_diag *diag)
{
  struct ct_name_glob names = {.is_mangled = looks_mangled(text)};
  int code = ct_glob_compile_scopes(text, strlen(text), &names.glob, diag);
  if (code == 0) {
    *out = names;
  }
  return code;
}

void
ct_name_glob_free(struct ct_name_glob *names)
{
  ct_glob_free(names->glob);
  free(names->marks.bytes);
  *names = (struct ct_name_glob){NULL};
}

static bool
name_matches(struct ct_name_glob *names, const char *name, size_t length)
{
  return ct_scope_marks_make(&names->marks, name, length) &&
         ct_glob_matches_scopes(names->glob, name, length, names->marks.bytes);
}

/* With its parameter list and without. */
static bool
demangled_matches(struct ct_name_glob *names, const char *name)
{
  size_t whole = strlen(name), plain = ct_demangled_name_length(name);
  return name_matches(names, name, whole) || (plain != whole && name_matches(names, name, plain));
}

/* Demangled without its return type, which templates have. */
static bool
bare_name_matches(struct ct_name_glob *names, const char *raw_name)
{
  char *raw = looks_mangled(raw_name) ? strndup(raw_name, strcspn(raw_name, "@")) : NULL;
  char *name = raw != NULL ? ct_demangle_name(raw) : NULL;
  bool matches = name != NULL && demangled_matches(names, name);
  free(name);
  free(raw);
  return matches;
}

/* As in the symbol table: whole, without a version (@GLIBC_2.14), and without what the compiler appended (.isra.0). */
static bool
raw_name_matches(struct ct_name_glob *names, const char *name)
{
  size_t whole = strlen(name), length = strcspn(name, "@"), stem = strcspn(name, ".@");
  bool has_wildcard = ct_glob_plain(names->glob) == NULL;
  if (looks_mangled(name) && has_wildcard && !names->is_mangled && !ct_glob_is_all(names->glob)) {
    return false;
  }
  return name_matches(names, name, whole) || (length != 0 && length != whole && name_matches(names, name, length)) ||
         (stem != 0 && stem != length && !looks_mangled(name) && name_matches(names, name, stem));
}

bool
ct_name_glob_matches(struct ct_name_glob *names, const char *name, const char *raw_name)
{
  return names->glob == NULL || (name != NULL && demangled_matches(names, name)) || raw_name_matches(names, raw_name) ||
         bare_name_matches(names, raw_name);
}
