/* SPDX-License-Identifier: MIT */
/*
 * Calls looked for by id, and by the id of their parent, with a cache of what was read: of two traces at a time, some
 * scans held open, with room for all granules, for a few, for one or none. Each finds what is in the whole table.
 */
#include "views_make.h"

#include "index/index_internal.h"
#include "rounds.h"

#define QUESTIONS rounds(120, 300)

enum { TRACES = 2, CALLS = 60000, THREADS = 2, HELD = 3 };

struct traced {
  struct make make;
  struct ct_trace *trace;
  struct ct_index *index;
  struct ct_span *spans; /* all of the table, thread after thread */
  size_t count, largest; /* of a granule */
};

static void
write_thread(struct ct_encoder *e)
{
  uint64_t tsc = MAKE_START;
  uint32_t depth = 0;
  for (size_t calls = 0; calls < CALLS || depth != 0;) {
    tsc += 1 + random_below(5);
    if (calls < CALLS && (depth == 0 || (depth < 30 && random_below(100) < 52))) {
      ct_encode_enter(e, tsc, random_below(4), 8 * depth++);
      calls++;
    } else {
      ct_encode_return(e, tsc);
      depth--;
    }
  }
}

static void
make_traced(struct traced *t)
{
  static const char *const names[] = {"one", "two", "three", "four", NULL};
  struct ct_view_progress none = {0};
  struct ct_diag diag = {""};
  make_begin(&t->make, names, THREADS);
  for (uint32_t i = 0; i < THREADS; i++) {
    write_thread(t->make.encoders[i]);
  }
  t->trace = make_open(&t->make, false, 0);
  assert_int_equal(ct_index_open(t->trace, 1, &none, &t->index, &diag), 0);
  t->spans = calloc((size_t)THREADS * CALLS, sizeof(*t->spans));
  struct ct_scan_filter all = CT_SCAN_FILTER_ALL;
  struct ct_index_scan *scan;
  const struct ct_span *span;
  assert_int_equal(ct_scan_open(t->index, &all, &scan, &diag), 0);
  while (ct_scan_next(scan, &span) == 0 && span != NULL) {
    assert_true(t->count < (size_t)THREADS * CALLS);
    t->spans[t->count++] = *span;
  }
  ct_scan_close(scan);
  assert_int_equal(t->count, (size_t)THREADS * CALLS);
  for (uint32_t i = 0; i < THREADS; i++) {
    const struct ct_index_part *part = &t->index->threads[i].part;
    assert_true(part->granule_count > 2);
    for (uint64_t g = 0; g < part->granule_count; g++) {
      t->largest = part->granules[g].spans > t->largest ? part->granules[g].spans : t->largest;
    }
  }
}

/* A question, and how far its answer has come. */
struct asked {
  struct ct_index_scan *scan;
  const struct traced *of;
  bool parents;
  uint32_t thread;
  uint64_t key;
  size_t at; /* in the whole table */
};

static void
ask(struct asked *asked, const struct traced *of, struct ct_scan_cache *cache)
{
  struct ct_scan_filter filter = CT_SCAN_FILTER_ALL;
  struct ct_diag diag = {""};
  /* Near to each other, mostly, as those of a join; far away now and then. */
  static size_t near;
  near = random_below(20) == 0 ? random_below((uint32_t)of->count) : (near + random_below(40)) % of->count;
  const struct ct_span *span = &of->spans[near];
  *asked = (struct asked){.of = of, .parents = random_below(2) != 0, .thread = span->thread};
  asked->parents &= span->parent_ordinal != CT_NO_ORDINAL;
  asked->key = asked->parents ? span->parent_ordinal : span->ordinal;
  filter.thread = asked->thread;
  filter.cache = cache;
  filter.has_id = !asked->parents;
  filter.has_parent = asked->parents;
  filter.ordinal = filter.parent_ordinal = asked->key;
  assert_int_equal(ct_scan_open(of->index, &filter, &asked->scan, &diag), 0);
}

/* The next row; false: there was none more, and there is none more in the table. */
static bool
compare_next(struct asked *asked)
{
  const struct ct_span *span, *wanted = NULL;
  for (; asked->at < asked->of->count && wanted == NULL; asked->at++) {
    const struct ct_span *s = &asked->of->spans[asked->at];
    bool fits = s->thread == asked->thread && (asked->parents ? s->parent_ordinal : s->ordinal) == asked->key;
    wanted = fits ? s : NULL;
  }
  assert_int_equal(ct_scan_next(asked->scan, &span), 0);
  assert_int_equal(span == NULL, wanted == NULL);
  if (wanted != NULL) {
    assert_memory_equal(span, wanted, offsetof(struct ct_span, uncertain)); /* what follows is not set for all */
  }
  return wanted != NULL;
}

/* Returns how many questions no block was read for. */
static size_t
play(struct traced *traced, size_t most)
{
  struct ct_scan_cache *cache = ct_scan_cache_create(most);
  struct asked held[HELD] = {0};
  size_t from_memory = 0;
  for (size_t i = 0; i < QUESTIONS; i++) {
    struct asked *asked = &held[random_below(HELD)];
    if (asked->scan != NULL) {
      while (compare_next(asked)) {
      }
      from_memory += ct_scan_blocks(asked->scan) == 0;
      ct_scan_close(asked->scan);
    }
    ask(asked, &traced[i / 40 % TRACES], cache);
    compare_next(asked); /* it stays where it is, while others are asked */
    assert_true(ct_scan_cache_spans(cache) <= (most != 0 ? most : 400000));
  }
  for (size_t i = 0; i < HELD; i++) {
    ct_scan_close(held[i].scan);
  }
  ct_scan_cache_destroy(cache);
  return from_memory;
}

static void
test_cache(void **state)
{
  (void)state;
  static struct traced traced[TRACES];
  size_t largest = 0;
  for (size_t i = 0; i < TRACES; i++) {
    make_traced(&traced[i]);
    largest = traced[i].largest > largest ? traced[i].largest : largest;
  }
  size_t all = play(traced, 0), few = play(traced, 2 * largest), one = play(traced, largest), none = play(traced, 1);
  assert_true(all > QUESTIONS / 2);
  assert_true(few > 0 && few <= all);
  assert_true(one > 0 && one <= few);
  assert_int_equal(none, 0);
  for (size_t i = 0; i < TRACES; i++) {
    ct_index_close(traced[i].index);
    free(traced[i].spans);
    make_end(&traced[i].make, traced[i].trace);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cache)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
