/* SPDX-License-Identifier: MIT */
/* Inside record/: a session, and what its files offer each other. All of it is the session's thread's, but what says
 * so. */
#ifndef CT_RECORD_SESSION_INTERNAL_H
#define CT_RECORD_SESSION_INTERNAL_H

#include <contrail/session.h>

#include "drain/drain.h"
#include "drain/rules.h"
#include "process/stop.h"
#include "record/estimate.h"
#include "record/process_tree.h"
#include "record/injected.h"
#include "record/itrace.h"
#include "record/manifest.h"
#include "record/modules.h"
#include "record/stacks.h"
#include "record/state.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct command; /* command.c */

/* What other threads use as well, under the guard. */
struct session_sync {
  pthread_mutex_t guard;
  pthread_cond_t changed; /* a command is done, the state is another one, the process has ended */
  struct command *commands;
  struct ct_session_status status;
  bool finished;      /* nothing more will happen to the process that wait waits for */
  bool lost;          /* somebody else has waited for the process */
  uint32_t *doorbell; /* what the thread waits on: own_doorbell, or the ring's */
  uint32_t own_doorbell;
  bool quit;
  struct session_probe_seen probes[CT_ITRACE_PROBES];
  struct ct_itrace_feed *feeds; /* the session's thread's; a list */
  bool metrics_wanted;          /* by who waits for them */
  char *metrics;                /* JSON, as of the last time that somebody asked; NULL: nobody has */
  _Atomic uint32_t expedited;   /* of the first one: who waits for a detach gives up soon */
  atomic_bool is_cancelled;     /* putting the hooks in is not wanted any more; a hint */
};

struct session_threads {
  pthread_t thread;
  pthread_t watcher; /* rings the doorbell when the process ends */
  bool watched;
  int stop_watching;    /* eventfd */
  bool workers_guarded; /* by us */
  pthread_t creator;    /* a worker until it closes the session */
};

struct session_target {
  struct ct_process process;
  struct ct_stopped stopped; /* the threads of a process that was attached to */
  bool is_stopped;
  uint64_t stopped_since_ns, stopped_since_tsc;
  struct ct_pause_request pause_request;
};

struct session_recording {
  struct ct_injected image;
  bool image_live; /* an image is being recorded */
  uint32_t image_count;
  uint32_t crashes;   /* of the image, that its process has reported */
  uint32_t own_tasks; /* processes and threads of contrail's (task_limit.c); 0: not counted yet */
  struct ct_modules modules;
  struct ct_selection *own_selection; /* when the options bring none */
  struct ct_exclude *own_exclude;
  struct ct_plans *own_plans; /* NULL: the tree's are used */
  struct ct_drain *drain;
  struct ct_stacks *stacks;       /* of the threads when it was attached to; NULL: none */
  bool stacks_begun;              /* the process has run since */
  struct ct_trace_writer *writer; /* NULL: no trace yet */
  pthread_mutex_t writer_lock;
  struct ct_manifest manifest;
  bool manifest_is_old;
  size_t manifest_modules; /* as many modules as it lists */
  bool is_watched;         /* patterns have been changed while it runs: who did that asks for what came since */
  uint64_t cuts_reported;  /* enum ct_cut: noted */
  uint64_t manifest_ns;    /* when it was written, ... */
  uint64_t manifest_took_ns, manifest_events; /* ... how long that took, and the events that were recorded by then */
  uint64_t next_check_ns;
  struct ct_cpu_times cpu;
  uint64_t counted_ns; /* when the numbers of the status were brought up to date */
  bool seen_before;    /* a library, at the last check, with no word from the loader since */
  bool existed;        /* the trace directory, before us */
  size_t dumps;        /* under the guard: threads that write one */
  int directory_fd;    /* it, if it is to be given to somebody; else -1 */
  int result;          /* the first failure ... */
  struct ct_diag why;  /* ... and its line */
};

