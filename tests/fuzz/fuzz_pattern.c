/* SPDX-License-Identifier: MIT */
/*
 * What users write to --exclude, --trace and --on: a pattern or rule, a line end, a name. Either the pattern is refused
 * with a reason, or it matches what a plain recursive matcher over the same text says.
 */
#include "fuzz.h"

#include "base/glob.h"
#include "base/scopes.h"
#include "select/rule.h"
#include <contrail/exclude.h>
#include <contrail/select.h>

static long steps; /* the plain matcher may take for ever */

/* The set after the '[' at *glob: whether c is in it; *glob is left after it. Well-formed, since it compiled. */
static bool
in_set(const uint8_t **glob, uint8_t c)
{
  const uint8_t *at = *glob + 1;
  bool negated = *at == '!' || *at == '^', found = false;
  at += negated;
  for (bool first = true; *at != ']' || first; first = false) {
    at += *at == '\\';
    uint8_t from = *at++, to = from;
    if (*at == '-' && at[1] != ']') {
      at++;
      at += *at == '\\';
      to = *at++;
    }
    found |= c >= from && c <= to;
  }
  *glob = at + 1;
  return found != negated;
}

static bool
matches(const uint8_t *glob, const uint8_t *glob_end, const uint8_t *name, const uint8_t *name_end)
{
  if (steps-- <= 0) {
    return false;
  }
  if (glob == glob_end) {
    return name == name_end;
  }
  if (*glob == '*') {
    return matches(glob + 1, glob_end, name, name_end) ||
           (name != name_end && matches(glob, glob_end, name + 1, name_end));
  }
  if (*glob == '[' && glob + 1 != glob_end && glob[1] == ']') {
    return name_end - name >= 2 && name[0] == '[' && name[1] == ']' && matches(glob + 2, glob_end, name + 2, name_end);
  }
  if (name == name_end) {
    return false;
  }
  if (*glob == '[') {
    bool found = in_set(&glob, *name);
    return found && matches(glob, glob_end, name + 1, name_end);
  }
  if (*glob == '?') {
    return matches(glob + 1, glob_end, name + 1, name_end);
  }
  glob += *glob == '\\';
  return *glob == *name && matches(glob + 1, glob_end, name + 1, name_end);
}

static void
check_glob(const uint8_t *text, size_t length, const uint8_t *name, size_t name_length)
{
  struct ct_glob *glob = NULL;
  struct ct_diag diag = {""};
  if (ct_glob_compile((const char *)text, length, &glob, &diag) != 0) {
    CHECK(glob == NULL && diag.text[0] != '\0');
    return;
  }
  bool found = ct_glob_matches(glob, (const char *)name, name_length);
  steps = 200000;
  bool expected = matches(text, text + length, name, name + name_length);
  CHECK(steps <= 0 || found == expected);
  const char *plain = ct_glob_plain(glob);
  if (plain != NULL) {
    CHECK(found == (strlen(plain) == name_length && memcmp(plain, name, name_length) == 0));
  }
  if (ct_glob_is_all(glob)) {
    CHECK(found);
  }
  if (found && ct_glob_first(glob) != CT_GLOB_FIRST_ANY) {
    CHECK(name_length != 0 && name[0] == ct_glob_first(glob));
  }
  ct_glob_free(glob);
}

/* The same with levels: marks are those of the glob and of the name, by offset. */
struct levelled {
  const uint8_t *glob, *glob_end, *glob_marks, *glob_start;
  const uint8_t *name_start, *name_end, *name_marks;
};

static bool
scope_matches(const struct levelled *all, const uint8_t *glob, const uint8_t *name)
{
  if (steps-- <= 0) {
    return false;
  }
  if (glob == all->glob_end) {
    return name == all->name_end;
  }
  bool is_boundary = name != all->name_end && (all->name_marks[name - all->name_start] & CT_SCOPE_BOUNDARY) != 0;
  if (*glob == '*') {
    const uint8_t *after = glob;
    while (after != all->glob_end && *after == '*') {
      after++;
    }
    bool deep = after - glob > 1 && (all->glob_marks[glob - all->glob_start] & CT_SCOPE_INSIDE) == 0;
    for (const uint8_t *at = name;; at++) {
      if (scope_matches(all, after, at)) {
        return true;
      }
      if (at == all->name_end || (!deep && (all->name_marks[at - all->name_start] & CT_SCOPE_BOUNDARY) != 0)) {
        return false;
      }
    }
  }
  if (*glob == '[' && glob + 1 != all->glob_end && glob[1] == ']') {
    return all->name_end - name >= 2 && name[0] == '[' && name[1] == ']' && scope_matches(all, glob + 2, name + 2);
  }
  if (name == all->name_end) {
    return false;
  }
  if (*glob == '[') {
    bool found = in_set(&glob, *name);
    return found && !is_boundary && scope_matches(all, glob, name + 1);
  }
  if (*glob == '?') {
    return !is_boundary && scope_matches(all, glob + 1, name + 1);
  }
  glob += *glob == '\\';
  return *glob == *name && scope_matches(all, glob + 1, name + 1);
}

