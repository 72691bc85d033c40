/* SPDX-License-Identifier: MIT */
/*
 * JSON-RPC 2.0 (https://www.jsonrpc.org/specification): the text of one request or batch in, the text of the answer
 * out. Pure. Whose request it is, and how it came, is the server's affair (server.h).
 */
#ifndef CT_CONTROL_RPC_H
#define CT_CONTROL_RPC_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_RPC_BATCH_MAX 100 /* requests of one batch */

/* Codes of the specification. */
enum ct_rpc_code {
  CT_RPC_PARSE = -32700,
  CT_RPC_REQUEST = -32600,
  CT_RPC_METHOD = -32601,
  CT_RPC_PARAMS = -32602,
  CT_RPC_INTERNAL = -32603,
  CT_RPC_LIBRARY = -32000, /* and an enum ct_err added, down to -32099 */
  CT_RPC_LATER = 1,        /* no error: there is no result yet */
};

struct ct_rpc_fault;
/*
 * Looks again for the result of a call that has none yet; it waits for nothing itself. What it returns is as of
 * ct_rpc_run, CT_RPC_LATER too. Not so when it is the last look: then there is a result or a fault.
 */
enum ct_rpc_turn { CT_RPC_ONE_LOOK, CT_RPC_LAST_BY_TIME, CT_RPC_LAST_AT_END };
typedef json_t *ct_rpc_look(void *context, const uint64_t what[3], enum ct_rpc_turn turn, struct ct_rpc_fault *fault);

/*
 * What a call gives besides its result: notifications that come of themselves, until it is over or the connection is.
 * next: the next line, to be freed, with its end, or NULL: there is none yet, or *is_over. is_last: nobody asks again.
 */
struct ct_rpc_feed {
  char *(*next)(void *state, bool is_last, bool *is_over); /* NULL: it is no feed */
  void (*close)(void *state);
  void *state;
  int fd; /* readable while next has something */
};

/* A call that is answered later, or with a feed. */
struct ct_rpc_later {
  ct_rpc_look *look; /* NULL: it is none */
  uint64_t what[3];
  int64_t timeout_ms; /* then it is looked for the last time; negative: any time */
  json_t *id;         /* the request's */
  struct ct_rpc_feed feed;
};

struct ct_rpc_fault {
  int code; /* enum ct_rpc_code, or below CT_RPC_LIBRARY */
  struct ct_diag diag;
  struct ct_rpc_later later; /* with CT_RPC_LATER, its feed with a result; the id is nothing of the method's */
};

/*
 * Runs a method. params: an object, or NULL when there are none. The result, which the caller takes over, or NULL and
 * the fault, whose text may be left "".
 */
typedef json_t *ct_rpc_run(void *context, const char *method, const json_t *params, struct ct_rpc_fault *fault);

/* For a ct_rpc_run: the fault of the code that a function of the library gave; its diag is set already. NULL. */
json_t *ct_rpc_failed(struct ct_rpc_fault *fault, int ct_err);
/* The same for wrong parameters. */
json_t *ct_rpc_wrong_params(struct ct_rpc_fault *fault, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether params has nothing but the members of this list, which NULL ends; else the fault is set. */
int ct_rpc_only(const json_t *params, struct ct_rpc_fault *fault, const char *const *members);

/*
 * Answers length bytes of text. *answer: a line, with its end, to be freed, of *size bytes; NULL when there is nothing
 * to say, as for notifications, or nothing yet: then *later has a look. With an answer it may have a feed, which is the
 * caller's then. 0 or CT_ENOMEM. later NULL: nothing can be answered later, as nothing in a batch can, nor have a feed.
 */
int ct_rpc_answer(const char *text, size_t length, ct_rpc_run *run, void *context, struct ct_rpc_later *later,
                  char **answer, size_t *size);
/* The same of a call that was to be answered later; *answer NULL: not yet. Afterwards later is to be released. */
int ct_rpc_answer_later(const struct ct_rpc_later *later, void *context, enum ct_rpc_turn turn, char **answer,
                        size_t *size);
void ct_rpc_drop_later(struct ct_rpc_later *later);
/* The answer to what could not be taken as a request at all. NULL: out of memory. */
char *ct_rpc_refusal(enum ct_rpc_code code, const char *text);

/* A notification of ours: takes over params. NULL: out of memory. */
char *ct_rpc_notification(const char *method, json_t *params);

/* The other side: a request as a line with its end, to be freed; NULL: out of memory. params may be NULL. */
char *ct_rpc_request(const char *method, const json_t *params, json_int_t id);
/*
 * Takes an answer to the request of that id apart: 0 and *result (a new reference), or the ct_err that the error stands
 * for, with its text in diag.
 */
int ct_rpc_take_answer(const char *text, size_t length, json_int_t id, json_t **result, struct ct_diag *diag);

#endif
