/* SPDX-License-Identifier: MIT */
/*
 * Globs; see glob.h. A glob is a list of pieces, with runs of literal characters together and stars side by side
 * made one. Matching goes through the pieces once; at a mismatch the last star takes one character more (it never helps
 * to go back to an earlier one).
 *
 *   "std::*::size?"   LITERAL "std::"  STAR  LITERAL "::size"  ONE
 *
 * With scopes there are two kinds of star, and going back to the last one is not enough. There the pieces are laid out
 * as positions, one for each character, and all positions that the text so far can have led to are kept as bits: one
 * step for each character of the text, whatever the pattern.
 *
 *   "a*::b"           positions 0 'a'  1 SCOPE_STAR  2 ':'  3 ':'  4 'b'  5 (matched)
 */
#include "base/glob.h"

#include "base/scopes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind { LITERAL, ONE, SET, STAR, SCOPE_STAR };

/* Rows of the steps: one for each character, and those of the characters of scope boundaries. */
enum { ROW_BOUNDARY_COLON = 256, ROW_BOUNDARY_PARENTHESIS, ROW_COUNT };

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
  char *text; /* the literal characters, a NUL after them */
  size_t text_length;
  /* with scopes; bit i of a row of `words` words is position i */
  size_t positions, words;
  uint64_t *steps; /* [ROW_COUNT]: positions that such a character leads on from */
  uint64_t *stars; /* of either kind */
  uint64_t *deep;
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
  if (last != NULL && (kind == STAR || kind == SCOPE_STAR) && (last->kind == STAR || last->kind == SCOPE_STAR)) {
    last->kind = kind == STAR ? STAR : last->kind;
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

/* text[*at] is after the '['. */
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

/* The star before *at; marks: of the text, NULL without scopes. */
static void
compile_star(const char *text, size_t length, size_t *at, const uint8_t *marks, struct ct_glob *glob)
{
  bool inside = marks != NULL && (marks[*at - 1] & CT_SCOPE_INSIDE) != 0;
  size_t run = 1;
  for (; *at < length && text[*at] == '*'; ++*at) {
    run++;
  }
  add_piece(glob, marks == NULL || (run > 1 && !inside) ? STAR : SCOPE_STAR);
}

static int
compile(const char *text, size_t length, const uint8_t *marks, struct ct_glob *glob, struct ct_diag *diag)
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
        return ct_fail(diag, CT_EINVAL, "nothing after the backslash at its end");
      }
      add_literal(glob, text[at++]);
    } else if (c == '*') {
      compile_star(text, length, &at, marks, glob);
    } else if (c == '?') {
      add_piece(glob, ONE);
    } else {
      add_literal(glob, c);
    }
  }
  return 0;
}

static void
set_bit(uint64_t *row, size_t position)
{
  row[position / 64] |= 1ull << (position % 64);
}

/* The characters that lead on from a position of this piece. */
static void
lay_out_step(struct ct_glob *glob, const struct piece *piece, size_t offset, size_t position)
{
  uint64_t *steps = glob->steps;
  if (piece->kind == LITERAL) {
    unsigned char c = (unsigned char)glob->text[piece->start + offset];
    set_bit(steps + c * glob->words, position);
    if (c == ':' || c == '(') {
      set_bit(steps + (c == ':' ? ROW_BOUNDARY_COLON : ROW_BOUNDARY_PARENTHESIS) * glob->words, position);
    }
    return;
  }
  for (unsigned c = 0; c < 256; c++) {
    if (piece->kind == ONE || set_has(&glob->sets[piece->set], (unsigned char)c)) {
      set_bit(steps + c * glob->words, position);
    }
  }
}

