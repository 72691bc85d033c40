/* SPDX-License-Identifier: MIT */
/*
 * What can be looked up in a thread, granules and crossings, as bytes, where they are few: column after column, for
 * what is alike packs better together. Varints, but for the CRCs, which are 4 bytes each: how many granules, how many
 * crossings; of the granules each column of enum column; of the crossings ordinals, each less the one before; granules,
 * likewise, folded; depths.
 */
#include "index/index_internal.h"
#include "index/take.h"

#include <stdlib.h>
#include <string.h>

/* Where a granule's bytes begin is known from the sizes before it. */
enum column {
  OFFSET,    /* less that of the granule before */
  FIRST_TSC, /* likewise */
  LAST_TSC,  /* less the first one of the next granule, of the last one less its own; folded */
  ORDINAL,   /* less that of the granule before, folded */
  MAX_TICKS,
  STATE_BYTES,
  FUNCTION_BYTES,
  LONG_BYTES,
  LEAST_DEPTH,
  MOST_DEPTH, /* less the least one, folded */
  SPANS,      /* less the calls that began there, of the last one less none; folded */
  BLOCKS,
  FLAGS,
  LONG_FROM,
  COLUMNS
};
enum { GRANULE_LEAST = COLUMNS + sizeof(uint32_t), CROSSING_LEAST = 3, VARINT_MOST = 10 };

static uint64_t
begun(const struct ct_granule *list, uint64_t count, uint64_t i)
{
  return i + 1 < count ? list[i + 1].first_ordinal - list[i].first_ordinal : 0;
}

static uint64_t
next_tsc(const struct ct_granule *list, uint64_t count, uint64_t i)
{
  return list[i + 1 < count ? i + 1 : i].first_tsc;
}

static uint64_t
word_of(const struct ct_granule *list, uint64_t count, uint64_t i, enum column column)
{
  static const struct ct_granule none;
  const struct ct_granule *g = &list[i], *before = i > 0 ? g - 1 : &none;
  switch (column) {
  case OFFSET:
    return g->offset - before->offset;
  case FIRST_TSC:
    return g->first_tsc - before->first_tsc;
  case LAST_TSC:
    return ct_folded(g->last_tsc - next_tsc(list, count, i));
  case ORDINAL:
    return ct_folded(g->first_ordinal - before->first_ordinal);
  case MAX_TICKS:
    return g->max_ticks;
  case STATE_BYTES:
    return g->state_bytes;
  case FUNCTION_BYTES:
    return g->function_bytes;
  case LONG_BYTES:
    return g->long_bytes;
  case LEAST_DEPTH:
    return g->least_depth;
  case MOST_DEPTH:
    return ct_folded((uint64_t)g->most_depth - g->least_depth);
  case SPANS:
    return ct_folded(g->spans - begun(list, count, i));
  case BLOCKS:
    return g->blocks;
  case FLAGS:
    return g->flags;
  default:
    return g->long_from;
  }
}

/* Those before it, and the columns before this one, are there already. */
static void
set_word(struct ct_granule *list, uint64_t count, uint64_t i, enum column column, uint64_t word)
{
  static const struct ct_granule none;
  struct ct_granule *g = &list[i];
  const struct ct_granule *before = i > 0 ? g - 1 : &none;
  switch (column) {
  case OFFSET:
    g->offset = before->offset + word;
    break;
  case FIRST_TSC:
    g->first_tsc = before->first_tsc + word;
    break;
  case LAST_TSC:
    g->last_tsc = next_tsc(list, count, i) + ct_unfolded(word);
    break;
  case ORDINAL:
    g->first_ordinal = before->first_ordinal + ct_unfolded(word);
    break;
  case MAX_TICKS:
    g->max_ticks = word;
    break;
  case STATE_BYTES:
    g->state_bytes = (uint32_t)word;
    break;
  case FUNCTION_BYTES:
    g->function_bytes = (uint32_t)word;
    break;
  case LONG_BYTES:
    g->long_bytes = (uint32_t)word;
    g->blob = i > 0 ? before->blob + before->state_bytes + before->function_bytes + before->long_bytes : 0;
    break;
  case LEAST_DEPTH:
    g->least_depth = (uint32_t)word;
    break;
  case MOST_DEPTH:
    g->most_depth = g->least_depth + (uint32_t)ct_unfolded(word);
    break;
  case SPANS:
    g->spans = (uint32_t)(begun(list, count, i) + ct_unfolded(word));
    break;
  case BLOCKS:
    g->blocks = (uint8_t)word;
    break;
  case FLAGS:
    g->flags = (uint8_t)word;
    break;
  default:
    g->long_from = (uint16_t)word;
    break;
  }
}

