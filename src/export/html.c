/* SPDX-License-Identifier: MIT */
/*
 * A page: one HTML file that shows the trace in a browser and needs nothing else, no network either. It is
 * src/export/html (style and script, put together by tools/page.py) around two script elements that hold data and are
 * never run:
 *
 *   data    calls, stretches off the processor, values, paths: html_stream.h
 *   about   JSON: names, threads, sums of functions, output, the crash, what is to be known: html_about.h
 *
 * The trace is read three times: for the lengths of calls, of which follows what is too short for an entry of its own
 * (html_spans.h); for the calls and the sums of functions, which have all calls; and for the paths.
 */
#include "export/frames.h"
#include "export/html_about.h"
#include "export/html_page.h"
#include "export/html_parts.h"
#include "export/html_spans.h"
#include "export/json.h"
#include "export/lanes.h"
#include "export/sums.h"

#include "base/json.h"
#include "views/filter.h"

#include <contrail/text.h>
#include <contrail/version.h>

#include <stdlib.h>

enum { SINGLE_DEFAULT = 2000000, PART_BITS = 4, BINS = 64 << PART_BITS };

/* Of a function, over all calls. */
struct sum {
  uint64_t calls, total, self, off, least, most;
  uint64_t timed;            /* calls whose time is known */
  uint64_t sampled, counted; /* calls that others stand for, and that were only counted */
  uint32_t pid;
  bool was_out, is_known; /* it was not seen for some time */
};

struct html {
  const struct ct_export_job *job;
  struct ct_html_stream stream;
  struct ct_html_spans spans;
  struct ct_html_counts counts;
  struct ct_diag *diag;
  struct ct_export_frames frames;
  struct sum *sums; /* by frame */
  uint32_t sum_capacity;
  struct ct_export_lanes lanes; /* of the thread at hand; lane 0 is its own stack */
  struct ct_html_lane *of_lane;
  uint32_t lane_count, lane_capacity;
  uint64_t *bins; /* how many calls are so long */
  uint64_t lost;  /* of the thread */
  json_t *about, *threads;
};

/* ---- what is too short ---- */

/* Sixteen bins to a power of two; and the least length of a bin. */
static unsigned
bin_of(uint64_t ns)
{
  unsigned bits = ns != 0 ? 64 - (unsigned)__builtin_clzll(ns) : 0;
  return bits <= PART_BITS ? (unsigned)ns
                           : (bits - PART_BITS) << PART_BITS | ((unsigned)(ns >> (bits - PART_BITS - 1)) & 15);
}

static uint64_t
least_of(unsigned bin)
{
  unsigned shift = bin >> PART_BITS;
  return shift == 0 ? bin : (uint64_t)(16 | (bin & 15)) << (shift - 1);
}

static int
measure(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count)
{
  struct html *html = arg;
  for (size_t i = 0; i < count; i++) {
    html->bins[bin_of(ct_walk_ns(place, spans[i].end_tsc) - ct_walk_ns(place, spans[i].enter_tsc))]++;
  }
  return CT_OK;
}

/* So that about as many calls as are wanted are not shorter. */
static uint64_t
bound_of(const uint64_t *bins, uint64_t all, uint64_t wanted)
{
  uint64_t longer = 0;
  for (unsigned bin = BINS; all > wanted && bin-- > 0;) {
    longer += bins[bin];
    if (longer > wanted) {
      return least_of(bin + 1);
    }
  }
  return 0;
}

static int
find_bound(struct html *html, struct ct_diag *diag)
{
  static const struct ct_walk_handler handler = {.spans = measure};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  const struct ct_export_job job = {html->job->trace, html->job->options, &summary, &notes};
  struct ct_walk_sums sums = {0};
  uint64_t wanted = html->job->options->single != 0 ? html->job->options->single : SINGLE_DEFAULT;
  html->bins = calloc(BINS, sizeof(*html->bins));
  int code = html->bins != NULL ? ct_walk(&job, &handler, html, &sums, diag) : CT_ENOMEM;
  if (code == CT_OK) {
    html->spans.bound_ns = bound_of(html->bins, sums.spans, wanted);
  }
  return code;
}

