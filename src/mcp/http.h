/* SPDX-License-Identifier: MIT */
/*
 * MCP over HTTP, as its files share it.
 *
 * The front is one thread in one process. It speaks HTTP (libmicrohttpd, polled by us) and passes messages on to
 * sessions: each is a process of its own that runs the server of standard input and output (mcp_serve) on two pipes. So
 * a session ends as a client of that goes, with all that it holds, and what one session does or reads is nothing to the
 * others. When the front goes, by whatever way, the pipes close, and the sessions end.
 *
 * An exchange is a request of HTTP. One that waits is suspended: libmicrohttpd asks nothing of it until it is woken.
 */
#ifndef CT_MCP_HTTP_H
#define CT_MCP_HTTP_H

#include "mcp/json.h"
#include "mcp/serve.h"

#include <microhttpd.h>
#include <signal.h>

enum {
  HTTP_BODY_MAX = 4 << 20,   /* bytes of a request's body */
  HTTP_QUEUE_MAX = 16 << 20, /* bytes that wait for a session, or for a client that does not read */
  HTTP_PROCESSES_MAX = 64,   /* sessions, with those that are ending */
  HTTP_CONNECTIONS_MAX = 96, /* at a time; more wait to be accepted */
  HTTP_ID_BYTES = 33,        /* of a session's id and its NUL */
  HTTP_TOKEN_BYTES = 257,    /* of the token and its NUL */
  HTTP_NAME_BYTES = 300,     /* of an address as it is shown */
};

struct http_bytes {
  char *text;
  size_t length, capacity, taken; /* taken: of length, those that have gone; their room may be used again */
};

/* What the answer to a request, or the server itself, has said in events; see http_stream.c. */
struct http_stream {
  struct http_stream *next;        /* of the session, the newest first */
  struct http_session *session;    /* whose it is; NULL: the exchange's still */
  struct http_exchange *reader;    /* NULL: nobody now */
  json_t *ids, *tokens;            /* of requests that are not answered; of their progress */
  struct http_event *first, *last; /* those that are kept */
  unsigned number, said;           /* number of the stream, and of its last event */
  uint64_t left_ms;                /* since when nobody reads it */
  bool is_listening;               /* the server's own */
  bool is_over;                    /* nothing more comes */
};

struct http_session {
  struct http_session *next;
  char id[HTTP_ID_BYTES];
  char version[16]; /* that was agreed upon; empty until then */
  pid_t pid;
  int to, from;              /* its pipes; -1: closed */
  struct http_bytes out, in; /* what it is to read; a line that is not whole yet */
  struct http_stream *streams;
  unsigned streams_made;
  size_t kept_bytes;  /* of all their events */
  uint64_t used_ms;   /* when a client last wanted something of it */
  uint64_t ending_ms; /* since when; 0: it is not */
  bool is_killed;
};

struct http_exchange {
  struct http_exchange *next; /* of all */
  struct http_server *server;
  struct MHD_Connection *connection;
  struct http_session *session; /* NULL: none, or it has ended */
  struct http_client *client;   /* whose connection it is */
  struct http_stream *stream;   /* NULL: it waits for nothing */
  struct http_bytes body, events;
  uint64_t body_bytes; /* that came, also those that were not kept */
  char *answer;        /* JSON */
  uint64_t begun_ms, reported_ms;
  bool is_refused;                       /* answered before the body came */
  bool is_taken;                         /* it has been looked at */
  bool is_initialize;                    /* makes the session */
  bool is_call;                          /* of a tool: it may have changed something when its answer comes */
  bool is_listening;                     /* GET: the server's stream */
  bool is_suspended, is_stream, is_over; /* answered by a stream; nothing more comes */
  bool is_answered;                      /* libmicrohttpd has the response */
};

/* A connection; see http_client.c. */
struct http_client {
  struct http_client *next; /* the newest first */
  int fd;
  uint64_t since_ms; /* since when it has not brought a whole request */
  bool is_trusted;   /* its last request had the token */
  bool is_served;    /* its request is whole: what takes time is ours */
  bool is_shut;
};

struct http_server {
  const struct mcp_options *options;
  struct MHD_Daemon *daemon;
  int listen_fd, signal_fd;
  sigset_t program_mask; /* signals that were blocked before */
  bool is_loopback, is_ending;
  char token[HTTP_TOKEN_BYTES];
  struct http_session *sessions;
  struct http_exchange *exchanges;
  struct http_client *clients;
};

/* ---- http_library.c: libmicrohttpd, which is loaded when it is wanted (it brings ten others along) ---- */

#define HTTP_FUNCTIONS(X)                                                                                              \
  X(start_daemon)                                                                                                      \
  X(stop_daemon)                                                                                                       \
  X(run)                                                                                                               \
  X(get_timeout)                                                                                                       \
  X(get_daemon_info)                                                                                                   \
  X(lookup_connection_value)                                                                                           \
  X(get_connection_info)                                                                                               \
  X(get_connection_values)                                                                                             \
  X(create_response_from_buffer)                                                                                       \
  X(create_response_from_callback)                                                                                     \
  X(add_response_header)                                                                                               \
  X(queue_response)                                                                                                    \
  X(destroy_response)                                                                                                  \
  X(suspend_connection)                                                                                                \
  X(resume_connection)