/* Rules, marks and windows; triggers.c. */
struct session_triggers {
  struct ct_windows *windows; /* NULL: nothing is recorded, or it is a child */
  struct ct_rules *rules;     /* likewise */
  struct trigger_reason {
    char *rule, *name; /* name: of a mark by hand; NULL: none */
  } *reasons;          /* by ct_mark.rule */
  size_t reason_count, reason_capacity;
  uint64_t post_ns;
  int (*stop)(struct ct_session *session, struct ct_diag *diag); /* ends the recording, as a detach */
  uint64_t dump_ns, stop_ns; /* when it is to be done, CLOCK_MONOTONIC; 0: it is not */
  uint32_t details_wanted;   /* rules, a bit for each: marks have come whose functions are to have detail */
  struct rule_detail {
    uint64_t times, missed; /* missed: its window was over, or the functions could not be hooked so */
    uint64_t slowest_ns;    /* to hook them */
  } details[CT_RULES_MAX];
  uint64_t dumped_end;      /* end of the window that the last dump was for */
  uint64_t marks_seen;      /* marks and refused ones when the manifest was found old last ... */
  uint64_t windows_seen;    /* ... and windows */
  int crash;                /* the signal of the last one; 0: none */
  _Atomic bool dump_failed; /* then dump_why says why; by the thread that writes it */
  struct ct_diag dump_why;
  pthread_t dumper;
  bool has_dumper;
};

struct session_budget; /* budget.c */

/* Its place in the process tree. */
struct session_node {
  struct ct_process_tree *tree;     /* NULL: children are not followed */
  struct ct_child_init *child_init; /* of a child, until it is recorded */
  uint32_t generation;              /* of the hooks (tree_generation) */
  uint64_t hooks_version;           /* as in the configuration */
  struct ct_hook_history *history;  /* the latest first */
  pid_t child_pid, parent;          /* of a child: its pid and its parent's */
  size_t earlier_children;          /* that were there when it was attached to ... */
  uint64_t earlier_faults;          /* ... and ct_process_child_faults of then */
  size_t pins;                      /* of a child, under the tree's lock: threads that use it */
  bool is_child;
  bool over;          /* of a child, under the guard: nothing more will happen */
  bool image_lingers; /* under the guard: lingering is in use */
  struct ct_lingering_image lingering;
  struct ct_handshake_queue handshake_queue;
};

struct ct_session {
  struct ct_session_options options;
  sigset_t caller_mask; /* of the thread that wants a program started */
  struct session_sync sync;
  struct session_threads threads;
  struct session_target target;
  struct session_recording recording;
  struct session_triggers triggers;
  struct session_itrace itrace;
  struct session_budget *budget; /* NULL: none, or nothing is recorded yet */
  struct session_node node;
};

/* command.c: what other threads share with the session's. */
/* Any thread's: has the session's thread run it, and waits for that. at: what a failure is one of. */
int session_command(struct ct_session *session, enum ct_error_class at,
                    int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument, struct ct_diag *diag);
/* True when somebody waits for a command to be run. */
bool session_has_commands(struct ct_session *session);
/* By the session's thread: runs the first one; false: there is none. */
bool session_run_command(struct ct_session *session);
/* The state after the step. 0, or an error when the step is not one of the state's. */
int session_go(struct ct_session *session, enum ct_session_step step, struct ct_diag *diag);
void session_ring(struct ct_session *session);                /* wakes its thread; any thread */
void session_wake(uint32_t *word);                            /* a futex */
void session_wait_ms(uint32_t *word, uint32_t value, int ms); /* likewise */
/* The word to wait on as the doorbell; NULL: the session's own. */
void session_set_doorbell(struct ct_session *session, uint32_t *doorbell);

/* By the session's thread: waits until the dump of a trigger, or any, is written. */
void session_join_dumper(struct ct_session *session);
void session_await_dumps(struct ct_session *session);

/* The same as ct_session_dump, by the session's thread, and a thread of its own for the files; waiting for nobody. */
int session_dump_aside(struct ct_session *session, struct ct_diag *diag);

