/* SPDX-License-Identifier: MIT */
/*
 * What the server holds: sessions that it records or has recorded (s1, s2 ...), and traces from the disk (t1 ...), with
 * their readers kept warm: a database whose index is mapped, a trace with its tables. Of a recording that goes on the
 * readers are made anew for each question, since they see what there was when they were opened; of a trace from the
 * disk when its files have changed, since somebody else may be recording it, or have put another in its place.
 *
 * A held thing that is in use (users) is not freed. The name of it is given to the client.
 */
#ifndef CT_MCP_HELD_H
#define CT_MCP_HELD_H

#include "mcp/server.h"

#include <contrail/control.h>
#include <contrail/filter.h>
#include <contrail/sql.h>
#include <contrail/trace.h>

#include <stdio.h>

/* What a program writes to one of its pipes goes to a file. */
struct mcp_stream {
  char path[PATH_MAX], name[PATH_MAX]; /* by which it is opened; which is shown */
  int from;                            /* the pipe's end, -1: none */
  int file;                            /* -1: none */
  _Atomic uint64_t bytes, dropped;     /* in the file; over the limit */
};

enum mcp_stage { MCP_STARTING, MCP_RECORDING, MCP_ENDING, MCP_DONE, MCP_FAILED };

/* A session, by its keeper. What changes later is under the server's lock. */
struct mcp_session {
  struct ct_session_options options;
  char **argv;        /* NULL: attached */
  char **environment; /* NULL: the server's */
  char *working_directory, *input;
  char **rules;
  bool is_kept, starts_nothing; /* keep; patterns: [] */
  pid_t pid;
  struct mcp_group group;     /* of a program that was launched */
  unsigned long long started; /* when the process was that was attached to, as /proc says; another has another time */
  char attached_to[PATH_MAX]; /* the program of a process that was attached to, if that can be read */
  enum mcp_stage stage;
  struct ct_session *session; /* NULL before and after */
  struct ct_control *control;
  size_t callers;    /* in the middle of a call of the session */
  bool is_to_end;    /* its process is being ended by us */
  bool runs_on;      /* a program of ours that has not ended with its recording */
  uint64_t limit_ms; /* 0: none; then it is stopped */
  bool has_hit_limit;
  struct ct_session_status status; /* the last one, when it is done */
  int code, exec_errno;            /* why it could not begin, or what went wrong */
  struct ct_diag diag;
  bool is_pumped;               /* its output has ended, and is in the files */
  struct mcp_stream streams[2]; /* its standard output and error */
};

/* How the files of a trace from the disk looked: of one that is whole its manifest, else all. */
struct mcp_stamp {
  uint64_t device, inode, size, seconds, nanoseconds;
  uint64_t mark; /* of all files; 0: it is whole */
};

struct mcp_held {
  struct mcp_held *next;
  struct mcp_server *server;
  char name[16];
  char directory[PATH_MAX];    /* of the trace, as it is shown */
  char place[PATH_MAX];        /* by which it is opened: the same, or below a directory that is held */
  int place_fd;                /* that one; -1: none */
  struct mcp_session *session; /* NULL: a trace from the disk */
  size_t users;
  bool is_forgotten;
  pthread_mutex_t asking; /* of the database, and of whoever uses it */
  struct ct_sql *sql;
  bool has_source, is_of_live; /* the database has its trace; it was opened while that grew */
  unsigned sql_look;           /* at which look at the files it was opened */
  struct mcp_request *reader;  /* whose query runs: for its progress */
  pthread_mutex_t reading;     /* of what follows */
  struct mcp_stamp stamp;      /* as of look */
  unsigned look, trace_look;   /* so often the files have changed; when the trace was opened */
  size_t trace_users;          /* views of it */
  struct ct_trace *trace;
  json_t *facts; /* `contrail info --json` of a trace that is whole */
};

/* ---- held.c ---- */

/*
 * The one that name means: an id, a directory, which is opened then; NULL: the newest. NULL after mcp_fail. To be given
 * back by mcp_held_put.
 */
struct mcp_held *mcp_held_get(struct mcp_call *call, const char *name);
/* The same of sessions alone that are recorded now. */
struct mcp_held *mcp_held_get_live(struct mcp_call *call, const char *name);
void mcp_held_put(struct mcp_held *held);
/* Made with one user. kind: 's' or 't'. fd: of the directory, or -1; taken over. NULL after mcp_fail. */
struct mcp_held *mcp_held_make(struct mcp_call *call, char kind, struct mcp_session *session, const char *directory,
                               int fd);
/* Lets a trace, or a session that has ended, go from the list. False after mcp_fail. */
bool mcp_held_forget(struct mcp_call *call, struct mcp_held *held);
/* Until no session is recorded; false: after some seconds one still is. */
bool mcp_held_end_all(struct mcp_server *server);
void mcp_held_free_all(struct mcp_server *server);
/* True while it is recorded: what is read of it is of now. */
bool mcp_held_is_live(const struct mcp_held *held);

/* ---- reading.c: the readers. Each gives false after mcp_fail ---- */