/* ---- calls ---- */

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  struct html *html = arg;
  json_t *process = json_pack("{s:I, s:o}", "pid", (json_int_t)place->pid, "program",
                              ct_json_string(ct_export_program(place->trace)));
  int code = process != NULL && json_array_append_new(json_object_get(html->about, "processes"), process) == 0
                 ? ct_export_frames_begin(&html->frames, place->trace)
                 : CT_ENOMEM;
  code = code == CT_OK ? ct_html_outputs(html->job, place->trace, place->pid, html->about) : code;
  return code == CT_OK ? ct_html_crash(html->job, place->trace, place->pid, html->about) : code;
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct html *html = arg;
  html->lost = 0;
  int code = ct_html_put_away(&html->stream, place, &html->counts, html->diag);
  return code == CT_OK ? ct_html_put_values(&html->stream, place, &html->counts, html->diag) : code;
}

static struct ct_html_lane *
lane_of(struct html *html, const struct ct_walk_place *place, uint32_t context)
{
  uint32_t number;
  bool is_new;
  if (ct_export_lane(&html->lanes, context, &number, &is_new) != CT_OK) {
    return NULL;
  }
  if (number >= html->lane_capacity) {
    uint32_t capacity = 2 * number + 4;
    struct ct_html_lane *lanes = reallocarray(html->of_lane, capacity, sizeof(*lanes));
    if (lanes == NULL) {
      return NULL;
    }
    html->of_lane = lanes;
    html->lane_capacity = capacity;
  }
  for (; html->lane_count <= number; html->lane_count++) {
    html->of_lane[html->lane_count] = (struct ct_html_lane){.thread = place->number, .number = html->lane_count};
  }
  return &html->of_lane[number];
}

static struct sum *
sum_of(struct html *html, uint32_t frame, uint32_t pid)
{
  if (frame >= html->sum_capacity) {
    uint32_t capacity = 2 * frame + 256;
    struct sum *sums = reallocarray(html->sums, capacity, sizeof(*sums));
    if (sums == NULL) {
      return NULL;
    }
    memset(sums + html->sum_capacity, 0, (capacity - html->sum_capacity) * sizeof(*sums));
    html->sums = sums;
    html->sum_capacity = capacity;
  }
  html->sums[frame].pid = pid;
  return &html->sums[frame];
}

/* A budget took its hook out for some time. */
static bool
was_out(const struct ct_trace *trace, uint32_t fn)
{
  const json_t *ids = json_object_get(json_object_get(ct_trace_manifest(trace), "budget"), "were_out"), *id;
  size_t i;
  json_array_foreach(ids, i, id)
  {
    if (json_is_integer(id) && json_integer_value(id) == fn) {
      return true;
    }
  }
  return false;
}

static void
add_to_sum(struct sum *sum, const struct ct_walk_place *place, const struct ct_span *span)
{
  uint64_t calls = ct_walk_calls(span);
  sum->calls += calls;
  sum->counted += span->end == CT_SPAN_COUNTED ? calls : 0;
  sum->sampled += span->end == CT_SPAN_POINT && calls > 1 ? calls - 1 : 0;
  if (!sum->is_known) {
    sum->is_known = true;
    sum->was_out = was_out(place->trace, span->fn);
  }
  if (span->end >= CT_SPAN_ORPHAN) {
    return;
  }
  sum->total += span->fresh_ticks;
  sum->self += span->self_ticks;
  sum->off += ct_trace_has_bounds(place->trace) ? 0 : span->fresh_off_ticks;
  sum->least = sum->timed == 0 || span->duration_ticks < sum->least ? span->duration_ticks : sum->least;
  sum->most = span->duration_ticks > sum->most ? span->duration_ticks : sum->most;
  sum->timed++;
}

