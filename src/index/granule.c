/* SPDX-License-Identifier: MIT */
/* What is in the bytes of a granule, as read.c has put it. */
#include "index/index_internal.h"
#include "index/take.h"

#include "base/branch.h"

static int
take_span(struct ct_taking *t, const struct ct_granule *granule, struct ct_span *span)
{
  *span = (struct ct_span){0};
  span->duration_ticks = ct_take(t);
  span->fn = (uint32_t)ct_take(t);
  uint64_t word = ct_take(t), end = word >> CT_GRANULE_WORD_SHIFT;
  span->end = end & ((1u << CT_GRANULE_UNCERTAIN_SHIFT) - 1);
  span->uncertain = (uint8_t)(end >> CT_GRANULE_UNCERTAIN_SHIFT);
  span->ordinal = ct_take(t) - 1;
  span->parent_ordinal = span->ordinal - ct_take(t);
  span->enter_tsc = granule->first_tsc + ct_unfolded(ct_take(t));
  span->end_tsc = span->enter_tsc + ct_take(t);
  span->self_ticks = ct_take(t);
  span->caller_fn = (uint32_t)ct_take(t) - 1;
  span->depth = (uint32_t)ct_take(t);
  span->off_ticks = word & CT_GRANULE_OFF ? ct_take(t) : 0;
  span->context = word & CT_GRANULE_CONTEXT ? (uint32_t)ct_take(t) : 0;
  return t->code == 0 && t->at == t->end && span->end < CT_SPAN_ENDS ? 0 : CT_EFORMAT;
}

int
ct_granule_next_span(const uint8_t **at, const uint8_t *end, const struct ct_granule *granule,
                     const struct ct_granule_wanted *wanted, struct ct_span *span, bool *found)
{
  *found = false;
  while (*at < end) {
    const uint8_t *begin = *at + 1;
    if (**at > end - begin) {
      return CT_EFORMAT;
    }
    *at = begin + begin[-1];
    uint64_t duration, fn;
    const uint8_t *next = ct_varint_get(begin, *at, &duration);
    if (next == NULL || ct_varint_get(next, *at, &fn) == NULL) {
      return CT_EFORMAT;
    }
    if (duration < wanted->least_ticks ||
        (wanted->functions != NULL && !wanted->functions[fn < wanted->fn_count ? fn : wanted->fn_count])) {
      continue;
    }
    struct ct_taking t = {begin, *at, 0};
    *found = true;
    return take_span(&t, granule, span);
  }
  return 0;
}

bool
ct_granule_has(const uint8_t *at, const uint8_t *end, const struct ct_granule_wanted *wanted, uint64_t *most_ticks)
{
  uint64_t fn = 0, most = 0; /* codes are in the order of the ticks */
  bool found = false;
  while (at != NULL && at < end) {
    uint64_t more, code;
    if (CT_LIKELY(end - at > 2 && at[0] < 0x80 && at[1] >= 0x80 && at[2] < 0x80)) { /* as nearly all are */
      more = at[0];
      code = (at[1] & 0x7fu) | (uint64_t)at[2] << 7;
      at += 3;
    } else {
      at = ct_varint_get(at, end, &more);
      at = at != NULL ? ct_varint_get(at, end, &code) : NULL;
      if (at == NULL) {
        break;
      }
    }
    fn += more;
    if (fn > wanted->last_fn) {
      break;
    }
    if (wanted->functions[fn < wanted->fn_count ? fn : wanted->fn_count]) {
      found = true;
      most = code > most ? code : most;
    }
  }
  *most_ticks = most <= UINT32_MAX ? ct_index_ticks((uint32_t)most) : UINT64_MAX;
  return found;
}

struct ct_granule_wanted
ct_granule_wanted(const uint8_t *functions, uint32_t fn_count)
{
  struct ct_granule_wanted wanted = {.functions = functions, .fn_count = fn_count, .last_fn = UINT64_MAX};
  if (functions != NULL && !functions[fn_count]) {
    for (wanted.last_fn = fn_count; wanted.last_fn > 0 && !functions[wanted.last_fn]; wanted.last_fn--) {
    }
  }
  return wanted;
}