static void
check_scopes(const uint8_t *text, size_t length, const uint8_t *name, size_t name_length)
{
  struct ct_glob *glob = NULL;
  struct ct_diag diag = {""};
  uint8_t *marks = malloc(length + 1), *name_marks = malloc(name_length + 1);
  CHECK(marks != NULL && name_marks != NULL);
  ct_scopes_mark((const char *)text, length, marks);
  ct_scopes_mark((const char *)name, name_length, name_marks);
  if (ct_glob_compile_scopes((const char *)text, length, &glob, &diag) == 0) {
    bool found = ct_glob_matches_scopes(glob, (const char *)name, name_length, name_marks);
    struct levelled all = {text, text + length, marks, text, name, name + name_length, name_marks};
    steps = 200000;
    bool expected = scope_matches(&all, text, name);
    CHECK(steps <= 0 || found == expected);
    if (ct_glob_is_all(glob)) {
      CHECK(found);
    }
  } else {
    CHECK(diag.text[0] != '\0');
  }
  ct_glob_free(glob);
  free(marks);
  free(name_marks);
}

/* Taken or refused with a reason, taken once, and removed again. */
static void
check_selection(const char *text)
{
  struct ct_selection *selection = ct_selection_create();
  struct ct_diag diag = {""};
  CHECK(selection != NULL);
  if (ct_selection_add(selection, text, CT_SELECT_AUTO, &diag) == 0) {
    CHECK(ct_selection_add(selection, text, CT_SELECT_FULL, NULL) == 0);
    CHECK(ct_selection_remove(selection, text) == 0 && ct_selection_remove(selection, text) == CT_ENOENT);
  } else {
    CHECK(diag.text[0] != '\0' && ct_selection_is_everything(selection));
  }
  ct_selection_free(selection);
}

/* Refused with a reason; or what it says is a rule again, and the same. */
static void
check_rule(const char *text)
{
  struct ct_rule rule, again;
  struct ct_diag diag = {""};
  if (ct_rule_parse(text, &rule, &diag) == 0) {
    CHECK(ct_rule_parse(rule.text, &again, NULL) == 0);
    CHECK(strcmp(again.text, rule.text) == 0 && strcmp(again.pattern, rule.pattern) == 0);
    CHECK(again.kind == rule.kind && again.op == rule.op && again.ns == rule.ns && again.number == rule.number);
  } else {
    CHECK(diag.text[0] != '\0');
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const uint8_t *line_end = memchr(data, '\n', size);
  size_t length = line_end != NULL ? (size_t)(line_end - data) : size;
  size_t name_length = line_end != NULL ? size - length - 1 : 0;
  uint8_t *text = malloc(length + 1), *name = malloc(name_length + 1);
  CHECK(text != NULL && name != NULL);
  memcpy(text, data, length);
  text[length] = 0;
  memcpy(name, data + size - name_length, name_length);
  check_glob(text, length, name, name_length);
  check_scopes(text, length, name, name_length);
  check_selection((const char *)text);
  check_rule((const char *)text);
  struct ct_exclude *exclude = ct_exclude_create();
  struct ct_diag diag = {""};
  CHECK(exclude != NULL);
  if (ct_exclude_add(exclude, (const char *)text, &diag) == 0) {
    CHECK(strcmp(ct_exclude_pattern(exclude, 0), (const char *)text) == 0);
  } else {
    CHECK(ct_exclude_is_empty(exclude) && diag.text[0] != '\0');
  }
  ct_exclude_free(exclude);
  free(text);
  free(name);
  return 0;
}
