/* SPDX-License-Identifier: MIT */
/*
 * How many calls of a thread began in a stretch of time, without a look at most of them. Granules say how many spans
 * ended in each, and the list of crossings which of these began in an earlier one. So it is known how many began in a
 * row of granules, and only at both ends of the stretch spans are read: there they are counted one by one, by the
 * ordinals at which the row begins and ends, since several may begin at one reading of the clock.
 */
#include "index/index_internal.h"

enum { AT_ONCE = 4096 };

struct asked {
  struct ct_index *index;
  uint32_t thread;
  bool (*is_over)(void *arg);
  void *arg;
};

/* Of the spans that began in that time with these ordinals, first .. last, how many; read one by one. */
static int
count_spans(const struct asked *a, uint64_t from, uint64_t to, uint64_t first, uint64_t last, uint64_t *count)
{
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  struct ct_index_scan *scan;
  const struct ct_span *span;
  filter.has_thread = true;
  filter.thread = a->thread;
  filter.start_from = from;
  filter.start_to = to;
  int code = from <= to ? ct_scan_open(a->index, &filter, &scan, NULL) : CT_ENOENT;
  if (code != 0) {
    return code == CT_ENOENT ? 0 : code;
  }
  for (uint64_t n = 0; (code = ct_scan_next(scan, &span)) == 0 && span != NULL; n++) {
    *count += span->ordinal >= first && span->ordinal <= last;
    if (n % AT_ONCE == 0 && a->is_over != NULL && a->is_over(a->arg)) {
      code = CT_ECANCELED;
      break;
    }
  }
  ct_scan_close(scan);
  return code;
}

/* Frames that nobody counted may have begun anywhere. */
static bool
has_uncounted(const struct ct_index_thread *thread)
{
  const struct ct_index_part *part = &thread->part;
  uint64_t kept = thread->kept_crossings, all = part->crossing_count; /* each list by ordinal */
  return (kept != 0 && (part->crossings[kept - 1].ordinal & CT_ORDINAL_BEFORE) != 0) ||
         (all > kept && (part->crossings[all - 1].ordinal & CT_ORDINAL_BEFORE) != 0);
}

/* Spans that began in the granules first .. end - 1. */
static uint64_t
count_row(const struct ct_index_part *part, uint64_t first, uint64_t end)
{
  uint64_t count = 0, from = part->granules[first].first_ordinal;
  uint64_t to = end < part->granule_count ? part->granules[end].first_ordinal : UINT64_MAX;
  for (uint64_t i = first; i < end; i++) {
    count += part->granules[i].spans;
  }
  for (uint64_t i = 0; i < part->crossing_count; i++) {
    const struct ct_crossing *crossing = &part->crossings[i];
    bool ended_there = crossing->granule >= first && crossing->granule < end;
    bool began_there = crossing->ordinal >= from && crossing->ordinal < to;
    count += (uint64_t)began_there - ended_there;
  }
  return count;
}

int
ct_index_count_begun(struct ct_index *index, uint32_t number, uint64_t from, uint64_t to, bool is_exact,
                     bool (*is_over)(void *arg), void *arg, uint64_t *count)
{
  const struct ct_index_thread *thread = &index->threads[number];
  const struct ct_index_part *part = &thread->part;
  const struct asked asked = {index, number, is_over, arg};
  uint64_t first = 0, end = part->granule_count, last = end - 1;
  *count = 0;
  if (part->granule_count == 0) {
    return 0;
  }
  while (first < part->granule_count && part->granules[first].first_tsc < from) {
    first++;
  }
  /* Of the last one nothing begins after its end, of others nothing after the begin of the next one. */
  while (end > first && (end - 1 == last ? part->granules[last].last_tsc : part->granules[end].first_tsc) > to) {
    end--;
  }
  if (!is_exact || first >= end || thread->is_damaged || thread->lost != 0 || has_uncounted(thread)) {
    return count_spans(&asked, from, to, 0, UINT64_MAX, count);
  }
  const struct ct_granule *row = &part->granules[first], *after = end <= last ? &part->granules[end] : NULL;
  *count = count_row(part, first, end);
  int code = first > 0 && row->first_ordinal != 0
                 ? count_spans(&asked, from, row->first_tsc, 0, row->first_ordinal - 1, count)
                 : 0;
  return code == 0 && after != NULL ? count_spans(&asked, after->first_tsc, to, after->first_ordinal, UINT64_MAX, count)
                                    : code;
}