static int
put_spans(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count)
{
  struct html *html = arg;
  for (size_t i = 0; i < count; i++) {
    uint32_t frame = ct_export_frame(&html->frames, spans[i].fn);
    struct sum *sum = frame != CT_FRAMES_NONE ? sum_of(html, frame, place->pid) : NULL;
    struct ct_html_lane *lane = sum != NULL ? lane_of(html, place, spans[i].context) : NULL;
    if (lane == NULL) {
      return CT_ENOMEM;
    }
    add_to_sum(sum, place, &spans[i]);
    if (spans[i].end != CT_SPAN_COUNTED && ct_html_add(&html->spans, lane, place, &spans[i], frame) != CT_OK) {
      return CT_ENOMEM;
    }
  }
  return ct_out_failed(html->stream.out) ? CT_EIO : CT_OK;
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct html *html = arg;
  struct ct_html_bytes piece = {0};
  html->lost += events;
  ct_html_put(&piece, place->number);
  ct_html_put(&piece, ct_walk_ns(place, tsc));
  ct_html_put(&piece, events);
  ct_html_stream_piece(&html->stream, CT_HTML_LOST, &piece, 1);
  free(piece.data);
  return CT_OK;
}

static int
end_thread(void *arg, const struct ct_walk_place *place, uint64_t end_tsc)
{
  struct html *html = arg;
  const struct ct_trace_thread *thread = place->thread;
  for (uint32_t i = 0; i < html->lane_count; i++) {
    ct_html_lane_finish(&html->spans, &html->of_lane[i]);
  }
  json_t *item =
      json_pack("{s:I, s:I, s:o, s:I, s:I, s:I}", "pid", (json_int_t)place->pid, "tid", (json_int_t)thread->tid, "name",
                ct_json_string(thread->name), "lost", (json_int_t)html->lost, "stacks", (json_int_t)html->lane_count,
                "end", (json_int_t)ct_walk_ns(place, end_tsc));
  html->lane_count = 0;
  ct_export_lanes_clear(&html->lanes);
  return item != NULL && json_array_append_new(html->threads, item) == 0 ? CT_OK : CT_ENOMEM;
}

/* ---- what is said ---- */

static json_t *
time_json(const struct html *html, const struct sum *sum, uint64_t ticks)
{
  return sum->timed != 0 ? json_integer((json_int_t)ct_trace_ticks_ns(html->job->trace, ticks)) : json_null();
}

/* A row for each function: name, module, file, line, pid, calls, total, self, off, least, most (null: no time of it is
 * known), how many calls others stand for, how many were only counted, and whether it was not seen for some time. */
static int
put_functions(struct html *html)
{
  json_t *list = json_array();
  int failed = list == NULL || json_object_set_new(html->about, "functions", list) != 0;
  for (uint32_t i = 0; i < html->frames.count && failed == 0; i++) {
    const struct ct_export_frame *frame = &html->frames.list[i];
    const struct sum *sum = &html->sums[i];
    json_t *file = frame->file != NULL ? ct_json_string(frame->file) : json_null();
    json_t *row = json_pack(
        "[o,o,o,I,I,I,o,o,o,o,o,I,I,b]", ct_json_string(frame->name), ct_json_string(frame->module), file,
        (json_int_t)frame->line, (json_int_t)sum->pid, (json_int_t)sum->calls, time_json(html, sum, sum->total),
        time_json(html, sum, sum->self), time_json(html, sum, sum->off), time_json(html, sum, sum->least),
        time_json(html, sum, sum->most), (json_int_t)sum->sampled, (json_int_t)sum->counted, sum->was_out);
    failed = row == NULL ? -1 : json_array_append_new(list, row);
  }
  return failed == 0 ? CT_OK : CT_ENOMEM;
}

/* Names that are long, and what is shown for them where there is little room: as report and the others have them on a
 * terminal. */