/* rules.c */
#define SESSION_REASONS_MAX 10000u /* rules that have been there, and names of marks: nobody fills the memory */
/* With the trace: the rules of the options. */
int session_begin_triggers(struct ct_session *session, struct ct_diag *diag);
/* The recording begins: rules that go by the clock are counted from then on. */
void session_clock_rules(struct ct_session *session);
void session_end_triggers(struct ct_session *session); /* the trace is closed */
/* Its slot; negative: an error, with a line. */
int session_add_rule(struct ct_session *session, const char *text, struct ct_diag *diag);
void session_forget_rule(struct ct_session *session, uint32_t slot);
/* For ct_mark.rule, a new number if need be; negative: out of memory, or there are too many. */
int session_mark_number(struct session_triggers *triggers, const char *rule, const char *name);
/* Signal `number` has come: a fault that ends the process (crash), or it has ended by it. tid 0: none. */
void session_note_signal(struct ct_session *session, int number, bool is_crash, uint64_t tsc, uint32_t tid);
/* The image has a ring, and the drain has not begun with it: the agent reports handlers if rules need them. */
void session_want_handlers(struct ct_session *session);
/* In a process that is stopped: what was set before the agent could tell. */
void session_read_handlers(struct ct_session *session, const struct ct_remote *remote);
/* Functions that handle signals now are what rules about these are about. */
void session_watch_handlers(struct ct_session *session);
/* The dump of a rule that has failed, and rules that are about no function, get a note. */
void session_note_dump(struct ct_session *session);
void session_note_unmatched(struct ct_session *session);
void session_note_unseen(struct ct_session *session); /* what a budget has kept from rules */
/* "windows", "windows_refused" and "rules" of the manifest, which has its clock; under the writer's lock. */
void session_put_windows(struct ct_session *session, json_t *manifest);
json_t *session_rules_json(struct ct_session *session);
void session_count_detail(struct ct_session *session, const struct ct_detail_stats *detail); /* under the guard */
void session_count_windows(struct ct_session *session); /* under the guard: into the status */

/* itrace.c */
/* A probe of the caller's: into a place that is free, or none of whose calls is still being recorded. CT_ERANGE. */
int session_open_probe(struct ct_session *session, const struct ct_session_itrace *wanted, uint32_t *number,
                       struct ct_diag *diag);
/* CT_ENOENT: there is none of that number. */
int session_close_probe(struct ct_session *session, uint32_t number, struct ct_diag *diag);
/* Calls of it may still be begun, or are being recorded. */
bool session_probe_is_open(const struct ct_session *session, uint32_t number);
bool session_probe_is_busy(const struct ct_session *session, uint32_t number); /* some are being recorded */
/* Probes of the options. */
int session_begin_itrace(struct ct_session *session, struct ct_diag *diag);
/* The image has a ring, or the probes have changed: the agent knows of them. */
void session_show_probes(struct ct_session *session);
/* A thread has asked, which waits in the agent: its call is recorded, if that can be. Afterwards it is to be answered.
 */
void session_serve_itrace(struct ct_session *session, uint32_t slot, const struct ct_request *request);
/* What has become of calls. */
void session_collect_itrace(struct ct_session *session);
/* A rule with this slot is about the next calls of some functions, so many each time that it fires. It is forgotten. */
int session_itrace_rule(struct ct_session *session, uint32_t slot, const struct ct_rule *rule, struct ct_diag *diag);
void session_itrace_allow(struct ct_session *session, uint32_t slot, uint32_t calls);
void session_itrace_forget(struct ct_session *session, uint32_t slot);
/* Has the process ended, as one of its threads has shown? Then that is noted. */
bool session_itrace_sees_end(struct ct_session *session);
/* Some thread has a tracer: its process must not be waited for. */
bool session_itrace_is_live(struct ct_session *session);
void session_itrace_end_image(struct ct_session *session);
void session_end_itrace(struct ct_session *session);     /* files get their ends */
void session_free_itrace(struct ct_session *session);    /* but for what is reported to those who wait */
void session_forget_itrace(struct ct_session *session);  /* that, too */
json_t *session_itrace_json(struct ct_session *session); /* NULL: nothing was wanted */

