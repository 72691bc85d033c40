/* SPDX-License-Identifier: MIT */
/*
 * A family: the session of the first process, and one for each child that is followed, with a thread and a trace of its
 * own. A child's session is made by its parent's, and freed by the first one's.
 *
 * How a child comes to be recorded: see docs/architecture.md, "Families".
 */
#ifndef CT_RECORD_FAMILY_H
#define CT_RECORD_FAMILY_H

#include "record/modules.h"

#include <contrail/session.h>

#include <jansson.h>

struct ct_family;

/* What a child's session begins with. */
struct ct_birth {
  enum ct_visit_kind kind;
  pid_t pid, tid, parent;
  bool answered;               /* its page may be used by its next visit since */
  uint64_t visitor;            /* address of its page in the child */
  uint64_t path;               /* of the exec to come, in the child */
  uint64_t since_ns;           /* of CLOCK_MONOTONIC: it was not forked before */
  uint32_t generation;         /* of the hooks that it has (family_generation) */
  uint64_t hooks_version;      /* likewise, as its configuration has it */
  struct ct_modules modules;   /* of a forked one: what its parent has */
  struct ct_agent_place place; /* likewise */
};

/*
 * What was hooked in a process before a change: children may have been forked before it and not have come yet. They
 * have the hooks of then.
 */
struct ct_past {
  struct ct_past *earlier;
  struct ct_modules modules;
  struct ct_agent_place place;
  uint64_t hooks_version; /* as in the configuration of who has these hooks */
  uint32_t generation;
  uint64_t until_ns;
};

/*
 * An image whose process is gone, by exec or at its end, but that may have forked children that have not come to a hook
 * yet: for a moment they are still answered.
 */
struct ct_orphanage {
  struct ct_image image; /* without a ring: there is none */
  struct ct_modules modules;
  pid_t parent;
  uint64_t until_ns;
  uint32_t generation;
  uint64_t hooks_version;
  struct ct_past *past;
};

struct ct_family *ct_family_create(struct ct_session *first);
void ct_family_free(struct ct_family *family); /* accepts NULL; all children are closed */
struct ct_plans *ct_family_plans(struct ct_family *family);

void ct_birth_free(struct ct_birth *birth); /* accepts NULL */
/* A child's entry in the list of the manifest; why_not: it is not recorded, else NULL. */
void family_list(struct ct_family *family, const struct ct_birth *birth, const char *directory, const char *why_not);
/* A child is there (1), or is over (-1). */
void family_count_live(struct ct_family *family, int step);
/* Makes the session of a child, which the birth is given to. 0 or an error: no more are followed. */
int family_add_session(struct ct_family *family, struct ct_birth *birth);

/* visitors.c */
/* By a session's thread: children that have come into the agent in its image. */
void session_serve_visitors(struct ct_session *session);
/* By a session's thread, before its image is given up: keeps what children need that have not come yet. */
void session_keep_for_orphans(struct ct_session *session);
/* Serves them, and gives them up when it is time (now: at once). */
void session_serve_orphans(struct ct_session *session, bool now);
/* By a session's thread, in front of a change of what is hooked. 0 or CT_ENOMEM. */
int session_remember(struct ct_session *session);
/* The process is held for that change: its children will have what comes. */
void session_changes(struct ct_session *session);
/* From time to time: what nobody will come any more from. */
void session_forget_the_old(struct ct_session *session);
/* The image goes, and nobody comes any more who has been forked in it. */
void session_forget(struct ct_session *session);

/* birth.c */
/* By a child's thread, first of all: makes the session that of its process. */
void session_be_born(struct ct_session *session);

/* family.c */
/* By a child's thread: to be told with the first one's status. */
void family_note(struct ct_session *session, const char *text);
/* By a child's thread: nothing more will happen in it. */
void family_is_over(struct ct_session *session);
/* By the first session's thread: frees the children that are over. */
void family_sweep(struct ct_session *first);
/* By the first session's thread: lets all children go that live, and waits for that. No more are followed. */
void family_end(struct ct_session *first);
/*
 * How often what is traced has been changed. A process whose session has another number has older hooks. Any thread's;
 * family_change is called with the plans locked, with which patterns change and are looked up.
 */
uint32_t family_generation(const struct ct_family *family);
void family_change(struct ct_family *family);
/* By any thread but the sessions' own: has each child's thread run it, one after the other. 0 or CT_ENOMEM: in none. */
int family_each(struct ct_family *family, int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument);
/* Any thread's: family_end has begun; there is a session of that process. */
bool family_is_ending(struct ct_family *family);
bool family_knows(struct ct_family *family, pid_t pid);
/* The "children" of the first one's manifest. */
json_t *family_json(struct ct_family *family);
/* Puts it into the manifest on the disk, whose writer is closed, if it has changed since it was written. */
void family_amend(struct ct_session *first);

#endif
