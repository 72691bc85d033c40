/* SPDX-License-Identifier: MIT */
/* See frames.h. */
#include "export/frames.h"

#include "export/walk.h"

#include <stdlib.h>
#include <string.h>

int
ct_export_frames_begin(struct ct_export_frames *frames, struct ct_trace *trace)
{
  free(frames->of);
  frames->trace = trace;
  frames->fn_count = ct_trace_function_count(trace);
  frames->of = calloc((size_t)frames->fn_count + 1, sizeof(*frames->of));
  return frames->of != NULL ? CT_OK : CT_ENOMEM;
}

static uint32_t
add(struct ct_export_frames *frames, const char *name, const char *module, const char *file, uint32_t line)
{
  if (frames->count == frames->capacity) {
    uint32_t capacity = 2 * frames->capacity + 256;
    struct ct_export_frame *list = reallocarray(frames->list, capacity, sizeof(*list));
    if (list == NULL) {
      return CT_FRAMES_NONE;
    }
    frames->list = list;
    frames->capacity = capacity;
  }
  struct ct_export_frame *frame = &frames->list[frames->count++];
  *frame = (struct ct_export_frame){strdup(name), strdup(module), file != NULL ? strdup(file) : NULL, line};
  bool is_whole = frame->name != NULL && frame->module != NULL && (file == NULL || frame->file != NULL);
  return is_whole ? frames->count - 1 : CT_FRAMES_NONE;
}

uint32_t
ct_export_frames_add(struct ct_export_frames *frames, uint32_t fn)
{
  uint32_t line = 0;
  const char *file = fn < frames->fn_count ? ct_trace_function_source(frames->trace, fn, &line) : NULL;
  uint32_t number = add(frames, ct_walk_name(frames->trace, fn), ct_walk_module(frames->trace, fn), file, line);
  frames->of[fn < frames->fn_count ? fn : frames->fn_count] = number != CT_FRAMES_NONE ? number + 1 : 0;
  return number;
}

uint32_t
ct_export_frames_lost(struct ct_export_frames *frames)
{
  uint32_t number = frames->lost != 0 ? frames->lost - 1 : add(frames, "(events lost)", "", NULL, 0);
  frames->lost = number != CT_FRAMES_NONE ? number + 1 : 0;
  return number;
}

void
ct_export_frames_destroy(struct ct_export_frames *frames)
{
  for (uint32_t i = 0; i < frames->count; i++) {
    free(frames->list[i].name);
    free(frames->list[i].module);
    free(frames->list[i].file);
  }
  free(frames->list);
  free(frames->of);
  *frames = (struct ct_export_frames){0};
}