/* Those who wait for probes see what has become of them. */
void session_report_probes(struct ct_session *session);
/* Why no more calls of the probe in that place come: "done", "closed" or "ended". */
const char *session_probe_outcome(const struct ct_session *session, uint32_t number, uint64_t serial);
/* itrace_feed.c: those who have subscribed. */
void session_feed_call(struct ct_session *session, uint32_t number, const struct itrace_ended *ended);
void session_feed_over(struct ct_session *session, uint32_t number, uint64_t serial, const char *why);
void session_end_feeds(struct ct_session *session);
struct ct_itrace_feed *session_feed_create(uint32_t number); /* NULL: no memory, or no descriptor */
void session_feed_drop(struct ct_itrace_feed *feed);         /* one that is not begun */
/* Of that probe's serial, if it is one's; outcome: it is over, with that; NULL: it is open. */
void session_feed_begin(struct ct_session *session, struct ct_itrace_feed *feed, uint64_t serial, const char *outcome);

/* triggers.c */
/* What rules have asked for and is due. Returns in how many ms it wants to be called again, at most `ms`. */
int session_serve_triggers(struct ct_session *session, int ms);

/* rule_details.c */
/* Marks of these rules have come (a bit for each): their functions have detail until the window is over. As
 * session_serve_triggers. */
int session_serve_details(struct ct_session *session, uint32_t marked, int ms);

/* budget.c */
/* Begins with the image, whose drain has been started. */
void session_begin_budget(struct ct_session *session);
/* Looks at what is spent, now and then, and sets how functions are seen. Returns in how many ms it wants to be called
 * again, at most `ms`. */
int session_serve_budget(struct ct_session *session, int ms);
/* Hooks have been changed, while the process is stopped: new ones of a function are seen from their first call on as it
 * was before. */
void session_budget_rehooked(struct ct_session *session);
void session_end_budget(struct ct_session *session);   /* the image has ended ... */
void session_close_budget(struct ct_session *session); /* ... and all that it has left has been read */
void session_count_budget(struct ct_session *session); /* under the guard: into the status */
/* For the manifest; complete: the last one. NULL: there is no budget. */
json_t *session_budget_json(struct ct_session *session, bool complete);
void session_free_budget(struct ct_session *session);
/* Of the functions that a rule is about: how many were out at some time. */
size_t session_budget_count_out(const struct ct_session *session, uint32_t slot);

/* live.c: has what is hooked become what the patterns and rules say. */
int session_rehook(struct ct_session *session, struct ct_session_change *change, struct ct_diag *diag);
bool session_is_recorded(const struct ct_session *session);

/* status.c: brings the numbers of the status up to date; roughly: waiting for nobody. */
void session_count(struct ct_session *session);
void session_count_roughly(struct ct_session *session);
/* From now on the processor time of its process counts; session_read_cpu: so far. */
void session_begin_cpu(struct ct_session *session);
void session_read_cpu(struct ct_session *session);
/* By what the drain has counted. */
struct ct_cost session_cost(struct ct_session *session, const uint64_t hook_events[CT_HOOK_EVENT_COUNT],
                            const uint64_t dropped_by[CT_DROP_COUNT]);
bool session_has_children(struct ct_session *session); /* that live */

/* ---- children.c ---- */

/* A process was attached to that has children: a note. */
void session_note_earlier_children(struct ct_session *session);
/* It has made some since, as far as that shows. */
bool session_made_children(const struct ct_session *session);

/* metrics.c: for those who have asked. */
void session_serve_metrics(struct ct_session *session);