static int
put_short_names(struct html *html)
{
  const json_t *functions = json_object_get(html->about, "functions"),
               *paths = json_object_get(html->about, "path_names");
  json_t *shown = json_object();
  int failed = shown == NULL || json_object_set_new(html->about, "short_names", shown) != 0;
  size_t count = json_array_size(functions), all = count + json_array_size(paths);
  for (size_t i = 0; i < all && failed == 0; i++) {
    const char *name = json_string_value(i < count ? json_array_get(json_array_get(functions, i), 0)
                                                   : json_array_get(paths, i - count));
    char *copy = strdup(name != NULL ? name : "");
    if (copy == NULL) {
      return CT_ENOMEM;
    }
    ct_shorten_name(copy);
    failed = name != NULL && strcmp(copy, name) != 0 ? json_object_set_new(shown, name, ct_json_string(copy)) : 0;
    free(copy);
  }
  return failed == 0 ? CT_OK : CT_ENOMEM;
}

static bool
is_filtered(const struct ct_filter *filter)
{
  return filter->function != NULL || filter->module != NULL || filter->file != NULL || filter->tid_count != 0 ||
         filter->pid_count != 0 || ct_filter_limits_calls(filter);
}

static void
put_numbers(struct html *html, const struct ct_walk_sums *sums)
{
  static const char *const times[] = {[CT_TIME_WALL] = "wall", [CT_TIME_CPU] = "cpu", [CT_TIME_RAW] = "raw"};
  const struct ct_trace *trace = html->job->trace;
  uint64_t end = ct_trace_ns(trace, ct_trace_end_tsc(trace)), start = ct_trace_start_ns(trace);
  const struct {
    const char *name;
    uint64_t value;
  } numbers[] = {{"spans", sums->spans},
                 {"calls", sums->calls},
                 {"single", html->spans.single},
                 {"runs", html->spans.runs},
                 {"in_runs", html->spans.in_runs},
                 {"bound_ns", html->spans.bound_ns},
                 {"too_deep", html->spans.too_deep},
                 {"open", sums->open},
                 {"uncertain", sums->uncertain},
                 {"before", sums->before},
                 {"points", sums->points},
                 {"orphans", sums->orphans},
                 {"counted", sums->counted},
                 {"lost", sums->lost},
                 {"away", html->counts.away},
                 {"away_left_out", html->counts.away_left_out},
                 {"values", html->counts.values},
                 {"values_left_out", html->counts.values_left_out},
                 {"damaged", html->job->notes->damaged_threads},
                 {"raw_bytes", html->stream.raw_bytes},
                 {"end_ns", end > start ? end - start : 0}};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    ct_json_put(html->about, numbers[i].name, numbers[i].value);
  }
  json_object_set_new(html->about, "version", json_string(CT_VERSION));
  json_object_set_new(html->about, "time", json_string(times[html->job->options->time]));
  json_object_set_new(html->about, "program", ct_json_string(ct_export_program(trace)));
  json_object_set_new(html->about, "off_is_bound", json_boolean(ct_trace_has_bounds(trace)));
  json_object_set_new(html->about, "is_complete", json_boolean(ct_trace_is_complete(trace)));
  json_object_set_new(html->about, "has_filter", json_boolean(is_filtered(html->job->options->filter)));
  json_object_set_new(html->about, "has_range", json_boolean(ct_trace_has_range(trace)));
}

static int
put_paths(struct html *html, struct ct_diag *diag)
{
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  const struct ct_export_job job = {html->job->trace, html->job->options, &summary, &notes};
  struct ct_export_sums sums;
  json_t *names = NULL;
  int code = ct_export_sums_collect(&job, &sums, diag);
  if (code == CT_OK) {
    code = ct_html_put_paths(&html->stream, html->job, &sums.paths, &names);
    json_object_set_new(html->about, "path_names", names);
    ct_json_put(html->about, "paths_folded", sums.paths.folded);
  }
  ct_export_sums_destroy(&sums);
  return code;
}

