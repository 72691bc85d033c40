/* SPDX-License-Identifier: MIT */
/* What the commands about live sessions share. Exit codes: as of all commands, and 3: there is no such session. */
#ifndef CT_CLI_ASK_H
#define CT_CLI_ASK_H

#include "cli/command.h"

#include <jansson.h>

enum {
  CT_EXIT_NO_SESSION = 3,
  CT_PEEK_MS = 3000,        /* how long to wait for a status */
  CT_CHANGE_MS = 10 * 60000 /* for what stops the process: large ones take their time */
};

/* Usage texts. */
#define CT_WHICH_SESSION                                                                                               \
  "SESSION is an id as contrail sessions shows it, or the process's id; it may be left out\n"                          \
  "when there is only one.\n"
#define CT_SESSION_EXIT_CODES                                                                                          \
  "Exits with 0; 1 when the session refused, failed or does not answer; 2 for wrong usage,\n"                          \
  "also when SESSION is left out and there are several; 3 when there is no such session.\n"

/* The answer of that session to a call, or NULL and *code (enum ct_err) with diag. params: a JSON object or NULL. */
json_t *ct_ask(const char *id, const char *method, const char *params, int timeout_ms, int *code, struct ct_diag *diag);
/* Finds the session (name may be NULL), asks it, and complains where that fails. Gives the exit code. */
int ct_ask_named(const struct ct_command *command, const char *name, const char *method, const char *params,
                 int timeout_ms, json_t **answer);

/* {key: text}, to be freed; NULL: it is not UTF-8, or out of memory. */
char *ct_params_of(const char *key, const char *text);

/* Members of an answer: "?" and 0 where there is none. */
const char *ct_text_of(const json_t *json, const char *key);
uint64_t ct_number_of(const json_t *json, const char *key);
/* On stdout, flushed; gives the exit code. */
int ct_print_json(const json_t *json);

#endif