static uint8_t *
put_crossings(uint8_t *at, const struct ct_crossing *list, uint64_t count)
{
  for (uint64_t i = 0; i < count; i++) {
    at = ct_varint_put(at, list[i].ordinal - (i > 0 ? list[i - 1].ordinal : 0));
  }
  for (uint64_t i = 0; i < count; i++) {
    at = ct_varint_put(at, ct_folded((uint64_t)list[i].granule - (i > 0 ? list[i - 1].granule : 0)));
  }
  for (uint64_t i = 0; i < count; i++) {
    at = ct_varint_put(at, list[i].depth);
  }
  return at;
}

int
ct_lists_put(const struct ct_index_thread *thread, struct ct_span_bytes *bytes)
{
  const struct ct_granule *granules = thread->part.granules;
  uint64_t count = thread->kept_granules, crossings = thread->kept_crossings;
  uint64_t most = (2 + count * COLUMNS + crossings * CROSSING_LEAST) * VARINT_MOST + count * sizeof(uint32_t);
  if (ct_span_bytes_reserve(bytes, most) != 0) {
    return CT_ENOMEM;
  }
  uint8_t *at = bytes->data + bytes->size;
  at = ct_varint_put(at, count);
  at = ct_varint_put(at, crossings);
  for (int column = 0; column < COLUMNS; column++) {
    for (uint64_t i = 0; i < count; i++) {
      at = ct_varint_put(at, word_of(granules, count, i, (enum column)column));
    }
  }
  for (uint64_t i = 0; i < count; i++, at += sizeof(uint32_t)) {
    memcpy(at, &granules[i].crc, sizeof(uint32_t));
  }
  at = put_crossings(at, thread->part.crossings, crossings);
  bytes->size = (size_t)(at - bytes->data);
  return 0;
}

/* ---- and back ---- */

static void
take_granules(struct ct_taking *t, struct ct_granule *list, uint64_t count)
{
  for (int column = 0; column < COLUMNS; column++) {
    for (uint64_t i = 0; i < count; i++) {
      set_word(list, count, i, (enum column)column, ct_take(t));
    }
  }
  if (t->code != 0 || count > (size_t)(t->end - t->at) / sizeof(uint32_t)) {
    t->code = CT_EFORMAT;
    return;
  }
  for (uint64_t i = 0; i < count; i++) {
    memcpy(&list[i].crc, t->at, sizeof(uint32_t));
    t->at += sizeof(uint32_t);
  }
}

static void
take_crossings(struct ct_taking *t, struct ct_crossing *list, uint64_t count)
{
  uint64_t ordinal = 0, granule = 0;
  for (uint64_t i = 0; i < count; i++) {
    list[i].ordinal = ordinal += ct_take(t);
  }
  for (uint64_t i = 0; i < count; i++) {
    granule += ct_unfolded(ct_take(t));
    list[i].granule = (uint32_t)granule;
  }
  for (uint64_t i = 0; i < count; i++) {
    list[i].depth = (uint32_t)ct_take(t);
  }
}

int
ct_lists_take(const uint8_t *bytes, size_t size, struct ct_index_part *part)
{
  struct ct_taking t = {bytes, bytes + size, 0};
  uint64_t granules = ct_take(&t), crossings = ct_take(&t);
  if (t.code != 0 || granules > size / GRANULE_LEAST || crossings > size / CROSSING_LEAST) {
    return CT_EFORMAT;
  }
  part->granules = calloc(granules + 1, sizeof(*part->granules));
  part->crossings = calloc(crossings + 1, sizeof(*part->crossings));
  part->granule_capacity = part->granules != NULL ? granules + 1 : 0;
  part->crossing_capacity = part->crossings != NULL ? crossings + 1 : 0;
  if (part->granules == NULL || part->crossings == NULL) {
    return CT_ENOMEM;
  }
  take_granules(&t, part->granules, granules);
  if (t.code == 0) {
    take_crossings(&t, part->crossings, crossings);
  }
  part->granule_count = granules;
  part->crossing_count = crossings;
  return t.code == 0 && t.at == t.end ? 0 : CT_EFORMAT;
}
