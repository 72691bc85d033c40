/* SPDX-License-Identifier: MIT */
/* See warnings.h. */
#include "views/warnings.h"

#include "base/json.h"
#include "views/text.h"

#include <contrail/text.h>

#include <stdint.h>
#include <string.h>

enum { DAMAGE_SHOWN = 10 };

void
ct_view_event_sums(const struct ct_trace *trace, uint64_t *events, uint64_t *dropped)
{
  uint64_t sum = 0, lost = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(trace, i);
    sum += thread->events;
    lost += thread->dropped;
  }
  /* Events of threads that have no stream are only in the total. */
  json_int_t total = json_integer_value(json_object_get(ct_trace_manifest(trace), "dropped_total"));
  *events = sum;
  *dropped = total > 0 && (uint64_t)total > lost ? (uint64_t)total : lost;
}

static void
add(json_t *list, const char *text)
{
  json_array_append_new(list, ct_json_string(text));
}

/* Of a recording of which only the last stretch was kept. */
static void
add_kept(json_t *list, const struct ct_trace *trace)
{
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  char text[160], events[CT_COUNT_CHARS], time[CT_DURATION_CHARS];
  uint64_t end = ct_trace_end_tsc(trace);
  if (ct_trace_get_kept(trace, &kept) != 0 || kept.not_kept == 0) {
    return;
  }
  uint64_t ns = end > kept.begin_tsc ? ct_trace_ticks_ns(trace, end - kept.begin_tsc) : 0;
  snprintf(text, sizeof(text), "holds the last %s; %s event%s before that %s not kept", ct_format_duration(time, ns),
           ct_format_count(events, kept.not_kept), kept.not_kept == 1 ? "" : "s", kept.not_kept == 1 ? "was" : "were");
  add(list, text);
}

/* Of a trace that was made of recorded instructions. */
static void
add_clock(json_t *list, const struct ct_trace *trace)
{
  char text[400];
  const json_t *instructions = json_object_get(ct_trace_manifest(trace), "instructions");
  const char *clock = json_string_value(json_object_get(instructions, "clock"));
  const char *damage = json_string_value(json_object_get(instructions, "damage"));
  if (clock != NULL) {
    add(list,
        strcmp(clock, "instructions") == 0
            ? "made of recorded instructions: a nanosecond stands for one instruction of the thread"
            : "made of recorded instructions: times are interpolated between time stamps, and are of translated code");
  }
  if (damage != NULL) {
    snprintf(text, sizeof(text), "DAMAGED: of the recorded instructions: %.300s", damage);
    add(list, text);
  }
}

json_t *
ct_view_damage(const struct ct_trace *trace)
{
  json_t *list = json_array();
  char text[640];
  if (list == NULL) {
    return NULL;
  }
  add_kept(list, trace);
  add_clock(list, trace);
  const char *failure = ct_trace_failure(trace);
  if (ct_trace_is_recovered(trace)) {
    add(list, "RECOVERED: contrail was killed while it recorded; what it had not written by then is lost");
  } else if (failure != NULL) {
    snprintf(text, sizeof(text), "INCOMPLETE: the recording ended early: %s", failure);
    add(list, text);
  } else if (!ct_trace_is_complete(trace)) {
    add(list,
        json_object_get(json_object_get(ct_trace_manifest(trace), "kept"), "memory") != NULL
            ? "INCOMPLETE: the events are in contrail's memory; contrail dump writes them, or contrail recover when it "
              "was killed"
            : "INCOMPLETE: the recording was cut short or still goes on; what is here is what had been written");
  }
  uint32_t count = ct_trace_damage_count(trace);
  for (uint32_t i = 0; i < count && i < DAMAGE_SHOWN; i++) {
    snprintf(text, sizeof(text), "DAMAGED: %s", ct_trace_damage(trace, i));
    add(list, text);
  }
  if (count > DAMAGE_SHOWN) {
    snprintf(text, sizeof(text), "DAMAGED: %u more files", count - DAMAGE_SHOWN);
    add(list, text);
  }
  return list;
}

void
ct_view_add_lost(json_t *list, uint64_t events, uint64_t dropped)
{
  char text[80];
  double share = 100.0 * (double)dropped / ((double)events + (double)dropped);
  if (dropped != 0 && list != NULL) {
    snprintf(text, sizeof(text), "%.*f %% of events LOST, counts are too low", share < 1 ? 3 : 1, share);
    add(list, text);
  }
}

json_t *
ct_view_warnings(const struct ct_trace *trace)
{
  uint64_t events, dropped;
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  json_t *list = ct_view_damage(trace);
  ct_view_event_sums(trace, &events, &dropped);
  /* What was dropped is of the whole recording, so it is a share of all its events. */
  ct_view_add_lost(list, events + (ct_trace_get_kept(trace, &kept) == 0 ? kept.not_kept : 0), dropped);
  return list;
}

void
ct_view_put_list(const json_t *list, const char *prefix, FILE *out)
{
  const json_t *text;
  size_t i;
  json_array_foreach((json_t *)list, i, text)
  {
    fputs(prefix, out);
    ct_put_printable(out, json_string_value(text), SIZE_MAX);
    putc('\n', out);
  }
}

void
ct_view_put_warnings(const struct ct_trace *trace, const char *prefix, FILE *out)
{
  json_t *list = ct_view_warnings(trace);
  ct_view_put_list(list, prefix, out);
  json_decref(list);
}
