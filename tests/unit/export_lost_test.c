/* SPDX-License-Identifier: MIT */
/*
 * Exports of a trace in which events were lost many times: each stretch is written once, with its own count, from its
 * begin to its end, in the order of time, whatever is selected.
 */
#include "views_make.h"

#include <contrail/export.h>

enum { MAIN, LEAF, LOSSES = 400, COUNTS_MAX = 1000000 };

struct gap {
  uint64_t begin, end, events;
};

static struct gap gaps[LOSSES];

/* Up to some hundred calls between two losses, so that batches of spans end at all places. */
static struct ct_trace *
make_trace(struct make *m)
{
  static const char *const names[] = {"main", "leaf", NULL};
  make_begin(m, names, 1);
  struct ct_encoder *e = m->encoders[0];
  uint64_t tsc = MAKE_START + 10, total = 0;
  ct_encode_enter(e, tsc, MAIN, 0);
  for (size_t i = 0; i < LOSSES; i++) {
    for (uint32_t calls = random_below(3) != 0 ? random_below(4) : random_below(400); calls != 0; calls--) {
      ct_encode_enter(e, tsc += 3, LEAF, 8);
      ct_encode_return(e, tsc += 2);
    }
    struct gap *gap = &gaps[i];
    gap->begin = tsc += 1;
    for (uint32_t n = 1 + random_below(2); n != 0; n--) { /* said twice now and then */
      uint64_t events = 1 + random_below(COUNTS_MAX);
      ct_encode_lost(e, tsc, events);
      tsc += 5;
      gap->events += events;
    }
    gap->end = tsc += 1 + random_below(50);
    total += gap->events;
    if (i + 1 < LOSSES) { /* after the last one the thread ends */
      ct_encode_enter(e, tsc, LEAF, 8);
      ct_encode_return(e, tsc += 1);
    }
  }
  m->thread_end[0] = tsc;
  m->ticks = tsc - MAKE_START;
  return make_open(m, true, total);
}

static char *
export_as(struct make *m, struct ct_trace *trace, const char *format, struct ct_filter filter)
{
  struct ct_diag diag = {""};
  char path[100], *text = NULL;
  size_t size = 0;
  snprintf(path, sizeof(path), "%s/out", m->parent);
  filter.struct_size = sizeof(filter);
  struct ct_export_options options = {
      .struct_size = sizeof(options), .format = format, .path = path, .filter = &filter};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  if (ct_export_write(trace, &options, &summary, &notes, &diag) != 0) {
    fail_msg("%s: %s", format, diag.text);
  }
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(getdelim(&text, &size, '\0', file) > 0);
  fclose(file);
  unlink(path);
  return text;
}

static void
check_gap(size_t n, uint64_t begin, uint64_t end, uint64_t events)
{
  assert_true(n < LOSSES);
  assert_int_equal(begin, gaps[n].begin - MAKE_START);
  assert_int_equal(end, gaps[n].end - MAKE_START);
  assert_int_equal(events, gaps[n].events);
}

/* Rows: what comes before has ended before. */
static void
check_csv(const char *text)
{
  size_t found = 0;
  uint64_t before = 0;
  for (const char *line = strchr(text, '\n'); line != NULL && line[1] != '\0'; line = strchr(line + 1, '\n')) {
    bool is_lost = strncmp(line, "\n100,100,prog,,,(events lost),\"\",", 33) == 0;
    const char *call = memmem(line, 60, ",leaf,prog,", 11);
    call = call != NULL ? call : memmem(line, 60, ",main,prog,", 11);
    const char *numbers = is_lost ? line + 33 : call + 11;
    char *next;
    uint64_t begin = strtoull(numbers, &next, 10), end = strtoull(next + 1, NULL, 10);
    assert_true(end >= before);
    before = end;
    if (is_lost) {
      const char *last = strchrnul(numbers, '\n');
      while (last[-1] != ',') {
        last--;
      }
      check_gap(found++, begin, end, strtoull(last, NULL, 10));
    }
  }
  assert_int_equal(found, LOSSES);
}

static void
check_speedscope(const char *text)
{
  size_t found = 0;
  char frame[40];
  unsigned lost = 0;
  for (const char *name = strstr(text, "{\"name\":"); name != NULL && strncmp(name, "{\"name\":\"(events", 16) != 0;
       name = strstr(name + 1, "{\"name\":")) {
    lost++;
  }
  snprintf(frame, sizeof(frame), "\"frame\":%u,", lost);
  uint64_t at, begin = 0, before = 0;
  for (const char *event = text; (event = strstr(event, "{\"type\":\"")) != NULL; event++) {
    const char *time = strstr(event, "\"at\":");
    if (strncmp(event + 9, "evented", 7) == 0) {
      continue;
    }
    at = strtoull(time + 5, NULL, 10);
    assert_true(at >= before);
    before = at;
    if (strncmp(event + 12, frame, strlen(frame)) == 0 && event[9] == 'O') {
      begin = at;
    } else if (strncmp(event + 12, frame, strlen(frame)) == 0) {
      check_gap(found, begin, at, gaps[found].events);
      found++;
    }
  }
  assert_int_equal(found, LOSSES);
}

static void
check_chrome(const char *text)
{
  size_t found = 0;
  for (const char *event = text; (event = strstr(event, "\"name\":\"events lost\"")) != NULL; event++) {
    const char *line = event, *count = strstr(event, "\"events\":");
    while (line > text && *line != '\n') {
      line--;
    }
    char *point;
    uint64_t us = strtoull(strstr(line, "\"ts\":") + 5, &point, 10), ns = strtoull(point + 1, NULL, 10);
    assert_true(*point == '.');
    check_gap(found, gaps[found].begin - MAKE_START, us * 1000 + ns, strtoull(count + 9, NULL, 10));
    found++;
  }
  assert_int_equal(found, LOSSES);
}

static void
test_losses(void **state)
{
  (void)state;
  static const struct ct_filter filters[] = {
      {.function = NULL}, {.function = "leaf"}, {.function = "main"}, {.function = "none"}, {.min_ns = 1000000}};
  struct make m;
  struct ct_trace *trace = make_trace(&m);
  for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
    char *csv = export_as(&m, trace, "csv", filters[i]);
    char *speedscope = export_as(&m, trace, "speedscope", filters[i]);
    char *chrome = export_as(&m, trace, "chrome", filters[i]);
    check_csv(csv);
    check_speedscope(speedscope);
    check_chrome(chrome);
    free(csv);
    free(speedscope);
    free(chrome);
  }
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
