/* SPDX-License-Identifier: MIT */
/*
 * Globs; see glob.h. A glob is a list of pieces, with runs of literal characters together and stars side by side
 * made one. Matching goes through the pieces once; at a mismatch the last star takes one character more (it never helps
 * to go back to an earlier one).
 *
 *   "std::*::size?"   LITERAL "std::"  STAR  LITERAL "::size"  ONE
 */
#include "base/glob.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind { LITERAL, ONE, SET, STAR };

struct piece {
  enum kind kind;
  uint32_t start, length; /* LITERAL: of the characters in text */
  uint32_t set;           /* SET: index */
};

struct set {
  uint64_t bits[4];
};

struct ct_glob {
  struct piece *pieces;
  size_t count;
  struct set *sets;
  size_t set_count;
  char *text; /* the literal characters, a NUL behind them */
  size_t text_length;
};

static void
set_add(struct set *set, unsigned char c)
{
  set->bits[c >> 6] |= 1ull << (c & 63);
}

static bool
set_has(const struct set *set, unsigned char c)
{
  return (set->bits[c >> 6] >> (c & 63) & 1) != 0;
}

static void
add_piece(struct ct_glob *glob, enum kind kind)
{
  struct piece *last = glob->count != 0 ? &glob->pieces[glob->count - 1] : NULL;
  if (kind == STAR && last != NULL && last->kind == STAR) {
    return;
  }
  glob->pieces[glob->count++] = (struct piece){.kind = kind};
}

static void
add_literal(struct ct_glob *glob, char c)
{
  if (glob->count == 0 || glob->pieces[glob->count - 1].kind != LITERAL) {
    add_piece(glob, LITERAL);
    glob->pieces[glob->count - 1].start = (uint32_t)glob->text_length;
  }
  glob->pieces[glob->count - 1].length++;
  glob->text[glob->text_length++] = c;
}

/* One character of a set at *at, with a backslash before it perhaps; false at the end. */
static bool
set_character(const char *text, size_t length, size_t *at, unsigned char *c)
{
  if (*at < length && text[*at] == '\\') {
    ++*at;
  }
  if (*at >= length) {
    return false;
  }
  *c = (unsigned char)text[(*at)++];
  return true;
}

/* text[*at] is behind the '['. */
static int
compile_set(const char *text, size_t length, size_t *at, struct ct_glob *glob, struct ct_diag *diag)
{
  struct set set = {{0}};
  size_t begin = *at - 1;
  bool negated = *at < length && (text[*at] == '!' || text[*at] == '^');
  *at += negated;
  for (bool first = true; *at >= length || text[*at] != ']' || first; first = false) {
    unsigned char from, to;
    if (!set_character(text, length, at, &from)) {
      return ct_fail(diag, CT_EINVAL, "no ']' for the '[' at character %zu (\\[ stands for a bracket itself)",
                     begin + 1);
    }
    to = from;
    if (*at + 1 < length && text[*at] == '-' && text[*at + 1] != ']') {
      ++*at;
      if (!set_character(text, length, at, &to)) {
        return ct_fail(diag, CT_EINVAL, "no ']' for the '[' at character %zu (\\[ stands for a bracket itself)",
                       begin + 1);
      }
    }
    if (to < from) {
      return ct_fail(diag, CT_EINVAL, "the range %c-%c runs backwards", from, to);
    }
    for (unsigned c = from; c <= to; c++) {
      set_add(&set, (unsigned char)c);
    }
  }
  ++*at;
  for (size_t i = 0; negated && i < sizeof(set.bits) / sizeof(set.bits[0]); i++) {
    set.bits[i] = ~set.bits[i];
  }
  add_piece(glob, SET);
  glob->pieces[glob->count - 1].set = (uint32_t)glob->set_count;
  glob->sets[glob->set_count++] = set;
  return 0;
}

