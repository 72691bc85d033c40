/* SPDX-License-Identifier: MIT */
/*
 * The functions of an export in one list, for formats that write it after the calls: numbers from 0 on in the order of
 * appearance, each with a text that outlives its trace. A function is another one in each process.
 */
#ifndef CT_EXPORT_FRAMES_H
#define CT_EXPORT_FRAMES_H

#include "base/branch.h"
#include "trace/batch.h"

struct ct_export_frame {
  char *name, *module, *file; /* file NULL: not known */
  uint32_t line;
};
struct ct_export_frames {
  struct ct_export_frame *list;
  uint32_t count, capacity;
  struct ct_trace *trace; /* the one at hand ... */
  uint32_t *of;           /* ... of its functions: number + 1, 0: none yet */
  uint32_t fn_count;
  uint32_t lost; /* number + 1 of that of lost events */
};
enum { CT_FRAMES_NONE = UINT32_MAX };
int ct_export_frames_begin(struct ct_export_frames *frames, struct ct_trace *trace); /* 0 or CT_ENOMEM */
uint32_t ct_export_frames_add(struct ct_export_frames *frames, uint32_t fn);         /* CT_FRAMES_NONE: out of memory */
/* One that is no function, for lost events; the same each time. */
uint32_t ct_export_frames_lost(struct ct_export_frames *frames);
void ct_export_frames_destroy(struct ct_export_frames *frames);

static inline uint32_t
ct_export_frame(struct ct_export_frames *frames, uint32_t fn)
{
  uint32_t known = frames->of[fn < frames->fn_count ? fn : frames->fn_count];
  return CT_LIKELY(known != 0) ? known - 1 : ct_export_frames_add(frames, fn);
}

#endif