/* The ends of calls by their numbers, so that the page has the words of the other commands. */
static json_t *
end_names(void)
{
  json_t *list = json_array();
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    json_array_append_new(list, json_string(ct_span_end_text((enum ct_span_end)end)));
  }
  return list;
}

static int
begin_about(struct html *html)
{
  html->threads = json_array();
  html->about =
      json_pack("{s:i, s:[], s:[], s:[], s:o, s:o, s:o}", "format", 1, "processes", "output", "crashes", "threads",
                html->threads, "ends", end_names(), "warnings", ct_export_warnings(html->job->trace));
  return html->about != NULL ? CT_OK : CT_ENOMEM;
}

static int
write_body(struct html *html, struct ct_sink *out, struct ct_diag *diag)
{
  static const struct ct_walk_handler handler = {.begin_process = begin_process,
                                                 .begin_thread = begin_thread,
                                                 .spans = put_spans,
                                                 .lost = put_lost,
                                                 .end_thread = end_thread};
  struct ct_walk_sums sums = {0};
  int code = find_bound(html, diag);
  code = code == CT_OK ? begin_about(html) : code;
  code = code == CT_OK ? ct_html_stream_open(&html->stream, out) : code;
  if (code != CT_OK) {
    return code;
  }
  ct_out_put(out, ct_html_head, (size_t)(ct_html_head_end - ct_html_head));
  ct_out_literal(out, "<script type=\"application/octet-stream\" id=\"data\">");
  code = ct_walk(html->job, &handler, html, &sums, diag);
  code = code == CT_OK ? put_paths(html, diag) : code;
  int closed = ct_html_stream_close(&html->stream);
  code = code == CT_OK ? closed : code;
  code = code == CT_OK ? put_functions(html) : code;
  code = code == CT_OK ? put_short_names(html) : code;
  if (code != CT_OK) {
    return code;
  }
  put_numbers(html, &sums);
  ct_out_literal(out, "</script>\n<script type=\"application/json\" id=\"about\">");
  code = ct_html_put_json(out, html->about);
  ct_out_literal(out, "</script>\n");
  ct_out_put(out, ct_html_tail, (size_t)(ct_html_tail_end - ct_html_tail));
  ct_export_say(html->job->summary, "calls too short for an entry of their own, together in runs", html->spans.in_runs);
  ct_export_say(html->job->summary, "calls too deep, counted only", html->spans.too_deep);
  ct_export_say(html->job->summary, "values, beyond those there is room for", html->counts.values_left_out);
  ct_export_say(html->job->summary, "stretches off the processor, beyond those there is room for",
                html->counts.away_left_out);
  ct_export_say(html->job->summary, "writes of the program, beyond those there is room for",
                ct_json_get(html->about, "output_left_out"));
  return code;
}

static int
write_html(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct html html = {.job = job, .diag = diag};
  html.spans.stream = &html.stream;
  int code = write_body(&html, out, diag);
  if (code == CT_ENOMEM) {
    ct_fail(diag, code, "out of memory for the page");
  }
  ct_html_stream_close(&html.stream);
  for (uint32_t i = 0; i < html.lane_count; i++) { /* after a failure only */
    ct_html_lane_finish(&html.spans, &html.of_lane[i]);
  }
  ct_export_frames_destroy(&html.frames);
  ct_export_lanes_clear(&html.lanes);
  json_decref(html.about);
  free(html.of_lane);
  free(html.sums);
  free(html.bins);
  return code;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  if (job->options->filter->limit != 0) {
    return ct_fail(diag, CT_EINVAL, "html has sums of all calls: leave out --limit");
  }
  return ct_export_file(job, CT_OUT_PLAIN, write_html, diag);
}

const struct ct_export_writer ct_export_html = {
    .format = {.name = "html",
               .summary = "a page that shows it in a browser and needs nothing else",
               .takes_filters = true},
    .write = write_format,
};
