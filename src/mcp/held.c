/* SPDX-License-Identifier: MIT */
/* The list of what is held; see held.h. */
#include "mcp/held.h"

#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { END_SECONDS = 8, WAITING_SECONDS = 2 };

static void
free_held(struct mcp_held *held)
{
  ct_sql_close(held->sql);
  ct_trace_close(held->trace);
  json_decref(held->facts);
  mcp_session_free(held->session);
  if (held->place_fd >= 0) {
    close(held->place_fd);
  }
  pthread_mutex_destroy(&held->asking);
  pthread_mutex_destroy(&held->reading);
  free(held);
}

/* Of those that are in the list; with the server's lock. */
static bool
is_busy(const struct mcp_held *held)
{
  return held->users != 0 || (held->session != NULL && held->session->stage < MCP_DONE);
}

bool
mcp_held_is_live(const struct mcp_held *held)
{
  if (held->session == NULL) {
    return false;
  }
  pthread_mutex_lock(&held->server->lock);
  bool is_live = held->session->stage < MCP_DONE;
  pthread_mutex_unlock(&held->server->lock);
  return is_live;
}

/* With the lock: the oldest trace, or session that has ended, that nobody uses leaves the list; NULL: there is none.
 * Its files stay, and can be opened again. */
static struct mcp_held *
drop_oldest(struct mcp_server *server)
{
  struct mcp_held **found = NULL;
  for (struct mcp_held **at = &server->held; *at != NULL; at = &(*at)->next) {
    found = !is_busy(*at) && ((*at)->session == NULL || !(*at)->session->runs_on) ? at : found;
  }
  struct mcp_held *oldest = found != NULL ? *found : NULL;
  if (oldest != NULL) {
    *found = oldest->next;
  }
  return oldest;
}

struct mcp_held *
mcp_held_make(struct mcp_call *call, char kind, struct mcp_session *session, const char *directory, int fd)
{
  struct mcp_server *server = call->server;
  struct mcp_held *held = calloc(1, sizeof(*held)), *dropped = NULL;
  size_t count = 0, live = 0;
  if (held == NULL) {
    if (fd >= 0) {
      close(fd);
    }
    mcp_fail(call, "out of memory");
    return NULL;
  }
  pthread_mutex_init(&held->asking, NULL);
  pthread_mutex_init(&held->reading, NULL);
  held->server = server;
  held->session = session;
  held->users = 1;
  held->place_fd = fd;
  snprintf(held->directory, sizeof(held->directory), "%s", directory);
  mcp_place(held->place, directory, fd, NULL);
  pthread_mutex_lock(&server->lock);
  for (const struct mcp_held *other = server->held; other != NULL; other = other->next) {
    count++;
    live += other->session != NULL && other->session->stage < MCP_DONE;
  }
  bool is_full = (kind == 's' && live >= server->options->max_sessions) ||
                 (count >= MCP_TRACES_MAX && (dropped = drop_oldest(server)) == NULL);
  if (!is_full) {
    unsigned *made = kind == 's' ? &server->sessions_made : &server->traces_made;
    snprintf(held->name, sizeof(held->name), "%c%u", kind, ++*made);
    held->next = server->held;
    server->held = held;
  }
  pthread_mutex_unlock(&server->lock);
  if (dropped != NULL) {
    free_held(dropped);
  }
  if (is_full) {
    held->session = NULL;
    free_held(held);
    mcp_fail(call,
             "%zu sessions and traces are held, %zu of them recorded now: session action=stop ends one, "
             "action=forget drops one that has ended",
             count, live);
    return NULL;
  }
  return held;
}

/* ---- finding ---- */

/* What is held by a descriptor is what has the name now. */
static bool
is_still(const struct mcp_held *held, const char *path)
{
  struct stat ours, now;
  return held->place_fd < 0 || held->session != NULL ||
         (fstat(held->place_fd, &ours) == 0 && stat(path, &now) == 0 && ours.st_dev == now.st_dev &&
          ours.st_ino == now.st_ino);
}

/* With the lock. */
static struct mcp_held *
find(struct mcp_server *server, const char *name, bool wants_live)
{
  for (struct mcp_held *held = server->held; held != NULL; held = held->next) {
    bool is_live = held->session != NULL && held->session->stage < MCP_DONE;
    bool can = held->session == NULL || (held->session->stage != MCP_STARTING && held->session->stage != MCP_FAILED);
    if (name == NULL ? can && (!wants_live || is_live)
                     : strcmp(name, held->name) == 0 || (strcmp(name, held->directory) == 0 && is_still(held, name))) {
      held->users++;
      return held;
    }
  }
  return NULL;
}

static struct mcp_held *
open_directory(struct mcp_call *call, const char *path)
{
  char real[PATH_MAX], place[PATH_MAX];
  int fd;
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  if (realpath(path, real) == NULL) {
    mcp_fail(call, "there is no directory %.300s", path);
    return NULL;
  }
  pthread_mutex_lock(&call->server->lock);
  struct mcp_held *held = find(call->server, real, false);
  pthread_mutex_unlock(&call->server->lock);
  if (held != NULL) {
    return held;
  }
  if (!mcp_allows_held(call, real, &fd)) {
    return NULL;
  }
  mcp_place(place, real, fd, NULL);
  if (ct_trace_open(place, &trace, &diag) != 0) {
    mcp_fail(call, "%s%s%.300s", diag.text, fd >= 0 ? ": " : "", fd >= 0 ? real : "");
    if (fd >= 0) {
      close(fd);
    }
    return NULL;
  }
  ct_trace_close(trace);
  return mcp_held_make(call, 't', NULL, real, fd);
}

