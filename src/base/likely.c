/* SPDX-License-Identifier: MIT */
/* See likely.h. */
#include "base/likely.h"

#include "base/demangle.h"

#include <contrail/text.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR = 1000 };

/* Insertions, deletions, changes and swaps of neighbours that lead from one name to the other, case apart. */
static int
distance(const char *a, size_t n, const char *b, size_t m)
{
  int rows[3][CT_LIKELY_CHARS + 1];
  for (size_t j = 0; j <= m; j++) {
    rows[0][j] = (int)j;
  }
  for (size_t i = 1; i <= n; i++) {
    int *row = rows[i % 3], *before = rows[(i + 2) % 3], *swapped = rows[(i + 1) % 3];
    row[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      int least = before[j - 1] + (x != y);
      least = before[j] + 1 < least ? before[j] + 1 : least;
      least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2])) {
        least = swapped[j - 2] + 1 < least ? swapped[j - 2] + 1 : least;
      }
      row[j] = least;
    }
  }
  return rows[n % 3][m];
}

/* The distance of the part after the last "::", or FAR. Length alone distinguishes most names. */
static int
rank_of(const char *asked, const char *name)
{
  size_t length = ct_demangled_name_length(name), start = length, wanted = strlen(asked);
  while (start > 0 && name[start - 1] != ':' && name[start - 1] != '/') {
    start--;
  }
  size_t last = length - start, most = 1 + wanted / 8;
  if (last <= CT_LIKELY_CHARS && last <= wanted + most && wanted <= last + most) {
    int edits = distance(asked, wanted, name + start, last);
    if (edits <= (int)most) {
      return edits;
    }
  }
  return strcasestr(name, asked) != NULL ? 10 + (int)(length / 4) : FAR;
}

void
ct_likely_begin(struct ct_likely *likely, const char *glob)
{
  size_t length = 0;
  likely->count = 0;
  for (; *glob != '\0' && length < CT_LIKELY_CHARS; glob++) {
    if (strchr("*?[]\\", *glob) == NULL) {
      likely->asked[length++] = *glob;
    }
  }
  likely->asked[*glob == '\0' ? length : 0] = '\0';
}

void
ct_likely_add(struct ct_likely *likely, const char *name, uint32_t id)
{
  int rank = likely->asked[0] == '\0' || likely->asked[1] == '\0' ? FAR : rank_of(likely->asked, name);
  size_t at = 0;
  if (rank == FAR) {
    return;
  }
  for (size_t i = 0; i < likely->count; i++) {
    if (strncmp(likely->names[i], name, sizeof(likely->names[i]) - 1) == 0) {
      return;
    }
    at += likely->ranks[i] <= rank;
  }
  if (at == CT_LIKELY_NAMES) {
    return;
  }
  likely->count += likely->count < CT_LIKELY_NAMES;
  for (size_t i = likely->count - 1; i > at; i--) {
    memcpy(likely->names[i], likely->names[i - 1], sizeof(likely->names[i]));
    likely->ids[i] = likely->ids[i - 1];
    likely->ranks[i] = likely->ranks[i - 1];
  }
  snprintf(likely->names[at], sizeof(likely->names[at]), "%s", name);
  likely->ids[at] = id;
  likely->ranks[at] = rank;
}

char *
ct_likely_text(const struct ct_likely *likely, char *buf, size_t size)
{
  size_t at = 0;
  buf[0] = '\0';
  for (size_t i = 0; i < likely->count && at < size; i++) {
    at += (size_t)snprintf(buf + at, size - at, "%s%s", i == 0 ? "" : ", ", likely->names[i]);
  }
  return buf;
}

const char *
ct_closest_word(const char *word, const char *const *words)
{
  struct ct_likely likely;
  ct_likely_begin(&likely, word);
  for (uint32_t i = 0; words[i] != NULL; i++) {
    ct_likely_add(&likely, words[i], i);
  }
  return likely.count != 0 ? words[likely.ids[0]] : NULL;
}
