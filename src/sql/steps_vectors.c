/* SPDX-License-Identifier: MIT */
/* The table of what was written into vector and mask registers. */
#include "sql/steps_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALL = CT_SQL_VECTORS + CT_SQL_MASKS, MASK_BYTES = 8 };
#define ZEROED 0xffffu /* vzeroall, vzeroupper: only what becomes another is a change */

static_assert((int)CT_SQL_VECTORS == CT_STEPS_VECTORS && (int)CT_SQL_MASKS == CT_STEPS_MASKS, "the same registers");
static_assert((int)CT_SQL_BYTES_MAX == (int)CT_STEPS_VECTOR_BYTES, "of that many bytes");

int
ct_sql_vector_register(const char *name)
{
  unsigned first = name[0] == 'k' ? CT_SQL_VECTORS : 0, count = name[0] == 'k' ? CT_SQL_MASKS : CT_SQL_VECTORS;
  const char *digits = name[0] == 'k' ? name + 1 : strncmp(name, "xmm", 3) == 0 ? name + 3 : "";
  char *end = NULL;
  unsigned long number = digits[0] >= '0' && digits[0] <= '9' ? strtoul(digits, &end, 10) : count;
  bool is_plain = end != NULL && *end == '\0' && (digits[0] != '0' || digits[1] == '\0');
  return is_plain && number < count ? (int)(first + number) : -1;
}

static const uint8_t *
value_of(const struct ct_steps_state *state, unsigned reg, uint8_t *known)
{
  if (reg < CT_SQL_VECTORS) {
    *known = state->vectors_known[reg] <= CT_SQL_BYTES_MAX ? state->vectors_known[reg] : 0;
    return state->vector[reg];
  }
  *known = (state->masks_known >> (reg - CT_SQL_VECTORS) & 1) != 0 ? MASK_BYTES : 0;
  return (const uint8_t *)&state->mask[reg - CT_SQL_VECTORS];
}

static void
keep(struct ct_sql_vectors *vectors, unsigned reg, const uint8_t *bytes, uint8_t known)
{
  vectors->known[reg] = known;
  memcpy(vectors->bytes[reg], bytes, known);
}

static struct ct_sql_row *
add(struct ct_sql_search *search, uint64_t step, uint64_t pc, unsigned reg, const struct ct_steps_state *after,
    enum ct_sql_row_by by)
{
  int wanted = search->wanted->reg;
  struct ct_sql_row *row = wanted < 0 || (unsigned)wanted == reg ? ct_sql_add_row(search, step, pc, by) : NULL;
  if (row != NULL) {
    const uint8_t *bytes = value_of(after, reg, &row->vector.known);
    row->vector.reg = (uint8_t)reg;
    memcpy(row->vector.bytes, bytes, row->vector.known);
    row->vector.old_known = by != CT_SQL_BY_BEGIN ? search->vectors.known[reg] : 0;
    memcpy(row->vector.old, search->vectors.bytes[reg], row->vector.old_known);
  }
  return row;
}

static bool
differs(const struct ct_sql_vectors *before, unsigned reg, const uint8_t *bytes, uint8_t known)
{
  return before->known[reg] != known || memcmp(before->bytes[reg], bytes, known) != 0;
}

void
ct_sql_add_vectors(struct ct_sql_search *search, const struct ct_steps_step *step, const struct ct_steps_state *after,
                   bool is_wanted)
{
  uint64_t written = step->effects != NULL ? step->effects->vectors_written : 0, masks = 0;
  bool is_open = step->plan == NULL || written == ZEROED; /* all of them are looked at */
  masks = step->effects != NULL ? step->effects->masks_written : 0;
  uint64_t look = is_open ? UINT64_MAX : written | masks << CT_SQL_VECTORS;
  for (unsigned reg = 0; reg < ALL && look != 0; reg++) {
    uint8_t known;
    const uint8_t *bytes = (look >> reg & 1) != 0 ? value_of(after, reg, &known) : NULL;
    if (bytes == NULL || (is_open && !differs(&search->vectors, reg, bytes, known))) {
      continue;
    }
    struct ct_sql_row *row = is_wanted ? add(search, step->number, step->pc, reg, after, CT_SQL_BY_STEP) : NULL;
    if (row != NULL) {
      ct_sql_set_code(row, step->code, step->length);
    }
    keep(&search->vectors, reg, bytes, known);
  }
}

void
ct_sql_add_vectors_of_context(struct ct_sql_search *search, uint64_t step, const struct ct_steps_state *state,
                              bool is_reported, enum ct_sql_row_by by)
{
  for (unsigned reg = 0; reg < ALL; reg++) {
    uint8_t known;
    const uint8_t *bytes = value_of(state, reg, &known);
    if (is_reported && (known != 0 || search->vectors.known[reg] != 0)) {
      add(search, step, state->cpu.rip, reg, state, by);
    }
    keep(&search->vectors, reg, bytes, known);
  }
}
