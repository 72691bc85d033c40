/* SPDX-License-Identifier: MIT */
/*
 * The file format of speedscope: a profile for each thread, of the opens and closes of frames in order of time; the
 * list of frames comes last, when all of them are known. It has no place for attributes of single calls: how many have
 * any is said.
 */
#include "export/frames.h"
#include "export/json.h"
#include "export/running.h"

#include <stdio.h>

struct speedscope {
  struct ct_sink *out;
  struct ct_export_frames frames;
  struct ct_running running;
  uint32_t profiles;
  bool has_event;
};

static int
put_event(struct speedscope *speedscope, char type, uint32_t frame, uint64_t ns)
{
  struct ct_sink *out = speedscope->out;
  ct_out_put(out, ",\n", speedscope->has_event ? 2 : 0);
  ct_out_literal(out, "{\"type\":\"");
  ct_out_byte(out, (uint8_t)type);
  ct_out_literal(out, "\",\"frame\":");
  ct_out_decimal(out, frame);
  ct_out_literal(out, ",\"at\":");
  ct_out_decimal(out, ns);
  ct_out_byte(out, '}');
  speedscope->has_event = true;
  return 0;
}

static int
put_open(void *arg, uint32_t frame, uint64_t ns)
{
  return put_event(arg, 'O', frame, ns);
}

static int
put_close(void *arg, uint32_t frame, uint64_t ns)
{
  return put_event(arg, 'C', frame, ns);
}

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  return ct_export_frames_begin(&((struct speedscope *)arg)->frames, place->trace);
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct speedscope *speedscope = arg;
  struct ct_sink *out = speedscope->out;
  char name[200];
  snprintf(name, sizeof(name), "%.100s %u/%u", ct_export_thread_name(place), place->pid, place->thread->tid);
  ct_out_put(out, ",\n", speedscope->profiles++ != 0 ? 2 : 0);
  ct_out_literal(out, "{\"type\":\"evented\",\"name\":");
  ct_out_json(out, name);
  ct_out_literal(out, ",\"unit\":\"nanoseconds\",\"startValue\":0,\"events\":[\n");
  speedscope->has_event = false;
  return 0;
}

static int
end_thread(void *arg, const struct ct_walk_place *place, uint64_t end_tsc)
{
  struct speedscope *speedscope = arg;
  uint64_t end = end_tsc != 0 ? ct_walk_ns(place, end_tsc) : 0;
  ct_out_literal(speedscope->out, "\n],\"endValue\":");
  ct_out_decimal(speedscope->out, end > speedscope->running.ns ? end : speedscope->running.ns);
  ct_out_byte(speedscope->out, '}');
  ct_running_clear(&speedscope->running);
  return ct_out_failed(speedscope->out) ? CT_EIO : 0;
}

static int
entered(void *arg, const struct ct_walk_place *place, const struct ct_span_frame *frame, uint64_t context)
{
  struct speedscope *speedscope = arg;
  return ct_running_entered(&speedscope->running, &speedscope->frames, place, frame, context);
}

static int
switched(void *arg, const struct ct_walk_place *place, uint64_t context, uint64_t tsc)
{
  struct speedscope *speedscope = arg;
  return ct_running_switch(&speedscope->running, (uint32_t)context, ct_walk_ns(place, tsc));
}

static int
ended(void *arg, const struct ct_walk_place *place, const struct ct_span *span, bool was_entered)
{
  struct speedscope *speedscope = arg;
  uint64_t ns = ct_walk_ns(place, span->end_tsc);
  if (was_entered) {
    return ct_running_leave(&speedscope->running, span->context, ns);
  }
  if (span->end != CT_SPAN_POINT) {
    return 0; /* said with the others that have no place */
  }
  uint32_t number = ct_export_frame(&speedscope->frames, span->fn);
  return number == CT_FRAMES_NONE ? CT_ENOMEM : ct_running_point(&speedscope->running, span->context, number, ns);
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct speedscope *speedscope = arg;
  uint32_t frame = ct_export_frames_lost(&speedscope->frames);
  return frame == CT_FRAMES_NONE ? CT_ENOMEM
                                 : ct_running_gap(&speedscope->running, frame,
                                                  ct_walk_ns(place, tsc - place->gap_ticks), ct_walk_ns(place, tsc));
}

static void
put_frames(struct speedscope *speedscope)
{
  struct ct_sink *out = speedscope->out;
  ct_out_literal(out, "\n],\"shared\":{\"frames\":[\n");
  for (uint32_t i = 0; i < speedscope->frames.count; i++) {
    const struct ct_export_frame *frame = &speedscope->frames.list[i];
    ct_out_put(out, ",\n", i != 0 ? 2 : 0);
    ct_out_literal(out, "{\"name\":");
    ct_out_json(out, frame->name);
    ct_out_literal(out, ",\"file\":");
    ct_out_json(out, frame->file != NULL ? frame->file : frame->module);
    if (frame->line != 0) {
      ct_out_literal(out, ",\"line\":");
      ct_out_decimal(out, frame->line);
    }
    ct_out_byte(out, '}');
  }
  ct_out_literal(out, "\n]}");
}

static int
write_speedscope(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {.begin_process = begin_process,
                                          .begin_thread = begin_thread,
                                          .entered = entered,
                                          .ended = ended,
                                          .switched = switched,
                                          .lost = put_lost,
                                          .end_thread = end_thread};
  struct speedscope speedscope = {.out = out};
  struct ct_walk_sums sums = {0};
  speedscope.running.open = put_open;
  speedscope.running.close = put_close;
  speedscope.running.arg = &speedscope;
  ct_out_literal(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"name\":");
  ct_out_json(out, ct_export_program(job->trace));
  ct_out_literal(out, ",\"activeProfileIndex\":0,\"exporter\":\"contrail\",\"profiles\":[\n");
  int err = ct_walk(job, &handler, &speedscope, &sums, diag);
  put_frames(&speedscope);
  ct_out_literal(out, ",\"contrail\":{");
  ct_json_about(out, job, sums.lost);
  ct_out_literal(out, "}}\n");
  ct_walk_report(&sums, job->summary);
  ct_export_frames_destroy(&speedscope.frames);
  ct_running_clear(&speedscope.running);
  return err;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_speedscope, diag);
}

const struct ct_export_writer ct_export_speedscope = {
    .format = {.name = "speedscope", .summary = "for speedscope.app", .takes_filters = true},
    .write = write_format,
};
