/* SPDX-License-Identifier: MIT */
/*
 * Names of C++ functions that people can read: std::map<...>::find for what has a line of template arguments. Only long
 * names are made shorter, first without what is in < >, and, if that is not enough, without parameters. A name whose
 * brackets do not fit together stays as it is.
 */
#include <contrail/text.h>

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LONG = 48, STILL_LONG = 80 };
static const char dots[] = "...";

static size_t
columns_of(const char *text)
{
  size_t columns = 0;
  for (; *text != '\0'; text++) {
    columns += ((unsigned char)*text & 0xC0) != 0x80;
  }
  return columns;
}

static bool
is_word(char c)
{
  return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* The length of "operator<<" and the like at a place; 0: it is something else. */
static size_t
operator_length(const char *begin, const char *at)
{
  static const char *const signs[] = {"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "<", ">"};
  size_t length = strlen("operator");
  if (strncmp(at, "operator", length) != 0 || (at != begin && is_word(at[-1]))) {
    return 0;
  }
  for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
    if (strncmp(at + length, signs[i], strlen(signs[i])) == 0) {
      return length + strlen(signs[i]);
    }
  }
  return 0;
}

/* After the bracket that closes the one at `at`; NULL: there is none. Within ( ), < and > may be anything. */
static const char *
after_bracket(const char *begin, const char *at)
{
  char open = *at, close = open == '<' ? '>' : ')';
  size_t depth = 0;
  while (*at != '\0') {
    size_t skipped = operator_length(begin, at);
    if (skipped != 0) {
      at += skipped;
      continue;
    }
    if (open == '<' && *at == '(') {
      at = after_bracket(begin, at);
      if (at == NULL) {
        return NULL;
      }
      continue;
    }
    depth += *at == open;
    if (*at == close && !(close == '>' && at[-1] == '-') && --depth == 0) {
      return at + 1;
    }
    at++;
  }
  return NULL;
}

/* Takes out what is in each pair of these brackets; "(anonymous namespace)" stays. */
static void
empty_brackets(char *name, char open)
{
  char *to = name;
  for (const char *at = name; *at != '\0';) {
    size_t length = operator_length(name, at);
    const char *end = NULL;
    if (length == 0 && *at == open && strncmp(at, "(anonymous namespace)", 21) != 0) {
      end = after_bracket(at, at);
      if (end == NULL) { /* the rest as it is */
        memmove(to, at, strlen(at) + 1);
        return;
      }
      length = (size_t)(end - at);
    }
    if (end != NULL && length > 2 + strlen(dots)) {
      *to++ = open;
      memcpy(to, dots, strlen(dots));
      to += strlen(dots);
      *to++ = open == '<' ? '>' : ')';
    } else {
      length = length != 0 ? length : 1;
      memmove(to, at, length);
      to += length;
      end = at + length;
    }
    at = end;
  }
  *to = '\0';
}

void
ct_shorten_name(char *name)
{
  if (columns_of(name) > LONG) {
    empty_brackets(name, '<');
  }
  if (columns_of(name) > STILL_LONG) {
    empty_brackets(name, '(');
  }
}
