/* SPDX-License-Identifier: MIT */
/* What is in the bytes of a granule, as read.c has put it. */
#include "index/index_internal.h"
#include "index/take.h"

bool
ct_granule_next_span(const uint8_t **at, const uint8_t *end, const struct ct_granule *granule, struct ct_span *span)
{
  struct ct_taking t = {*at, end, *at < end ? 0 : CT_EFORMAT};
  *span = (struct ct_span){0};
  span->ordinal = ct_take(&t) - 1;
  span->parent_ordinal = span->ordinal - ct_take(&t);
  uint64_t since = ct_take(&t);
  span->enter_tsc = granule->first_tsc + (since >> 1 ^ (0 - (since & 1)));
  span->end_tsc = span->enter_tsc + ct_take(&t);
  span->duration_ticks = ct_take(&t);
  span->self_ticks = ct_take(&t);
  span->off_ticks = ct_take(&t);
  span->fn = (uint32_t)ct_take(&t);
  span->caller_fn = (uint32_t)ct_take(&t) - 1;
  span->depth = (uint32_t)ct_take(&t);
  span->context = (uint32_t)ct_take(&t);
  uint64_t end_word = ct_take(&t);
  span->end = end_word & 31;
  span->uncertain = (uint8_t)(end_word >> 5);
  *at = t.at;
  return t.code == 0 && span->end < CT_SPAN_ENDS;
}

bool
ct_granule_next_function(const uint8_t **at, const uint8_t *end, struct ct_granule_function *function)
{
  struct ct_taking t = {*at, end, *at < end ? 0 : CT_EFORMAT};
  function->fn += (uint32_t)ct_take(&t); /* the first one: from 0 on */
  function->max_ticks = ct_index_ticks((uint32_t)ct_take(&t));
  *at = t.at;
  return t.code == 0;
}