#define HTTP_POINTER(name) __typeof__(MHD_##name) *name;
struct http_library {
  HTTP_FUNCTIONS(HTTP_POINTER)
};
extern struct http_library http_library;
/* False, and why. */
bool http_library_load(struct ct_diag *diag);

/* ---- http_address.c: who may ask ---- */

/* "[HOST:]PORT" as a socket that listens, and its address as it is shown. 0, or an error. */
int http_listen(const char *address, int *fd, bool *is_loopback, char name[HTTP_NAME_BYTES], struct ct_diag *diag);
/*
 * "HOST[:PORT]" of a Host header: true for localhost and addresses of loopback, else (is_loopback false) for any
 * numeric address: a page that has its name resolved to ours (DNS rebinding) can give nothing but a name.
 */
bool http_is_our_host(const char *host, bool is_loopback);
/* "http://HOST[:PORT]" of an Origin header, by the same rule. */
bool http_is_our_origin(const char *origin, bool is_loopback);
/* "Bearer TOKEN" of an Authorization header; takes as long for any token of that length. */
bool http_is_authorized(const char *authorization, const char *token);
/* True if an Accept header takes the type, "application/json" or "text/event-stream". */
bool http_accepts(const char *accept, const char *type);
/* size - 1 hexadecimal digits that nobody guesses. False: none are to be had. */
bool http_make_secret(char *text, size_t size);
/* The token: out of the file (made with a new one if there is none), or a new one, which is_new says. */
int http_find_token(const char *path, char token[HTTP_TOKEN_BYTES], bool *is_new, struct ct_diag *diag);

/* ---- http_exchange.c: requests and their answers ---- */

/* As libmicrohttpd calls them; context is the server. */
enum MHD_Result http_handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *data, size_t *size, void **memory);
void http_completed(void *context, struct MHD_Connection *connection, void **memory,
                    enum MHD_RequestTerminationCode code);
/* It has something to say, or is over. */
void http_wake(struct http_exchange *exchange);
/* Requests that take long become streams, and streams are kept open. True: one will be, soon. */
bool http_exchanges_tick(struct http_server *server, uint64_t now_ms);

/* ---- http_client.c: connections, of whom nobody knows whose they are until they have shown the token ---- */

/* As libmicrohttpd calls it; context is the server. */
void http_notified(void *context, struct MHD_Connection *connection, void **memory,
                   enum MHD_ConnectionNotificationCode code);
struct http_client *http_client_of(struct MHD_Connection *connection);
/* Shuts those that take too long to bring a request. True: there are some that bring one. */
bool http_clients_tick(struct http_server *server, uint64_t now_ms);

/* ---- http_stream.c ---- */

/* Without a session it is freed with the exchange. NULL: no memory. */
struct http_stream *http_stream_make(void);
void http_stream_join(struct http_session *session, struct http_stream *stream);
/* Accepts NULL. */
void http_stream_free(struct http_stream *stream);
/* An event; false: no memory. */
bool http_stream_add(struct http_stream *stream, const char *text, size_t length);
/* Nothing more comes. */
void http_stream_end(struct http_stream *stream);
/* A comment, with which the exchange's answer becomes a stream. */
void http_stream_say(struct http_exchange *exchange, const char *comment);
void http_stream_read(struct http_stream *stream, struct http_exchange *reader);
/* The exchange's connection is over. */
void http_stream_leave(struct http_exchange *reader);
/* Reads on after the event with this id. False: there is no such stream (any more). */
bool http_stream_resume(struct http_exchange *exchange, const char *last_event);
/* A new stream of the server's own; NULL: it is read already, or no memory. */
struct http_stream *http_stream_listen(struct http_session *session);
void http_streams_tick(struct http_session *session, uint64_t now_ms);
void http_streams_free(struct http_session *session);

/* ---- http_message.c: what a POST brings ---- */

/* Its message is passed on to its session, which an initialize makes. 0: the answer comes; 202: none does; else the
 * status of HTTP, with an error of JSON-RPC. */
unsigned http_take_message(struct http_exchange *exchange, int *code, const char **wrong);
/* A line of the session, to whoever waits for it. */
void http_give_line(struct http_server *server, struct http_session *session, const char *line, size_t length);

/* ---- http_session.c: the processes ---- */

/* A new one; NULL, and why. */
struct http_session *http_session_start(struct http_server *server, const char **wrong);
/* The one with this id that is not ending, or NULL. */
struct http_session *http_session_find(struct http_server *server, const char *id);
/* Passes a line on; takes it over. False: it has too much to read already. */
bool http_session_write(struct http_session *session, char *line);
/* Its client has gone: what waits for it is over. Returns at once. */
void http_session_end(struct http_server *server, struct http_session *session);
/* Those that are idle too long are ended, those that have ended are freed. True: some are about to end. */
bool http_sessions_tick(struct http_server *server, uint64_t now_ms);
void http_session_read(struct http_server *server, struct http_session *session);
void http_session_flush(struct http_session *session);

/* ---- http.c ---- */

uint64_t http_now_ms(void);

/* ---- http_bytes.c ---- */

/* False: no memory. */
bool http_append(struct http_bytes *bytes, const char *text, size_t length);
/* All of it has gone: the next one begins at the front, and much room is given back. */
void http_empty(struct http_bytes *bytes);

#endif
