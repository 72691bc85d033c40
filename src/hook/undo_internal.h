/* SPDX-License-Identifier: MIT */
/* What undo.c (threads, patches, frames) and unmap.c (pages, mappings) share. */
#ifndef CT_HOOK_UNDO_INTERNAL_H
#define CT_HOOK_UNDO_INTERNAL_H

#include "hook/undo.h"
#include "ring/stacks.h"

#define SEEN_MAX 1024

struct region {
  uint64_t start, bytes;
  size_t index; /* in the agent's list */
  struct ct_patch *patches;
  size_t patch_count;
};

struct range {
  uint64_t start, end;
};

struct chunk {
  struct ct_store_chunk is;
  uint64_t listed_at; /* address of it in the agent's map */
};

/* A thread with an unwinder's address on its stack. */
struct seen {
  pid_t tid;
  uint64_t sp, since;
};

/* A thread in our code or in an unwinder, whose frames lie up to end. */
struct busy {
  pid_t tid;
  uint64_t sp, end;
  uint64_t control; /* its control page; 0 when it is in an unwinder, or has none */
};

/* A thread that has not been seen elsewhere since the first pass. */
struct pending {
  pid_t tid;
  uint64_t control, visits; /* 0: not known; struct ct_control_page's when it was first known */
};

struct undo {
  const struct ct_undo_wait *wait; /* NULL: nobody does, or no more */
  bool gs_goes; /* and who waits has another gs then, with which hooks on copies must not be met: they do not come last
                 */
  bool relay_stays; /* since a thread stands at it */
  uint64_t frame;   /* of ct_undo_wait; 0: nobody is to be sent elsewhere, or no more */
  struct ct_process *process;
  struct ct_stopped *stopped;
  const struct ct_detection *found;
  struct ct_undone *undone;
  struct ct_agent_config *config; /* a copy, of what the process may have written over: each use is bounded */
  uint64_t deadline_ns;           /* from when on no more is done than is needed to leave it as it is */
  struct region *regions;
  size_t region_count;
  uint64_t patches_read; /* of all regions, taken as they were listed */
  struct chunk *chunks;  /* of the return stores, by address */
  size_t chunk_count;
  struct range *ours; /* code of ours, sorted by address */
  size_t ours_count;
  uint64_t unwinding_lo, unwinding_bytes; /* all unwinders' functions lie in there */
  struct seen seen[SEEN_MAX];
  size_t seen_count;
  struct busy *busy; /* at this pass */
  size_t busy_count;
  struct pending *pending;
  size_t pending_count;
  uint8_t *still;  /* of each of them: it is busy at this pass */
  bool has_passed; /* once at least */
  bool expedited;  /* somebody wants an end to it, and the deadline has been brought forward */
};

static inline const struct ct_process *
process_of(const struct undo *undo)
{
  return undo->process; /* not that of stopped: it has none while it could not be stopped again */
}

/* Past the deadline, which is near as soon as somebody wants it to end. */
bool undo_is_late(struct undo *undo);

/* Code of ours is at that address. */
bool undo_is_ours(const struct undo *undo, uint64_t at);
/* That address of a stack is of an unwinder's frame. The busy ones are sorted by where their stacks end. */
bool undo_in_unwinder(const struct undo *undo, uint64_t at);

/* undo_returns.c. skip: not what unwinders have in their frames. */
int undo_put_back_returns(struct undo *undo, bool skip);

/* unmap.c. Errors: those of ct_stopped_syscall, ct_process_read and ct_process_write, CT_ENOMEM. */
/* Text whose pages are as in the file becomes the file's own pages again. Not where locking or the kernel forbids: then
 * the pages stay copies, which are as good. */
int undo_give_up_copies(struct undo *undo);
/* Step 7. */
int undo_unmap_all(struct undo *undo);
/* A system call of the process whose failure does not matter. */
int undo_call(struct undo *undo, long number, uint64_t a, uint64_t b, uint64_t c);

#endif
