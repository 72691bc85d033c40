/* SPDX-License-Identifier: MIT */
/*
 * Children of a process that was attached to and is not alone: those that it had before are recorded only when somebody
 * attaches to them too (a server often has its workers so), and those that it makes meanwhile only with follow.
 */
#include "process/process.h"
#include "record/session_internal.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 4 };

struct found {
  pid_t pids[SHOWN];
  size_t count;
};

static bool
count_one(void *context, pid_t child)
{
  struct found *found = context;
  if (ct_process_state(child) != 'Z') {
    if (found->count < SHOWN) {
      found->pids[found->count] = child;
    }
    found->count++;
  }
  return false;
}

void
session_note_earlier_children(struct ct_session *session)
{
  struct found found = {.count = 0};
  pid_t pid = session->target.process.pid;
  char text[160], list[64] = "";
  ct_process_descendants(pid, count_one, &found);
  session->node.earlier_children = found.count;
  session->node.earlier_faults = ct_process_child_faults(pid);
  for (size_t i = 0; i < found.count && i < SHOWN; i++) {
    size_t length = strlen(list);
    snprintf(list + length, sizeof(list) - length, "%s%d", i == 0 ? "" : ", ", (int)found.pids[i]);
  }
  if (found.count != 0) {
    snprintf(text, sizeof(text), "%zu process%s that it had made before %s not recorded (%s%s): attach to %s too",
             found.count, found.count == 1 ? "" : "es", found.count == 1 ? "is" : "are", list,
             found.count > SHOWN ? ", ..." : "", found.count == 1 ? "it" : "them");
    session_note(session, text);
  }
}

bool
session_made_children(const struct ct_session *session)
{
  struct found found = {.count = 0};
  pid_t pid = session->target.process.pid;
  if (ct_process_child_faults(pid) != session->node.earlier_faults) {
    return true;
  }
  ct_process_descendants(pid, count_one, &found);
  return found.count > session->node.earlier_children;
}
