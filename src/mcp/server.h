/* SPDX-License-Identifier: MIT */
/*
 * What the server's files share.
 *
 * Threads: the main one reads messages and answers what takes no time (protocol.c); calls of tools, and what reads
 * traces, are answered by workers (requests.c). Each session has a keeper (keeper.c), which makes it, waits for its end
 * and closes it. A process of its own, the guardian (guardian.c), cleans up if the server is killed.
 *
 * Locks, in the order in which they may be taken: server.lock; held.asking; held.reading; out_lock.
 */
#ifndef CT_MCP_SERVER_H
#define CT_MCP_SERVER_H

#include "mcp/json.h"
#include "mcp/serve.h"

#include <contrail/session.h>

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* Ascending. */
enum mcp_version { MCP_NONE, MCP_2024_11_05, MCP_2025_03_26, MCP_2025_06_18, MCP_2025_11_25 };

/* Errors of JSON-RPC, and MCP's own. */
enum {
  MCP_PARSE_ERROR = -32700,
  MCP_INVALID_REQUEST = -32600,
  MCP_NO_METHOD = -32601,
  MCP_INVALID_PARAMS = -32602,
  MCP_INTERNAL = -32603,
  MCP_NO_RESOURCE = -32002,
  MCP_BUSY = -32000,
};

enum {
  MCP_MESSAGE_MAX = 4 << 20, /* bytes of a line that comes in */
  MCP_ANSWER_BYTES = 40000,  /* of rows and lines in an answer, some 12,000 tokens, 20,000 of what is worst ... */
  MCP_TEXT_BYTES = 60000,    /* ... and of all of it */
  MCP_COLUMNS_MAX = 200,     /* of a query */
  MCP_ROWS = 50,             /* in an answer, by default ... */
  MCP_ROWS_MAX = 1000,       /* ... and at most, and so many are kept for a cursor */
  MCP_TRACES_MAX = 32,       /* traces and sessions that are known at a time */
};

struct mcp_batch;
struct mcp_held;
struct mcp_server;

/* ---- requests.c: requests, their answers, what cancels them ---- */

struct mcp_request {
  struct mcp_request *next;        /* of all that are not answered yet */
  struct mcp_request *next_queued; /* of those that wait for a worker */
  struct mcp_server *server;
  struct mcp_batch *batch;              /* NULL: it came alone */
  json_t *id, *params, *progress_token; /* the last one may be NULL */
  void (*run)(struct mcp_request *request);
  atomic_bool is_cancelled;
  void (*on_cancel)(void *context); /* called with the server's lock held; NULL: nobody waits */
  void *cancel_context;
  uint64_t progress_ns; /* when the last was sent */
  double progress;
};

/* True when the answer is not wanted any more, or the server ends. */
bool mcp_is_cancelled(const struct mcp_request *request);
/* From now on, until it is called with NULL, function is called if the request is cancelled. */
void mcp_on_cancel(struct mcp_request *request, void (*function)(void *context), void *context);
/* Informs the client how far the request is, if it asked for that, not more than five times a second. total 0: not
 * known.
 */
void mcp_progress(struct mcp_request *request, double done, double total, const char *what);

/* One message of the client, and what it asks for; the message goes. */
void mcp_take_message(struct mcp_server *server, json_t *message);
/* The same of a text that cannot be understood. */
void mcp_refuse_message(struct mcp_server *server, int code, const char *text);
/* Gives the request to a worker, which calls run. Takes over what it has. */
void mcp_enqueue(struct mcp_request *request);
/* The answer to a request, once. Both take over result; the request is gone then. */
bool mcp_answer_result(struct mcp_request *request, json_t *result); /* false: cancelled, and not answered */
void mcp_answer_error(struct mcp_request *request, int code, json_t *text);
/* Ends waiting, and waits a moment for the workers. True: there is none any more. */
bool mcp_end_requests(struct mcp_server *server, unsigned timeout_ms);

/* ---- protocol.c ---- */

/* Answers the request, or enqueues it. */
void mcp_dispatch(struct mcp_request *request, const char *method);
void mcp_notified(struct mcp_server *server, const char *method, const json_t *params);

/* ---- the server ---- */

struct mcp_server {
  const struct mcp_options *options;
  int in, out;   /* the client's, kept from everything else */
  int wake_fd;   /* an eventfd that is readable once the server ends */
  int signal_fd; /* readable when a signal has come that ends the server */
  int guard_fd;  /* to the guardian; -1: there is none */
  pid_t guardian;
  sigset_t program_mask;    /* signals that were blocked before */
  char directory[PATH_MAX]; /* of traces and output */
  bool is_temporary;
  _Atomic int version; /* enum mcp_version that was agreed upon */
  atomic_bool is_ending;
  pthread_mutex_t out_lock;
  atomic_bool out_failed;
  pthread_mutex_t lock;   /* of all that follows */
  pthread_cond_t changed; /* of a session's state, of the number of workers */
  struct mcp_request *requests, *queue_first, *queue_last;
  size_t request_count, queue_count, workers, idle_workers;
  struct mcp_held *held; /* the newest first */
  unsigned sessions_made, traces_made, results_made;
  struct mcp_result *results;
  json_t *tools; /* name: {"input": schema, ...}; not changed any more */
};

/* Sends a message; takes it over. */
void mcp_send(struct mcp_server *server, json_t *message);