/* "s1 (live), t1"; gives what is most like the name, or NULL. */
static const char *
list_names(struct mcp_server *server, const char *name, char *list, size_t size, char likely[16])
{
  const char *words[MCP_TRACES_MAX + 1] = {NULL}, *closest = NULL;
  size_t count = 0;
  list[0] = '\0';
  pthread_mutex_lock(&server->lock);
  for (const struct mcp_held *held = server->held; held != NULL && count < MCP_TRACES_MAX; held = held->next) {
    size_t at = strlen(list);
    snprintf(list + at, size - at, "%s%s", count == 0 ? "" : ", ", held->name);
    words[count++] = held->name;
  }
  closest = name != NULL ? ct_closest_word(name, words) : NULL;
  if (closest != NULL) {
    snprintf(likely, 16, "%s", closest);
  }
  pthread_mutex_unlock(&server->lock);
  return closest != NULL ? likely : NULL;
}

static struct mcp_held *
get(struct mcp_call *call, const char *name, bool wants_live)
{
  char list[400], likely[16];
  pthread_mutex_lock(&call->server->lock);
  struct mcp_held *held = find(call->server, name, wants_live);
  pthread_mutex_unlock(&call->server->lock);
  if (held != NULL || call->failed) {
    return held;
  }
  if (name != NULL && !wants_live && (strchr(name, '/') != NULL || access(name, F_OK) == 0)) {
    return open_directory(call, name);
  }
  const char *closest = list_names(call->server, name, list, sizeof(list), likely);
  if (list[0] == '\0') {
    mcp_fail(call, "there is no session or trace%s: launch a program, attach to a process, or name a trace's directory",
             name != NULL ? " of this name" : " yet");
  } else if (name == NULL) {
    mcp_fail(call, "no session is being recorded; there are %s", list);
  } else {
    mcp_fail(call, "there is no session or trace '%.100s'%s%s; there are %s", name, closest != NULL ? "; perhaps " : "",
             closest != NULL ? closest : "", list);
  }
  return NULL;
}

struct mcp_held *
mcp_held_get(struct mcp_call *call, const char *name)
{
  return get(call, name, false);
}

struct mcp_held *
mcp_held_get_live(struct mcp_call *call, const char *name)
{
  struct mcp_held *held = get(call, name, true);
  if (held != NULL && held->session == NULL) {
    mcp_fail(call, "%s is a trace from the disk; this needs a session that is being recorded", held->name);
    mcp_held_put(held);
    return NULL;
  }
  return held;
}

void
mcp_held_put(struct mcp_held *held)
{
  struct mcp_server *server = held->server;
  pthread_mutex_lock(&server->lock);
  bool is_last = --held->users == 0 && held->is_forgotten;
  pthread_mutex_unlock(&server->lock);
  if (is_last) {
    free_held(held);
  }
}

bool
mcp_held_forget(struct mcp_call *call, struct mcp_held *held)
{
  struct mcp_server *server = call->server;
  pthread_mutex_lock(&server->lock);
  bool is_live = held->session != NULL && (held->session->stage < MCP_DONE || held->session->runs_on);
  for (struct mcp_held **at = &server->held; !is_live && *at != NULL; at = &(*at)->next) {
    if (*at == held) {
      *at = held->next;
      held->is_forgotten = true;
      break;
    }
  }
  pthread_mutex_unlock(&server->lock);
  return !is_live ||
         mcp_fail(call, "%s is being recorded, or its program runs: session action=stop end=true first", held->name);
}

/* ---- the end ---- */

static size_t
count_live(const struct mcp_server *server)
{
  size_t live = 0;
  for (const struct mcp_held *held = server->held; held != NULL; held = held->next) {
    live += held->session != NULL && held->session->stage < MCP_DONE;
  }
  return live;
}

/* With the lock: until no session is recorded, or the time is over. */
static bool
await_none(struct mcp_server *server, int seconds)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  while (count_live(server) != 0 && pthread_cond_timedwait(&server->changed, &server->lock, &until) == 0) {
  }
  return count_live(server) == 0;
}

bool
mcp_held_end_all(struct mcp_server *server)
{
  pthread_mutex_lock(&server->lock);
  for (struct mcp_held *held = server->held; held != NULL; held = held->next) {
    struct mcp_session *session = held->session;
    if (session != NULL && session->runs_on && !session->is_kept) {
      mcp_group_signal(&session->group, SIGKILL); /* its recording was stopped before */
    }
  }
  pthread_cond_broadcast(&server->changed);
  bool all = await_none(server, WAITING_SECONDS);
  for (struct mcp_held *held = server->held; !all && held != NULL; held = held->next) {
    if (held->session != NULL && held->session->session != NULL) {
      ct_session_expedite(held->session->session);
    }
  }
  all = all || await_none(server, END_SECONDS);
  pthread_mutex_unlock(&server->lock);
  return all;
}

void
mcp_held_free_all(struct mcp_server *server)
{
  for (const struct mcp_held *held = server->held; held != NULL; held = held->next) {
    if (is_busy(held)) {
      return; /* its keeper, or who reads its output, still has it */
    }
  }
  for (struct mcp_held *next; server->held != NULL; server->held = next) {
    next = server->held->next;
    free_held(server->held);
  }
  mcp_results_free(server);
}