static int
compile(const char *text, size_t length, struct ct_glob *glob, struct ct_diag *diag)
{
  size_t at = 0;
  while (at < length) {
    char c = text[at++];
    if (c == '[' && at < length && text[at] == ']') {
      add_literal(glob, '[');
      add_literal(glob, text[at++]);
    } else if (c == '[') {
      int code = compile_set(text, length, &at, glob, diag);
      if (code != 0) {
        return code;
      }
    } else if (c == '\\') {
      if (at == length) {
        return ct_fail(diag, CT_EINVAL, "nothing behind the backslash at its end");
      }
      add_literal(glob, text[at++]);
    } else if (c == '*' || c == '?') {
      add_piece(glob, c == '*' ? STAR : ONE);
    } else {
      add_literal(glob, c);
    }
  }
  return 0;
}

int
ct_glob_compile(const char *text, size_t length, struct ct_glob **out, struct ct_diag *diag)
{
  if (length > CT_GLOB_BYTES_MAX) {
    return ct_fail(diag, CT_EINVAL, "longer than %u characters", CT_GLOB_BYTES_MAX);
  }
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
      return ct_fail(diag, CT_EINVAL, "a control character at character %zu", i + 1);
    }
  }
  struct ct_glob *glob = calloc(1, sizeof(*glob));
  if (glob == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  size_t sets = 0;
  for (size_t i = 0; i < length; i++) {
    sets += text[i] == '[';
  }
  glob->pieces = calloc(length + 1, sizeof(*glob->pieces));
  glob->sets = calloc(sets + 1, sizeof(*glob->sets));
  glob->text = calloc(length + 1, 1);
  int code = glob->pieces == NULL || glob->sets == NULL || glob->text == NULL
                 ? ct_fail(diag, CT_ENOMEM, "out of memory")
                 : compile(text, length, glob, diag);
  if (code != 0) {
    ct_glob_free(glob);
    return code;
  }
  *out = glob;
  return 0;
}

void
ct_glob_free(struct ct_glob *glob)
{
  if (glob == NULL) {
    return;
  }
  free(glob->pieces);
  free(glob->sets);
  free(glob->text);
  free(glob);
}

const char *
ct_glob_plain(const struct ct_glob *glob)
{
  return glob->count == 0 || (glob->count == 1 && glob->pieces[0].kind == LITERAL) ? glob->text : NULL;
}

int
ct_glob_first(const struct ct_glob *glob)
{
  bool literal = glob->count != 0 && glob->pieces[0].kind == LITERAL;
  return literal ? (unsigned char)glob->text[glob->pieces[0].start] : CT_GLOB_FIRST_ANY;
}

bool
ct_glob_is_all(const struct ct_glob *glob)
{
  return glob->count == 1 && glob->pieces[0].kind == STAR;
}

/* How many characters the piece takes at the start of text, SIZE_MAX when it does not match. Not for STAR. */
static size_t
match_piece(const struct ct_glob *glob, const struct piece *piece, const char *text, size_t left)
{
  if (piece->kind == LITERAL) {
    bool same = piece->length <= left && memcmp(glob->text + piece->start, text, piece->length) == 0;
    return same ? piece->length : SIZE_MAX;
  }
  if (left == 0 || (piece->kind == SET && !set_has(&glob->sets[piece->set], (unsigned char)*text))) {
    return SIZE_MAX;
  }
  return 1;
}

bool
ct_glob_matches(const struct ct_glob *glob, const char *text, size_t length)
{
  size_t p = 0, at = 0;
  size_t star = SIZE_MAX, star_at = 0; /* the last star, and where what follows it was tried last */
  for (;;) {
    if (p < glob->count && glob->pieces[p].kind == STAR) {
      star = p++;
      star_at = at;
      if (p == glob->count) {
        return true;
      }
    }
    size_t taken = p < glob->count ? match_piece(glob, &glob->pieces[p], text + at, length - at) : SIZE_MAX;
    if (taken != SIZE_MAX) {
      at += taken;
      p++;
      if (p == glob->count && at == length) {
        return true;
      }
      continue;
    }
    if (p == glob->count && at == length) {
      return true;
    }
    if (star == SIZE_MAX || star_at == length) {
      return false;
    }
    at = ++star_at;
    p = star + 1;
    if (glob->pieces[p].kind == LITERAL) {
      const struct piece *next = &glob->pieces[p];
      const char *found = memmem(text + at, length - at, glob->text + next->start, next->length);
      if (found == NULL) {
        return false;
      }
      at = star_at = (size_t)(found - text);
    }
  }
}