/* end.c: the end of the process. */
void session_start_watching(struct ct_session *session);
void session_stop_watching(struct ct_session *session);
/* Has it ended? True then, and the recording has its end. */
bool session_check_for_end(struct ct_session *session);

/* loop.c: the session's thread; context: the session. */
void *session_main(void *context);

/* notes.c: what the user should know although all is well; once. */
void session_note(struct ct_session *session, const char *text);
/* What it should know of a child of the first process. */
void session_note_child(struct ct_session *first, const char *text);
/* A note to those of a line of `size` bytes, unless it is there already; "...": there was no room for it. */
void session_add_to_line(char *line, size_t size, const char *text);
/* A note for each module of whose text little belongs to known functions. */
void session_note_unknown(struct ct_session *session);
/* That a table could not be written at the end, and what that means. code: CT_OK: it could. */
void session_note_table(struct ct_session *session, int code, const char *effect);
/* Debug files that were asked for and could not be fetched. */
void session_note_fetch(struct ct_session *session);
/* What the program has done that ends the recording in part of it. */
void session_note_cuts(struct ct_session *session);

/* recording.c: the trace, and images in it. */
int session_open_trace(struct ct_session *session, struct ct_diag *diag);
/* The manifest as it is now, with these facts; under the writer's lock. */
json_t *session_manifest(struct ct_session *session, const struct ct_manifest *manifest, bool complete);
/* complete: nothing more will be recorded. */
void session_write_manifest(struct ct_session *session, bool complete);
void session_refresh_manifest(struct ct_session *session);
bool session_list_modules(struct ct_session *session);
struct ct_module_sinks session_sinks(struct ct_session *session);
/* Informs the drain, before it starts, how sampled hooks are sampled in the image. */
void session_sample(struct ct_session *session);
/* The process stands after an exec: makes the new image ready. */
/* How the ring and the agent are to be, by the session's options. */
struct ct_injected_options session_image_options(const struct ct_session *session);
/* The drain begins with the image's ring. 0 or CT_ENOMEM. */
int session_start_drain(struct ct_session *session, pid_t pid);
/* task_limit.c: before an image is put into a process that has just been started. */
void session_raise_task_limit(struct ct_session *session, struct ct_injected_options *options);
int session_begin_image(struct ct_session *session, struct ct_diag *diag);
/* Brings the functions of new modules into the trace, when the process does not wait for it. */
void session_publish(struct ct_session *session);
/* The image has ended, by exec or with the process, or was taken out. */
void session_end_image(struct ct_session *session, bool by_exec);
/* Nothing more will be recorded: the trace gets its end. Keeps the first failure in result and why. */
void session_close_trace(struct ct_session *session);
/* The trace has nothing in it. */
void session_drop_trace(struct ct_session *session);

/* serve.c: what the process asks for, and what it does not tell. */
/* True when there may be more. */
bool session_serve_requests(struct ct_session *session);
void session_check_for_modules(struct ct_session *session);
/* The exec of that path, an address in the process, is of a setuid or setgid program. */
bool session_exec_loses_privilege(struct ct_session *session, uint64_t path);

/* live.c */
/* A child whose parent's hooks were older than the patterns: the hooks become what they say. */
void session_catch_up(struct ct_session *session);

/* attach.c */
int session_attach(struct ct_session *session, pid_t pid, struct ct_diag *diag);
int session_stop_threads(struct ct_session *session, struct ct_diag *diag);
/* No wait for a thread of the process lasts when somebody wants something of the session. */
void session_bound_waits(struct ct_session *session);
/* The ns that they were stopped for; 0: they were not. */
uint64_t session_resume_threads(struct ct_session *session);
int session_detach(struct ct_session *session, struct ct_diag *diag);
/* The same while somebody in the process waits for it. */
struct ct_undo_wait;
int session_leave(struct ct_session *session, const struct ct_undo_wait *wait, struct ct_diag *diag);
/* ct_remote over threads that are stopped. */
struct ct_remote session_stopped_remote(struct ct_session *session);

#endif