/* ---- tools.c: calls of tools ---- */

struct mcp_call {
  struct mcp_server *server;
  struct mcp_request *request;
  const json_t *arguments;
  json_t *body;         /* the answer, an object */
  json_t *uncertain;    /* what is lost, sampled, not known in it */
  json_t *next;         /* what to ask next */
  unsigned kept;        /* the result of which it has a page; 0: there are no more pages */
  bool has_target_text; /* texts in it may come from the program */
  bool failed;
  struct mcp_held *made;                               /* a session that was launched or attached */
  void (*after)(struct mcp_call *call, bool is_known); /* the answer was given, or the call was cancelled; or NULL */
};

/* Stands with what the program may have written. */
extern const char mcp_data_note[];

/* What is wrong, and what to do; gives false. The first one stays. */
bool mcp_fail(struct mcp_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One more line at the end of the answer. */
void mcp_doubt(struct mcp_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mcp_suggest(struct mcp_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A member of the answer; takes value over. */
void mcp_put(struct mcp_call *call, const char *key, json_t *value);
/* The first ones of a list, as a member, and how many there are besides as a doubt. Takes the list over. */
void mcp_put_some(struct mcp_call *call, const char *key, json_t *list, size_t most);

typedef bool mcp_tool_run(struct mcp_call *call);
struct mcp_tool {
  const char *name, *title, *description;
  const char *input, *output; /* schemas */
  const char *hints;          /* annotations */
  bool changes;               /* not with --read-only */
  mcp_tool_run *run;
};
extern const struct mcp_tool mcp_tools[]; /* name NULL ends; catalogue.c */
mcp_tool_run mcp_tool_launch, mcp_tool_attach, mcp_tool_trace, mcp_tool_query, mcp_tool_analyze, mcp_tool_session,
    mcp_tool_itrace, mcp_tool_explain;

/* 0, or CT_ENOMEM: a schema is wrong or there is no memory. */
int mcp_tools_load(struct mcp_server *server);
json_t *mcp_tools_list(struct mcp_server *server);
void mcp_tools_call(struct mcp_request *request); /* a request's run */

/* ---- allow.c ---- */

/* The file that was looked at; inode 0: any will do. */
struct mcp_file {
  uint64_t device, inode;
};

/*
 * False, with the reason in call: --allow does not name it. With --allow, path becomes that without links, which is
 * what is to be used. A program keeps its path, as some look at their own, and file says which one it has to be; but
 * for a script, whose interpreter opens it again.
 */
bool mcp_allows_program(struct mcp_call *call, char path[PATH_MAX], struct mcp_file *file);
bool mcp_allows_directory(struct mcp_call *call, char path[PATH_MAX]);
/*
 * The same of a directory, which with --allow is held from then on: by its name there may soon be another one, or a
 * link. fd is to be closed; -1: without --allow any will do.
 */
bool mcp_allows_held(struct mcp_call *call, char path[PATH_MAX], int *fd);
/* By what the directory, or name in it, is to be opened. False: that is too long. */
bool mcp_place(char place[PATH_MAX], const char *path, int fd, const char *name);
/* Nobody may name process 1, or the server's own. started: when it was, to be held against what was attached to. */
bool mcp_allows_process(struct mcp_call *call, pid_t pid, unsigned long long *started);

/* ---- group.c ---- */

/* The processes of a program that was launched. */
struct mcp_group {
  pid_t leader; /* 0: none */
  int fd;       /* of the leader; -1: none can be had */
  unsigned long long started;
};

/* While the leader was not waited for. */
void mcp_group_open(struct mcp_group *group, pid_t leader);
/* To all of them that are there, also when the leader has ended; to nobody else, whoever has its id by then. */
void mcp_group_signal(const struct mcp_group *group, int number);
void mcp_group_close(struct mcp_group *group);

/* ---- guardian.c ---- */

/* Before there is a thread. Without one (out of processes) guard_fd is -1. */
void mcp_guardian_start(struct mcp_server *server);
/* A process that was launched (its group is ended if the server is killed), attached to (hooks are taken out), or is
 * neither any more. */
void mcp_guard_launched(struct mcp_server *server, pid_t pid);
void mcp_guard_attached(struct mcp_server *server, pid_t pid);
void mcp_guard_forget(struct mcp_server *server, pid_t pid);
/* Before a program begins that has the pipe, one end of which is fd, as its standard input or output; and when it has
 * ended, or its id has been reported. */
void mcp_guard_pipe(struct mcp_server *server, int fd, bool is_ours);
/* The server ends. is_clean: there is nothing left to be done. */
void mcp_guardian_end(struct mcp_server *server, bool is_clean);
/* Removes a directory with all in it. */
void mcp_remove_tree(const char *path);

/* ---- resources.c, prompts.c, explain.c ---- */

json_t *mcp_resources_list(struct mcp_server *server);
json_t *mcp_resource_templates(void);
extern const char *const mcp_tables[];                /* of query; NULL ends */
void mcp_resources_read(struct mcp_request *request); /* a request's run */
json_t *mcp_prompts_list(void);
/* NULL, and wrong: there is none of this name, or an argument is missing. */
json_t *mcp_prompts_get(const json_t *params, char *wrong, size_t size);
/* A page of the documentation that is built in, by its name without ".md"; NULL: there is none. */
const char *mcp_page(const char *name);

#endif