/* The database, locked until mcp_sql_give. */
struct ct_sql *mcp_sql_take(struct mcp_call *call, struct mcp_held *held);
void mcp_sql_give(struct mcp_held *held);
/* A trace with its filter, by the members of the arguments' `filter` (NULL: none). */
struct mcp_view {
  struct ct_trace *trace;
  struct ct_filter filter;
  bool is_private;       /* it has a range, or grows: closed with the view */
  struct mcp_held *warm; /* else: whose trace it is */
  uint32_t tid, pid;
};
bool mcp_view_open(struct mcp_call *call, struct mcp_held *held, const json_t *filter, struct mcp_view *view);
void mcp_view_close(struct mcp_view *view);
/* Nothing was shown: what the filter may have meant, as a doubt. */
void mcp_report_unmatched(struct mcp_call *call, struct mcp_view *view);
/* `contrail info --json` of it: to be decref'ed. NULL: it cannot be read (yet). */
json_t *mcp_facts(struct mcp_held *held);
/* Adds to the answer what is lost, sampled, open in the trace or session. */
void mcp_doubts(struct mcp_call *call, struct mcp_held *held);
/* Which of the patterns, as ct_selection_json has them, are recorded without returns. */
void mcp_doubt_light(struct mcp_call *call, const json_t *patterns);
/* Of a session whose events are in memory only (`last`): how to get at them. False: it is none. */
bool mcp_suggest_dump(struct mcp_call *call, const struct mcp_held *held);

/* ---- keeper.c ---- */

/* Starts the keeper, and waits until the session is recorded. False after mcp_fail. */
bool mcp_session_begin(struct mcp_call *call, struct mcp_held *held);
/* Waits for the end of the session, at most so long, unless the call is cancelled. True: it is done. */
bool mcp_session_await(struct mcp_call *call, struct mcp_held *held, double seconds);
/* Ends the recording, and with ends the program too (SIGTERM, after a while SIGKILL). Returns at once. */
void mcp_session_stop(struct mcp_held *held, bool ends);
/* The session for calls of the library, until mcp_session_leave; NULL after mcp_fail. */
struct ct_session *mcp_session_enter(struct mcp_call *call, struct mcp_held *held);
void mcp_session_leave(struct mcp_held *held);
void mcp_session_free(struct mcp_session *session); /* accepts NULL */
/* Members of the answer about a session, or a trace. */
void mcp_put_status(struct mcp_call *call, struct mcp_held *held);
json_t *mcp_status_json(struct mcp_held *held, bool is_short);
const char *mcp_stage_name(const struct mcp_held *held);

/* ---- choose.c ---- */

/* A pattern has matched nothing: why, and what may be meant, as a doubt. likely: what the library says; NULL or "". */
void mcp_doubt_pattern(struct mcp_call *call, pid_t pid, const char *pattern, const char *likely);

/* ---- streams.c ---- */

/* Opens the pipes or (is_kept) files beside the trace; fds: what the program is to have as 0, 1, 2. False: errno. */
bool mcp_streams_open(struct mcp_held *held, int fds[3]);
/* Reads the pipes until both have ended; the pump's thread, which is a user of the held thing that it is given. */
void *mcp_streams_pump(void *held);
/* {"file":, "bytes":, "tail":}; the tail has at most so many bytes. */
json_t *mcp_stream_json(const struct mcp_stream *stream, size_t tail_bytes);

/* ---- results.c: rows and lines that were found, for cursors ---- */

/* Puts the page of the items (takes them over) into the answer as `key`, with a cursor if there are more. limit 0:
 * MCP_ROWS. has_more: there were more than these items. */
void mcp_put_page(struct mcp_call *call, const char *key, json_t *columns, json_t *items, uint64_t limit,
                  bool has_more);
/* The next page of a result. False after mcp_fail. */
bool mcp_put_next_page(struct mcp_call *call, const char *cursor, uint64_t limit);
/* What is uncertain in the first page is so in those that follow. */
void mcp_results_note(struct mcp_call *call);
void mcp_results_free(struct mcp_server *server);
/* A stream into memory for lines: those beyond what an answer may have are not kept. text is to be freed. */
struct mcp_lines {
  char *text;
  size_t size, count;
  bool is_cut;
};
FILE *mcp_lines_open(struct mcp_lines *lines);
/* A text's lines, `most` at most, without control characters, long ones cut. has_more: there are more. */
json_t *mcp_split_lines(const char *text, size_t size, size_t most, bool *has_more);

/* ---- disk.c ---- */

/* Bytes in a directory, and below. */
uint64_t mcp_disk_used(const char *directory);
/* A number that changes, but for chance, when a file there does; indexes do not count. Never 0. */
uint64_t mcp_disk_mark(const char *directory);
/* How large what begins now may become. False after mcp_fail: nothing may begin. */
bool mcp_disk_room(struct mcp_call *call, uint64_t *room);
/* A new file in the server's directory for an answer that is too large; NULL after mcp_fail. Beyond what --max-size and
 * --max-disk leave it has an error (EFBIG). */
FILE *mcp_answer_file(struct mcp_call *call, const char *ending, char path[PATH_MAX]);
/* False after mcp_fail: a dump of what the session holds in memory may be larger than --max-disk leaves. */
bool mcp_disk_dump_fits(struct mcp_call *call, const struct mcp_held *held);
/* The files of a session that has ended, or of a dump. False after mcp_fail: they are not in the server's directory. */
bool mcp_disk_can_remove(struct mcp_call *call, const struct mcp_held *held);
void mcp_disk_remove(const struct mcp_held *held);

#endif
