/* SPDX-License-Identifier: MIT */
/* Scopes of names; see scopes.h. */
#include "base/scopes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { BRACKETS_MAX = 256 }; /* nested deeper: taken for flat */

struct walk {
  const char *name;
  size_t length;
  char open[BRACKETS_MAX]; /* brackets around the place */
  size_t depth;
  bool conversion; /* after "operator " a type follows, whose :: are no scopes */
};

static bool
is_identifier(char c)
{
  return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static bool
has_at(const struct walk *walk, size_t at, const char *text)
{
  size_t length = strlen(text);
  return length <= walk->length - at && memcmp(walk->name + at, text, length) == 0;
}

/* The length of an operator's name at this place, 0 when there is none: "operator<<", "operator()", "operator ". */
static size_t
operator_length(const struct walk *walk, size_t at)
{
  static const char *const symbols[] = {"()", "[]", "->*", "->", "<=>", "<<=", "<<", "<=", "<", ">>=", ">>", ">=", ">"};
  const size_t word = sizeof("operator") - 1;
  if (!has_at(walk, at, "operator") || (at != 0 && is_identifier(walk->name[at - 1]))) {
    return 0;
  }
  for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
    if (has_at(walk, at + word, symbols[i])) {
      return word + strlen(symbols[i]);
    }
  }
  return has_at(walk, at + word, " ") ? word + 1 : 0;
}

static void
open_bracket(struct walk *walk, char c)
{
  if (walk->depth < BRACKETS_MAX) {
    walk->open[walk->depth++] = c;
  }
}

/* A '>' closes only what a '<' opened; the others close also what was left open inside them. */
static void
close_bracket(struct walk *walk, char c)
{
  char partner = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : '<';
  for (size_t i = walk->depth; i > 0; i--) {
    if (walk->open[i - 1] == partner) {
      walk->depth = i - 1;
      return;
    }
    if (c == '>') {
      return;
    }
  }
}

static size_t
step(struct walk *walk, size_t at, uint8_t *mark)
{
  char c = walk->name[at];
  bool outside = walk->depth == 0;
  size_t taken = c == 'o' ? operator_length(walk, at) : 0;
  if (taken != 0) {
    walk->conversion = outside && walk->name[at + taken - 1] == ' ';
    return taken;
  }
  if (c == ':' && outside && !walk->conversion && has_at(walk, at, "::")) {
    mark[0] |= CT_SCOPE_BOUNDARY;
    mark[1] |= CT_SCOPE_BOUNDARY;
    return 2;
  }
  if (c == '(' && outside && !has_at(walk, at, "(anonymous namespace)")) {
    mark[0] |= CT_SCOPE_BOUNDARY;
    walk->conversion = false;
  }
  if (c == '(' || c == '<' || c == '[' || c == '{') {
    open_bracket(walk, c);
  } else if (c == ')' || c == ']' || c == '}' || (c == '>' && (at == 0 || walk->name[at - 1] != '-'))) {
    close_bracket(walk, c);
  }
  return 1;
}

void
ct_scopes_mark(const char *name, size_t length, uint8_t *marks)
{
  struct walk walk = {.name = name, .length = length};
  memset(marks, 0, length);
  for (size_t at = 0, taken; at < length; at += taken) {
    bool inside = walk.depth != 0;
    taken = step(&walk, at, marks + at);
    for (size_t i = 0; i < taken; i++) {
      marks[at + i] |= inside && walk.depth != 0 ? CT_SCOPE_INSIDE : 0;
    }
  }
}

bool
ct_scope_marks_make(struct ct_scope_marks *marks, const char *name, size_t length)
{
  if (length > marks->size) {
    uint8_t *bytes = realloc(marks->bytes, 2 * length);
    if (bytes == NULL) {
      return false;
    }
    marks->bytes = bytes;
    marks->size = 2 * length;
  }
  ct_scopes_mark(name, length, marks->bytes);
  return true;
}
