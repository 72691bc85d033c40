/* SPDX-License-Identifier: MIT */
/* What undo.c (threads, patches, frames) and unmap.c (pages, mappings) share. */
#ifndef CT_HOOK_UNDO_INTERNAL_H
#define CT_HOOK_UNDO_INTERNAL_H

#include "hook/undo.h"

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

/* A thread with an unwinder's address on its stack. */
struct seen {
  pid_t tid;
  uint64_t sp, since;
};

/* A thread in our code or in an unwinder, whose frames lie up to end. */
struct busy {
  pid_t tid;
  uint64_t sp, end;
};

struct undo {
  struct ct_frozen *frozen;
  const struct ct_found *found;
  struct ct_undone *undone;
  struct ct_agent_config *config; /* a copy */
  struct region *regions;
  size_t region_count;
  struct range *ours; /* code of ours, sorted by address */
  size_t ours_count;
  uint64_t unwinding_lo, unwinding_bytes; /* all unwinders' functions lie in there */
  struct seen seen[SEEN_MAX];
  size_t seen_count;
  struct busy *busy; /* at this look */
  size_t busy_count;
  pid_t *pending; /* threads that have not been seen elsewhere since the first look */
  size_t pending_count;
  bool looked;
};

static inline const struct ct_process *
process_of(const struct undo *undo)
{
  return undo->frozen->process;
}

/* unmap.c. Errors: those of ct_frozen_syscall, ct_process_read and ct_process_write, CT_ENOMEM. */
/* Text whose pages are as in the file becomes the file's own pages again. Not where locking or the kernel forbids: then
 * the pages stay copies, which are as good. */
int undo_give_up_copies(struct undo *undo);
/* Step 7. */
int undo_unmap_all(struct undo *undo);
/* A system call of the process whose failure does not matter. */
int undo_call(struct undo *undo, long number, uint64_t a, uint64_t b, uint64_t c);

#endif
