/* SPDX-License-Identifier: MIT */
/*
 * Speed and size of the compact format: events are made beforehand, then encoded into a
 * trace, and the trace is decoded again. Prints nanoseconds of processor time (that of the
 * kernel for the file included) and bytes per event; of three rounds the fastest of each.
 *
 *   encode_bench [DIR [MILLIONS]]      DIR: where the trace goes, /dev/shm; MILLIONS of events, 64
 *
 * Workloads:
 *   simple  a loop that calls three functions which call one more; times 60 +- 8 ticks
 *   random  call trees over 2,000 functions, the callee selected by Zipf's law, calls and
 *           returns in random order; times log-normal around 60 ticks
 *
 * "encode" is everything up to the closed file, "columns" is the same with compression and file off.
 */
#include "trace/encoder.h"
#include "trace/batch.h"
#include "trace/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE (4u << 20) /* events made; they are repeated */

struct sample {
  uint32_t ticks;
  uint32_t fn; /* UINT32_MAX: return */
};

static double
now(void)
{
  struct timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t
random_word(void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static double
random_unit(void)
{
  return ((double)(random_word() >> 11) + 0.5) / 9007199254740992.0;
}

static void
make_simple(struct sample *sample)
{
  static const uint32_t pattern[] = {1, UINT32_MAX, 2, 4, UINT32_MAX, UINT32_MAX, 3, UINT32_MAX};
  for (uint32_t i = 0; i < SAMPLE; i++) {
    sample[i] = (struct sample){52 + (uint32_t)(random_word() % 17), pattern[i % 8]};
  }
}

static void
make_random(struct sample *sample)
{
  enum { FUNCTIONS = 2000, DEPTH = 60 };
  static double cumulative[FUNCTIONS];
  double sum = 0;
  for (int i = 0; i < FUNCTIONS; i++) {
    cumulative[i] = sum += 1.0 / (i + 1);
  }
  uint32_t depth = 0;
  for (uint32_t i = 0; i < SAMPLE; i++) {
    double gauss = sqrt(-2 * log(random_unit())) * cos(6.283185307179586 * random_unit());
    uint32_t ticks = (uint32_t)(60 * exp(0.5 * gauss));
    bool enter = depth == 0 || (depth < DEPTH && depth + 2 <= SAMPLE - i && (random_word() >> 40) % 2 == 0);
    if (!enter) {
      sample[i] = (struct sample){ticks, UINT32_MAX};
      depth--;
      continue;
    }
    double at = random_unit() * sum;
    uint32_t low = 0, high = FUNCTIONS - 1;
    while (low < high) {
      uint32_t middle = (low + high) / 2;
      if (cumulative[middle] < at) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    sample[i] = (struct sample){ticks, low};
    depth++;
  }
}

static void
encode(struct ct_encoder *encoder, const struct sample *sample, uint64_t events)
{
  uint64_t tsc = 1;
  for (uint64_t done = 0; done < events; done += SAMPLE) {
    for (const struct sample *s = sample; s < sample + SAMPLE; s++) {
      tsc += s->ticks;
      if (s->fn == UINT32_MAX) {
        ct_encode_return(encoder, tsc);
      } else {
        ct_encode_enter(encoder, tsc, s->fn, 0);
      }
    }
  }
}

static int
fail(const char *what, const struct ct_diag *diag)
{
  fprintf(stderr, "encode_bench: %s: %s\n", what, diag->text);
  return 1;
}

static void
remove_trace(const char *dir)
{
  char name[600];
  static const char *const files[] = {"/thread_0/index.ctb", "/thread_0", "/manifest.json", "/functions.tsv", ""};
  for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
    snprintf(name, sizeof(name), "%s%s", dir, files[i]);
    remove(name);
  }
}

/* Blocks are dropped when the writer has failed: what remains is the filling of the columns. */
static int
time_columns(const char *dir, const struct sample *sample, uint64_t events, double *seconds)
{
  struct ct_trace_writer *writer;
  struct ct_encoder *encoder, *none;
  struct ct_diag diag = {""};
  if (ct_trace_writer_create(dir, 64 << 20, &writer, &diag) != CT_OK ||
      ct_trace_writer_thread(writer, 0, 1, 1, &encoder) != CT_OK) {
    return fail("create", &diag);
  }
  ct_trace_writer_thread(writer, 0, 1, 1, &none); /* the file exists: an error that stays */
  double start = now();
  encode(encoder, sample, events);
  *seconds = now() - start;
  ct_trace_writer_close(writer, NULL);
  remove_trace(dir);
  return 0;
}

static int
time_encode(const char *dir, const struct sample *sample, uint64_t events, double *seconds, double *bytes)
{
  struct ct_trace_writer *writer;
  struct ct_encoder *encoder;
  struct ct_diag diag = {""};
  if (ct_trace_writer_create(dir, 64 << 20, &writer, &diag) != CT_OK ||
      ct_trace_writer_thread(writer, 0, 1, 1, &encoder) != CT_OK) {
    return fail("create", &diag);
  }
  json_t *manifest =
      json_pack("{s:s, s:i, s:s}", "format", "contrail", "version", CT_TRACE_VERSION, "state", "recording");
  ct_trace_writer_manifest(writer, manifest);
  json_decref(manifest);
  double start = now();
  encode(encoder, sample, events);
  ct_encoder_close(encoder);
  *seconds = now() - start;
  *bytes = (double)ct_trace_writer_bytes(writer);
  if (ct_trace_writer_close(writer, &diag) != CT_OK) {
    return fail("encode", &diag);
  }
  return 0;
}

static int
time_decode(const char *dir, uint64_t events, double *seconds)
{
  struct ct_trace *trace;
  struct ct_cursor *cursor;
  struct ct_diag diag = {""};
  if (ct_trace_open(dir, &trace, &diag) != CT_OK) {
    return fail("open", &diag);
  }
  if (ct_cursor_open(trace, 0, 0, &cursor, &diag) != CT_OK) {
    return fail("cursor", &diag);
  }
  uint64_t count = 0, sum = 0;
  const struct ct_event *batch;
  double start = now();
  for (size_t n; (n = ct_cursor_next(cursor, &batch)) > 0; count += n) {
    sum += batch[n - 1].tsc;
  }
  *seconds = now() - start;
  bool whole = count == events && ct_cursor_state(cursor) == CT_CURSOR_END && sum != 0;
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  return whole ? 0 : fail("decode", &(struct ct_diag){"events are missing"});
}

static int
run(const char *parent, const char *name, const struct sample *sample, uint64_t events)
{
  char dir[512];
  double columns = 1e9, encoding = 1e9, decoding = 1e9, bytes = 0;
  snprintf(dir, sizeof(dir), "%s/encode_bench.%ld", parent, (long)getpid());
  for (int round = 0; round < 3; round++) {
    double c, e, d = 0;
    if (time_columns(dir, sample, events, &c) != 0 || time_encode(dir, sample, events, &e, &bytes) != 0) {
      return 1;
    }
    int result = time_decode(dir, events, &d);
    remove_trace(dir);
    if (result != 0) {
      return result;
    }
    columns = c < columns ? c : columns;
    encoding = e < encoding ? e : encoding;
    decoding = d < decoding ? d : decoding;
  }
  double n = (double)events;
  printf("%-8s columns %5.2f ns  encode %5.2f ns (%5.1f M/s)  decode %5.2f ns (%5.1f M/s)  %.3f bytes per event\n",
         name, columns / n * 1e9, encoding / n * 1e9, n / encoding * 1e-6, decoding / n * 1e9, n / decoding * 1e-6,
         bytes / n);
  return 0;
}

int
main(int argc, char **argv)
{
  const char *parent = argc > 1 ? argv[1] : "/dev/shm";
  uint64_t events = (argc > 2 ? strtoull(argv[2], NULL, 10) : 64) * 1000000;
  events = (events + SAMPLE - 1) / SAMPLE * SAMPLE;
  struct sample *sample = malloc(SAMPLE * sizeof(*sample));
  if (sample == NULL || events == 0) {
    return 2;
  }
  make_simple(sample);
  int result = run(parent, "simple", sample, events);
  make_random(sample);
  result |= run(parent, "random", sample, events);
  free(sample);
  return result;
}
