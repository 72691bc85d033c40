/* SPDX-License-Identifier: MIT */
/*
 * What users write to --exclude: a pattern, a line end, a name. Either the pattern is refused with a reason, or it
 * matches what a plain recursive matcher over the same text says.
 */
#include "fuzz.h"

#include "base/glob.h"
#include <contrail/exclude.h>

static long steps; /* the plain matcher may take for ever */

/* The set behind the '[' at *glob: whether c is in it; *glob is left behind it. Well-formed, since it compiled. */
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
  if (steps-- <= 0)
    return false;
  if (glob == glob_end)
    return name == name_end;
  if (*glob == '*')
    return matches(glob + 1, glob_end, name, name_end) ||
           (name != name_end && matches(glob, glob_end, name + 1, name_end));
  if (*glob == '[' && glob + 1 != glob_end && glob[1] == ']')
    return name_end - name >= 2 && name[0] == '[' && name[1] == ']' && matches(glob + 2, glob_end, name + 2, name_end);
  if (name == name_end)
    return false;
  if (*glob == '[') {
    bool found = in_set(&glob, *name);
    return found && matches(glob, glob_end, name + 1, name_end);
  }
  if (*glob == '?')
    return matches(glob + 1, glob_end, name + 1, name_end);
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
  if (plain != NULL)
    CHECK(found == (strlen(plain) == name_length && memcmp(plain, name, name_length) == 0));
  if (ct_glob_is_all(glob))
    CHECK(found);
  if (found && ct_glob_first(glob) != CT_GLOB_FIRST_ANY)
    CHECK(name_length != 0 && name[0] == ct_glob_first(glob));
  ct_glob_free(glob);
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
  struct ct_exclude *exclude = ct_exclude_create();
  struct ct_diag diag = {""};
  CHECK(exclude != NULL);
  if (ct_exclude_add(exclude, (const char *)text, &diag) == 0)
    CHECK(strcmp(ct_exclude_pattern(exclude, 0), (const char *)text) == 0);
  else
    CHECK(ct_exclude_is_empty(exclude) && diag.text[0] != '\0');
  ct_exclude_free(exclude);
  free(text);
  free(name);
  return 0;
}
