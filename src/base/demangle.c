/* SPDX-License-Identifier: MIT */
/*
 * Demangling through libiberty. The names come from files that we do not trust, and a short name can stand for a
 * gigantic text (substitutions of substitutions), so the output is taken piece by piece and given up when it gets too
 * long: the printer is left by longjmp, which is safe because it keeps its state on the stack.
 */
#include "base/demangle.h"

#include "base/scopes.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum {
  RAW_BYTES_MAX = 4096, /* bounds the recursion of the parser */
  TEXT_BYTES_MAX = 1 << 16,
  GUARDED_BYTES = 1024, /* libiberty refuses longer names under its recursion limit */
};

struct text {
  char *bytes;
  size_t used;
  size_t size;
  jmp_buf give_up;
};

static void
append(const char *piece, size_t length, void *arg)
{
  struct text *text = arg;

  if (length == 0) {
    return; /* piece may be NULL then */
  }
  if (length >= TEXT_BYTES_MAX - text->used) {
    longjmp(text->give_up, 1);
  }
  if (text->used + length + 1 > text->size) {
    size_t size = 2 * (text->used + length + 1);
    char *bytes = realloc(text->bytes, size);
    if (bytes == NULL) {
      longjmp(text->give_up, 1);
    }
    text->bytes = bytes;
    text->size = size;
  }
  memcpy(text->bytes + text->used, piece, length);
  text->used += length;
  text->bytes[text->used] = 0;
}

static int
demangle(const char *raw, size_t length, int options, struct text *text)
{
  if (rust_demangle_callback(raw, options, append, text)) {
    return 1;
  }
  text->used = 0;
  if (length > GUARDED_BYTES) {
    options |= DMGL_NO_RECURSE_LIMIT;
  }
  return cplus_demangle_v3_callback(raw, options, append, text);
}

static char *
demangle_with(const char *raw, int more_options)
{
  if (raw == NULL || raw[0] != '_') {
    return NULL;
  }
  size_t length = strnlen(raw, RAW_BYTES_MAX + 1);
  if (length > RAW_BYTES_MAX) {
    return NULL;
  }

  /* A symbol version is not part of the mangled name: it is cut off and put back after the text. */
  const char *version = strchr(raw, '@');
  char *plain = strndup(raw, version != NULL ? (size_t)(version - raw) : length);
  struct text *text = calloc(1, sizeof(*text));
  char *result = NULL;
  if (plain == NULL || text == NULL) {
    goto free_texts;
  }
  if (setjmp(text->give_up) == 0 &&
      demangle(plain, strlen(plain), DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO | more_options, text) && text->used != 0) {
    if (version != NULL) {
      append(version, strlen(version), text);
    }
    result = text->bytes;
    text->bytes = NULL;
  }
free_texts:
  if (text != NULL) {
    free(text->bytes);
  }
  free(text);
  free(plain);
  return result;
}

char *
ct_demangle(const char *raw)
{
  return demangle_with(raw, 0);
}

char *
ct_demangle_name(const char *raw)
{
  return demangle_with(raw, DMGL_RET_DROP);
}

size_t
ct_demangled_name_length(const char *text)
{
  const char *close = strrchr(text, ')');
  if (close == NULL || strstr(close, "::") != NULL || strchr(close, '>') != NULL) {
    return strlen(text); /* <fn(u8) as a::B>::f, a::{closure}: what is in parentheses is no parameter list */
  }
  int open = 0;
  for (const char *p = close; p > text; p--) {
    open += (*p == ')') - (*p == '(');
    if (open == 0) {
      return (size_t)(p - text);
    }
  }
  return strlen(text);
}

char *
ct_demangled_class(const char *name)
{
  size_t length = ct_demangled_name_length(name), class_length = 0;
  uint8_t *marks = malloc(strlen(name) + 1);
  char *class = strdup(name);
  if (marks == NULL || class == NULL) {
    free(marks);
    free(class);
    return NULL;
  }
  ct_scopes_mark(name, strlen(name), marks);
  for (size_t i = length; i-- > 1;) {
    if (name[i] == ':' && name[i - 1] == ':' && (marks[i] & CT_SCOPE_BOUNDARY) != 0) {
      class_length = i - 1;
      break;
    }
  }
  class[class_length] = '\0';
  free(marks);
  return class;
}
