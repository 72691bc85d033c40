/* SPDX-License-Identifier: MIT */
/* What is in the bytes of a granule, as build.c has put it. */
#include "index/index_internal.h"

#include "trace/format.h"

static uint64_t
take(const uint8_t **at, const uint8_t *end, bool *ok)
{
  uint64_t value = 0;
  const uint8_t *next = *ok ? ct_varint_get(*at, end, &value) : NULL;
  *ok = next != NULL;
  *at = next != NULL ? next : *at;
  return value;
}

bool
ct_granule_next_span(const uint8_t **at, const uint8_t *end, const struct ct_granule *granule, struct ct_span *span)
{
  bool ok = *at < end;
  *span = (struct ct_span){0};
  span->ordinal = take(at, end, &ok) - 1;
  span->parent_ordinal = span->ordinal - take(at, end, &ok);
  uint64_t since = take(at, end, &ok);
  span->enter_tsc = granule->first_tsc + (since >> 1 ^ (0 - (since & 1)));
  span->end_tsc = span->enter_tsc + take(at, end, &ok);
  span->duration_ticks = take(at, end, &ok);
  span->self_ticks = take(at, end, &ok);
  span->off_ticks = take(at, end, &ok);
  span->fn = (uint32_t)take(at, end, &ok);
  span->caller_fn = (uint32_t)take(at, end, &ok) - 1;
  span->depth = (uint32_t)take(at, end, &ok);
  span->context = (uint32_t)take(at, end, &ok);
  uint64_t end_word = take(at, end, &ok);
  span->end = end_word & 31;
  span->uncertain = (uint8_t)(end_word >> 5);
  return ok && span->end < CT_SPAN_ENDS;
}

bool
ct_granule_next_function(const uint8_t **at, const uint8_t *end, struct ct_granule_function *function)
{
  bool ok = *at < end;
  function->fn += (uint32_t)take(at, end, &ok); /* the first one: from 0 on */
  function->max_ticks = ct_index_ticks((uint32_t)take(at, end, &ok));
  return ok;
}