static int
lay_out(struct ct_glob *glob, struct ct_diag *diag)
{
  for (size_t i = 0; i < glob->count; i++) {
    glob->positions += glob->pieces[i].kind == LITERAL ? glob->pieces[i].length : 1;
  }
  glob->words = glob->positions / 64 + 1;
  glob->steps = calloc((ROW_COUNT + 2) * glob->words, sizeof(*glob->steps));
  if (glob->steps == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  glob->stars = glob->steps + ROW_COUNT * glob->words;
  glob->deep = glob->stars + glob->words;
  size_t position = 0;
  for (size_t i = 0; i < glob->count; i++) {
    const struct piece *piece = &glob->pieces[i];
    if (piece->kind == STAR || piece->kind == SCOPE_STAR) {
      set_bit(glob->stars, position);
      if (piece->kind == STAR) {
        set_bit(glob->deep, position);
      }
      position++;
      continue;
    }
    for (size_t offset = 0; offset < (piece->kind == LITERAL ? piece->length : 1); offset++) {
      lay_out_step(glob, piece, offset, position++);
    }
  }
  return 0;
}

static int
compile_any(const char *text, size_t length, const uint8_t *marks, struct ct_glob **out, struct ct_diag *diag)
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
                 : compile(text, length, marks, glob, diag);
  if (code == 0 && marks != NULL) {
    code = lay_out(glob, diag);
  }
  if (code != 0) {
    ct_glob_free(glob);
    return code;
  }
  *out = glob;
  return 0;
}

int
ct_glob_compile(const char *text, size_t length, struct ct_glob **out, struct ct_diag *diag)
{
  return compile_any(text, length, NULL, out, diag);
}

int
ct_glob_compile_scopes(const char *text, size_t length, struct ct_glob **out, struct ct_diag *diag)
{
  uint8_t *marks = malloc(length + 1);
  if (marks == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  ct_scopes_mark(text, length, marks);
  int code = compile_any(text, length, marks, out, diag);
  free(marks);
  return code;
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
  free(glob->steps);
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

bool
ct_glob_is_deep(const struct ct_glob *glob)
{
  for (size_t i = 0; i < glob->count; i++) {
    if (glob->pieces[i].kind == STAR) {
      return true;
    }
  }
  return false;
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

static bool
has_bit(const uint64_t *row, size_t position)
{
  return (row[position / 64] >> (position % 64) & 1) != 0;
}

/* From each star one may go on to the position after it; two stars are never side by side. */
static void
pass_stars(const struct ct_glob *glob, uint64_t *at)
{
  uint64_t carry = 0;
  for (size_t i = 0; i < glob->words; i++) {
    uint64_t on = at[i] & glob->stars[i];
    at[i] |= on << 1 | carry;
    carry = on >> 63;
  }
}

/* One character; false when no position is left. */
static bool
step(const struct ct_glob *glob, uint64_t *at, unsigned char c, bool boundary)
{
  const uint64_t *row = glob->steps + (!boundary  ? c
                                       : c == ':' ? ROW_BOUNDARY_COLON
                                                  : ROW_BOUNDARY_PARENTHESIS) *
                                          glob->words;
  const uint64_t *stay = boundary ? glob->deep : glob->stars;
  uint64_t carry = 0, any = 0;
  for (size_t i = 0; i < glob->words; i++) {
    uint64_t on = at[i] & row[i];
    at[i] = (at[i] & stay[i]) | on << 1 | carry;
    carry = on >> 63;
    any |= at[i];
  }
  pass_stars(glob, at);
  return any != 0;
}

bool
ct_glob_matches_scopes(const struct ct_glob *glob, const char *text, size_t length, const uint8_t *marks)
{
  uint64_t at[CT_GLOB_BYTES_MAX / 64 + 1] = {0};
  bool ends_deep = glob->positions != 0 && has_bit(glob->deep, glob->positions - 1);
  at[0] = 1;
  pass_stars(glob, at);
  for (size_t i = 0; i < length; i++) {
    if (ends_deep && has_bit(at, glob->positions - 1)) {
      return true;
    }
    if (!step(glob, at, (unsigned char)text[i], (marks[i] & CT_SCOPE_BOUNDARY) != 0)) {
      return false;
    }
  }
  return has_bit(at, glob->positions);
}

/* The first '!' that is neither in a set nor part of an operator's name. */
const char *
ct_glob_separator(const char *pattern)
{
  static const char word[] = "operator";
  const size_t word_length = sizeof(word) - 1;
  bool in_set = false;
  for (const char *p = pattern; *p != '\0'; p++) {
    if (*p == '\\' && p[1] != '\0') {
      p++;
    } else if (in_set) {
      in_set = *p != ']';
    } else if (*p == '[' && p[1] != ']') {
      in_set = true;
    } else if (*p == '!' && ((size_t)(p - pattern) < word_length || memcmp(p - word_length, word, word_length) != 0)) {
      return p;
    }
  }
  return NULL;
}
