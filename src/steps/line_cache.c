/* SPDX-License-Identifier: MIT */
/*
 * See line_cache.h. A table by address, of which each entry holds the last instruction that fell on it; another one
 * takes its place. The bytes of the code are compared: code may have changed in between.
 */
#include "steps/line_cache.h"

#include "base/json.h"
#include "x86/disassemble.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_SHIFT = 16, TEXT = 512, CODE_COLUMNS = 44, NAME_COLUMNS = 28, CODE_MAX = 15 };

struct entry {
  uint64_t pc;
  size_t period; /* of the names */
  char *part;    /* NULL: nothing has fallen on it so far */
  uint32_t bytes;
  uint8_t length, code[CODE_MAX];
};

struct ct_line_cache {
  struct ct_steps_names *names;
  bool is_json;
  enum ct_syntax syntax;
  struct entry entries[1 << ENTRIES_SHIFT];
};

struct ct_line_cache *
ct_line_cache_create(struct ct_steps_names *names, const struct ct_steps_options *options)
{
  struct ct_line_cache *cache = calloc(1, sizeof(*cache));
  if (cache != NULL) {
    cache->names = names;
    cache->is_json = options->json;
    cache->syntax = options->intel ? CT_SYNTAX_INTEL : CT_SYNTAX_ATT;
  }
  return cache;
}

void
ct_line_cache_free(struct ct_line_cache *cache)
{
  if (cache == NULL) {
    return;
  }
  for (size_t i = 0; i < sizeof(cache->entries) / sizeof(cache->entries[0]); i++) {
    free(cache->entries[i].part);
  }
  free(cache);
}

/* Names of 512 bytes, and JSON makes at most six of one. */
static_assert(CT_LINE_PART_BYTES > 7 * TEXT + 2 * TEXT, "a part has room");

static int
write_part(const struct ct_line_cache *cache, const char *name, const char *code, char part[CT_LINE_PART_BYTES])
{
  if (!cache->is_json) {
    return snprintf(part, CT_LINE_PART_BYTES, "%-*s  %-*s", NAME_COLUMNS, name, CODE_COLUMNS, code);
  }
  char *own_name = ct_json_quoted(name), *own_code = ct_json_quoted(code);
  int bytes = own_name != NULL && own_code != NULL
                  ? snprintf(part, CT_LINE_PART_BYTES, "\"function\":%s,\"code\":%s", own_name, own_code)
                  : -1;
  free(own_name);
  free(own_code);
  return bytes;
}

static bool
make_part(struct ct_line_cache *cache, const struct ct_steps_step *step, size_t period, struct entry *entry)
{
  char code[TEXT], name[TEXT], part[CT_LINE_PART_BYTES];
  ct_disassemble(step->code, step->length, step->pc, cache->syntax, code, sizeof(code));
  ct_steps_names_label(cache->names, step->number, step->pc, name, sizeof(name));
  int bytes = write_part(cache, name, code, part);
  char *own = bytes >= 0 && bytes < (int)sizeof(part) ? realloc(entry->part, (size_t)bytes + 1) : NULL;
  if (own == NULL) {
    return false;
  }
  memcpy(own, part, (size_t)bytes + 1);
  *entry =
      (struct entry){.pc = step->pc, .period = period, .part = own, .bytes = (uint32_t)bytes, .length = step->length};
  memcpy(entry->code, step->code, step->length <= CODE_MAX ? step->length : CODE_MAX);
  return true;
}

const char *
ct_line_cache_part(struct ct_line_cache *cache, const struct ct_steps_step *step, size_t *bytes)
{
  size_t period = ct_steps_names_period(cache->names, step->number);
  struct entry *entry = &cache->entries[step->pc * 0x9e3779b97f4a7c15ull >> (64 - ENTRIES_SHIFT)];
  bool is_it = entry->part != NULL && entry->pc == step->pc && entry->period == period &&
               entry->length == step->length && step->length <= CODE_MAX &&
               memcmp(entry->code, step->code, step->length) == 0;
  if (!is_it && !make_part(cache, step, period, entry)) {
    return NULL;
  }
  *bytes = entry->bytes;
  return entry->part;
}
