/* SPDX-License-Identifier: MIT */
/*
 * A process tree: the session of the first process, and one for each child that is followed, with a thread and a trace
 * of its own. A child's session is made by its parent's, and freed by the first one's.
 *
 * How a child comes to be recorded: see docs/architecture.md, "Process trees".
 */
#ifndef CT_RECORD_PROCESS_TREE_H
#define CT_RECORD_PROCESS_TREE_H

#include "record/costs.h"
#include "record/modules.h"

#include <contrail/session.h>

#include <jansson.h>

struct ct_process_tree;

/* What a child's session starts with. */
struct ct_child_init {
  enum ct_handshake_kind kind;
  pid_t pid, tid, parent;
  pid_t own_pid, own_tid;           /* as it calls itself, see process/ids.h */
  bool answered;                    /* its handshake page may be used again since */
  uint64_t owner;                   /* of its page */
  uint64_t handshake;               /* address of its page in the child */
  struct ct_ring_header *ring_head; /* the head of its parent's ring with the pages, mapped here once more */
  size_t ring_head_bytes;
  struct ct_handshake *page;     /* its page there */
  uint64_t path;                 /* of the exec to come, in the child */
  uint64_t since_ns;             /* of CLOCK_MONOTONIC: it was not forked before */
  uint32_t generation;           /* of the hooks that it has (tree_generation) */
  uint64_t hooks_version;        /* likewise, as its configuration has it */
  struct ct_modules modules;     /* of a forked one: what its parent has */
  struct ct_agent_layout layout; /* likewise */
};

/*
 * What was hooked in a process before a change: children may have been forked before it and not have come yet. They
 * have the hooks of then.
 */
struct ct_hook_history {
  struct ct_hook_history *earlier;
  struct ct_modules modules;
  struct ct_agent_layout layout;
  uint64_t hooks_version; /* as in the configuration of who has these hooks */
  uint32_t generation;
  uint64_t until_ns;
};

/* What is known of those who are in the handshake pages of an image, by the thread that answers them. */
struct ct_handshake_queue {
  uint64_t later;   /* bits: heard of, but the process that it is has not been found yet ... */
  uint64_t next_ns; /* ... and is looked for again then */
  uint64_t swept_ns;
  uint32_t serve_next, sweep_next; /* each page has its turn, however long one takes */
  struct ct_caller {
    uint64_t owner, since_ns;
    pid_t pid; /* 0: not known */
  } callers[CT_HANDSHAKE_COUNT];
};

/*
 * An image whose process is gone, by exec or at its end, but that may have forked children that have not come to a hook
 * yet: for a moment they are still answered.
 */
struct ct_lingering_image {
  struct ct_injected image; /* without a ring: there is none */
  struct ct_modules modules;
  pid_t parent;
  uint64_t until_ns;
  uint32_t generation;
  uint64_t hooks_version;
  struct ct_hook_history *history;
  struct ct_handshake_queue handshake_queue;
};

/* How the tree makes the session of a child, which takes child_init over, and frees it. */
struct ct_tree_sessions {
  int (*create)(const struct ct_session_options *options, struct ct_process_tree *tree,
                struct ct_child_init *child_init, struct ct_session **out, struct ct_diag *diag);
  int (*close)(struct ct_session *session, struct ct_session_status *status, struct ct_diag *diag);
};

/* sessions lives as long as the tree. NULL: out of memory. */
struct ct_process_tree *ct_process_tree_create(struct ct_session *first, const struct ct_tree_sessions *sessions);
void ct_process_tree_free(struct ct_process_tree *tree); /* accepts NULL; all children are closed */
struct ct_plans *ct_process_tree_plans(struct ct_process_tree *tree);
struct ct_hook_costs tree_costs(const struct ct_process_tree *tree); /* as the first session has measured them */
const struct ct_session *tree_first(const struct ct_process_tree *tree);

void ct_child_init_free(struct ct_child_init *child_init); /* accepts NULL */
/* A child's entry in the list of the manifest; why_not: it is not recorded, else NULL. */
void tree_list_child(struct ct_process_tree *tree, const struct ct_child_init *child_init, const char *directory,
                     const char *why_not);
/* A child is there (1), or is over (-1). */
void tree_count_live(struct ct_process_tree *tree, int step);
/* Children that went on untraced and of which nothing more is known. */
void tree_count_lost(struct ct_process_tree *tree, uint64_t count);
/* Makes the session of a child, which takes child_init over. 0 or an error: it is not followed. */
int tree_add_session(struct ct_process_tree *tree, struct ct_child_init *child_init);

/* handshakes.c */
/* By a session's thread: children that have come into the agent in its image. */
void session_serve_handshakes(struct ct_session *session);
/* The same: nobody is followed any more, who waits goes on untraced. */
void session_turn_away(struct ct_session *session);
/* By any thread: the answer to a child, if it still waits. */
void child_init_answer(struct ct_child_init *child_init, enum ct_handshake_state state);
/* The child has left its page by having a ring of its own: another may have it. */
void child_init_release_page(struct ct_child_init *child_init);
/* By a session's thread, before its image is given up: keeps what children need that have not come yet. */
void session_keep_lingering_image(struct ct_session *session);
/* Serves them, and gives them up when it is time (now: at once). */
void session_serve_lingering_image(struct ct_session *session, bool now);
/* By a session's thread, in front of a change of what is hooked. 0 or CT_ENOMEM. */
int session_push_history(struct ct_session *session);
/* The process is stopped for that change: its children will have what comes. */
void session_date_history(struct ct_session *session);
/* From time to time: what nobody will come any more from. */
void session_trim_history(struct ct_session *session);
/* The image goes, and nobody comes any more who has been forked in it. */
void session_clear_history(struct ct_session *session);

/* child_init.c */
/* The first thing a child's thread does: makes the session that of its process. */
void session_start_child(struct ct_session *session);

/* process_tree.c */
/* By a child's thread: to be reported with the first one's status. */
void tree_note(struct ct_session *session, const char *text);
/* By a child's thread: nothing more will happen in it. */
void tree_child_is_over(struct ct_session *session);
/* By the first session's thread: frees the children that are over. */
void tree_free_ended(struct ct_session *first);
/* By the first session's thread: detaches from all children that live, and waits for that. No more are followed. */
void tree_end(struct ct_session *first);
/*
 * How often what is traced has been changed. A process whose session has another number has older hooks. Any thread's;
 * tree_change is called with the plans locked, with which patterns change and are looked up.
 */
uint32_t tree_generation(const struct ct_process_tree *tree);
void tree_change(struct ct_process_tree *tree);
/* By any thread but the sessions' own: has each child's thread run it, one after the other. 0 or CT_ENOMEM: in none. */
int tree_each(struct ct_process_tree *tree, int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument);
/* Any thread's: tree_end has begun; there is a session of that process. */
bool tree_is_ending(struct ct_process_tree *tree);
/* How long, in ms, something at the end may take: most, less when much time has passed since that began, but least. */
int tree_ending_ms(struct ct_process_tree *tree, int most, int least);
bool tree_knows(struct ct_process_tree *tree, pid_t pid);
/* What the first one's manifest says of its children. */
void tree_put(struct ct_process_tree *tree, json_t *manifest);
/* Puts it into the manifest on the disk, whose writer is closed, if it has changed since it was written. */
void tree_amend(struct ct_session *first);

#endif
