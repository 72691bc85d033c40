/* SPDX-License-Identifier: MIT */
/*
 * Messages, requests, workers.
 *
 * A request is in the server's list from its arrival to its answer, so that it can be cancelled and its id is not given
 * twice. Who answers it takes it out of the list and frees it. A cancelled one is not answered, as MCP wants it; in a
 * batch nothing stands in its place. Workers are started when a request finds none idle, up to WORKERS, and end when
 * there has been nothing to do for a while.
 */
#include "mcp/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 16, REQUESTS_MAX = 1024, IDLE_SECONDS = 10, BATCH_MAX = 256 };
#define PROGRESS_NS UINT64_C(200000000)

struct mcp_batch {
  pthread_mutex_t lock;
  json_t *answers;
  size_t pending; /* requests without an answer, and one more while the batch is being read */
};

static uint64_t
now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- answers ---- */

/* One of the batch has come to its end, with an answer or (NULL) without. */
static void
batch_done(struct mcp_server *server, struct mcp_batch *batch, json_t *answer)
{
  pthread_mutex_lock(&batch->lock);
  if (answer != NULL) {
    json_array_append_new(batch->answers, answer);
  }
  bool is_last = --batch->pending == 0;
  pthread_mutex_unlock(&batch->lock);
  if (!is_last) {
    return;
  }
  if (json_array_size(batch->answers) != 0) {
    mcp_send(server, batch->answers);
  } else {
    json_decref(batch->answers);
  }
  pthread_mutex_destroy(&batch->lock);
  free(batch);
}

static void
give(struct mcp_server *server, struct mcp_batch *batch, json_t *answer)
{
  if (batch != NULL) {
    batch_done(server, batch, answer);
  } else if (answer != NULL) {
    mcp_send(server, answer);
  }
}

static json_t *
error_message(json_t *id, int code, json_t *text)
{
  return json_pack("{s:s, s:o, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", id, "error", "code", code, "message", text);
}

/* Takes the request out of the list; it is the caller's alone then. */
static void
retire(struct mcp_request *request)
{
  struct mcp_server *server = request->server;
  pthread_mutex_lock(&server->lock);
  struct mcp_request **at = &server->requests;
  while (*at != NULL && *at != request) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = request->next;
    server->request_count--;
  }
  pthread_mutex_unlock(&server->lock);
}

static void
free_request(struct mcp_request *request)
{
  json_decref(request->id);
  json_decref(request->params);
  free(request);
}

/* False: it was cancelled, and has no answer. Nobody can cancel it once it is out of the list. */
static bool
finish(struct mcp_request *request, json_t *answer)
{
  struct mcp_server *server = request->server;
  struct mcp_batch *batch = request->batch;
  retire(request);
  bool is_cancelled =
      atomic_load_explicit(&request->is_cancelled, memory_order_acquire); /* pairs with cancel's release */
  if (is_cancelled) {
    json_decref(answer);
    answer = NULL;
  }
  free_request(request);
  give(server, batch, answer);
  return !is_cancelled;
}

bool
mcp_answer_result(struct mcp_request *request, json_t *result)
{
  json_t *answer = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", request->id, "result",
                             result != NULL ? result : json_object());
  return finish(request, answer);
}

void
mcp_answer_error(struct mcp_request *request, int code, json_t *text)
{
  finish(request, error_message(json_incref(request->id), code, text));
}

/* ---- cancelling, progress ---- */

bool
mcp_is_cancelled(const struct mcp_request *request)
{
  return atomic_load_explicit(&request->is_cancelled, memory_order_acquire) ||
         atomic_load_explicit(&request->server->is_ending, memory_order_acquire); /* pairs with mcp_end_requests */
}

void
mcp_on_cancel(struct mcp_request *request, void (*function)(void *context), void *context)
{
  pthread_mutex_lock(&request->server->lock);
  request->on_cancel = function;
  request->cancel_context = context;
  if (function != NULL && mcp_is_cancelled(request)) {
    function(context);
  }
  pthread_mutex_unlock(&request->server->lock);
}

/* With the server's lock. */
static void
cancel(struct mcp_request *request)
{
  atomic_store_explicit(&request->is_cancelled, true, memory_order_release); /* pairs with mcp_is_cancelled */
  if (request->on_cancel != NULL) {
    request->on_cancel(request->cancel_context);
  }
}

static void
cancel_id(struct mcp_server *server, const json_t *id)
{
  pthread_mutex_lock(&server->lock);
  for (struct mcp_request *request = server->requests; request != NULL; request = request->next) {
    if (json_equal(request->id, id)) {
      cancel(request);
    }
  }
  pthread_cond_broadcast(&server->changed);
  pthread_mutex_unlock(&server->lock);
}

void
mcp_progress(struct mcp_request *request, double done, double total, const char *what)
{
  uint64_t now = now_ns();
  if (request->progress_token == NULL || done <= request->progress || now - request->progress_ns < PROGRESS_NS ||
      mcp_is_cancelled(request)) {
    return;
  }
  request->progress = done;
  request->progress_ns = now;
  json_t *params = json_pack("{s:O, s:f}", "progressToken", request->progress_token, "progress", done);
  if (total > 0) {
    json_object_set_new(params, "total", json_real(total));
  }
  if (request->server->version >= MCP_2025_03_26) {
    json_object_set_new(params, "message", json_string(what));
  }
  mcp_send(request->server,
           json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", "notifications/progress", "params", params));
}

/* ---- workers ---- */

/* The next one that waits, after a while without one NULL. With the lock. */
static struct mcp_request *
take_queued(struct mcp_server *server)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += IDLE_SECONDS;
  server->idle_workers++;
  while (server->queue_first == NULL && !server->is_ending &&
         pthread_cond_timedwait(&server->changed, &server->lock, &until) != ETIMEDOUT) {
  }
  server->idle_workers--;
  struct mcp_request *request = server->queue_first;
  if (request != NULL) {
    server->queue_first = request->next_queued;
    server->queue_count--;
    server->queue_last = server->queue_first != NULL ? server->queue_last : NULL;
  }
  return request;
}

static void *
worker_main(void *argument)
{
  struct mcp_server *server = argument;
  pthread_mutex_lock(&server->lock);
  for (struct mcp_request *request; (request = take_queued(server)) != NULL;) {
    pthread_mutex_unlock(&server->lock);
    request->run(request);
    pthread_mutex_lock(&server->lock);
  }
  server->workers--;
  pthread_cond_broadcast(&server->changed);
  pthread_mutex_unlock(&server->lock);
  return NULL;
}

/*
 * For one more than those in the queue, each of which an idle one may not have taken yet. With the lock. False: none
 * can be started, and there is none.
 */
static bool
have_worker(struct mcp_server *server)
{
  pthread_t thread;
  pthread_attr_t attributes;
  if (server->idle_workers > server->queue_count || server->workers >= WORKERS) {
    return true;
  }
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    server->workers += pthread_create(&thread, &attributes, worker_main, server) == 0;
    pthread_attr_destroy(&attributes);
  }
  return server->workers != 0;
}

void
mcp_enqueue(struct mcp_request *request)
{
  struct mcp_server *server = request->server;
  pthread_mutex_lock(&server->lock);
  bool can = have_worker(server);
  if (can) {
    request->next_queued = NULL;
    if (server->queue_last != NULL) {
      server->queue_last->next_queued = request;
    } else {
      server->queue_first = request;
    }
    server->queue_last = request;
    server->queue_count++;
    pthread_cond_broadcast(&server->changed);
  }
  pthread_mutex_unlock(&server->lock);
  if (!can) {
    mcp_answer_error(request, MCP_BUSY, json_string("no thread can be started for this"));
  }
}

bool
mcp_end_requests(struct mcp_server *server, unsigned timeout_ms)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += timeout_ms / 1000;
  pthread_mutex_lock(&server->lock);
  atomic_store_explicit(&server->is_ending, true, memory_order_release); /* pairs with mcp_is_cancelled */
  for (struct mcp_request *request = server->requests; request != NULL; request = request->next) {
    if (request->on_cancel != NULL) {
      request->on_cancel(request->cancel_context);
    }
  }
  pthread_cond_broadcast(&server->changed);
  while (server->workers != 0 && pthread_cond_timedwait(&server->changed, &server->lock, &until) != ETIMEDOUT) {
  }
  bool all = server->workers == 0;
  pthread_mutex_unlock(&server->lock);
  return all;
}

/* ---- messages ---- */

void
mcp_refuse_message(struct mcp_server *server, int code, const char *text)
{
  mcp_send(server, error_message(json_null(), code, mcp_text(text)));
}

static bool
is_id(const json_t *id)
{
  return json_is_string(id) || json_is_integer(id);
}

static void
refuse(struct mcp_server *server, struct mcp_batch *batch, json_t *id, int code, const char *text)
{
  give(server, batch, error_message(is_id(id) ? json_incref(id) : json_null(), code, mcp_text(text)));
}

/* Puts it into the list. NULL: fine; else why not. */
static const char *
enlist(struct mcp_request *request)
{
  struct mcp_server *server = request->server;
  const char *wrong = NULL;
  pthread_mutex_lock(&server->lock);
  for (const struct mcp_request *other = server->requests; other != NULL && wrong == NULL; other = other->next) {
    wrong = json_equal(other->id, request->id) ? "a request with this id is not answered yet" : NULL;
  }
  if (wrong == NULL && server->request_count >= REQUESTS_MAX) {
    wrong = "too many requests wait for their answers";
  }
  if (wrong == NULL) {
    request->next = server->requests;
    server->requests = request;
    server->request_count++;
  }
  pthread_mutex_unlock(&server->lock);
  return wrong;
}

static void
take_request(struct mcp_server *server, struct mcp_batch *batch, const json_t *message, const char *method)
{
  json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
  struct mcp_request *request = is_id(id) ? calloc(1, sizeof(*request)) : NULL;
  if (request == NULL) {
    refuse(server, batch, id, MCP_INVALID_REQUEST, is_id(id) ? "out of memory" : "an id is a string or an integer");
    return;
  }
  if (params != NULL && !json_is_object(params)) {
    free(request);
    refuse(server, batch, id, MCP_INVALID_PARAMS, "params are an object");
    return;
  }
  const json_t *meta = json_object_get(params, "_meta");
  json_t *token = json_object_get(meta, "progressToken");
  request->server = server;
  request->batch = batch;
  request->id = json_incref(id);
  request->params = params != NULL ? json_incref(params) : json_object();
  request->progress_token = is_id(token) ? token : NULL;
  request->progress = -1;
  const char *wrong = enlist(request);
  if (wrong != NULL) {
    free_request(request);
    refuse(server, batch, id, MCP_INVALID_REQUEST, wrong);
    return;
  }
  mcp_dispatch(request, method);
}

/* One message, alone or of a batch: counts as one of its pending ones. */
static void
take_one(struct mcp_server *server, struct mcp_batch *batch, const json_t *message)
{
  const char *version = mcp_get_text(message, "jsonrpc"), *method = mcp_get_text(message, "method");
  json_t *id = json_object_get(message, "id");
  if (!json_is_object(message) || version == NULL || strcmp(version, "2.0") != 0) {
    refuse(server, batch, id, MCP_INVALID_REQUEST, "not a message of JSON-RPC 2.0");
  } else if (method != NULL && id != NULL) {
    take_request(server, batch, message, method);
  } else if (method != NULL) {
    const json_t *params = json_object_get(message, "params");
    if (strcmp(method, "notifications/cancelled") == 0 && is_id(json_object_get(params, "requestId"))) {
      cancel_id(server, json_object_get(params, "requestId"));
    } else {
      mcp_notified(server, method, params);
    }
    give(server, batch, NULL);
  } else if (json_object_get(message, "result") != NULL || json_object_get(message, "error") != NULL) {
    give(server, batch, NULL); /* to a request that we have not made */
  } else {
    refuse(server, batch, id, MCP_INVALID_REQUEST, "there is no method");
  }
}

static void
take_batch(struct mcp_server *server, const json_t *messages)
{
  struct mcp_batch *batch = calloc(1, sizeof(*batch));
  size_t i, count = json_array_size(messages);
  json_t *one;
  if (server->version != MCP_2025_03_26 || count == 0 || count > BATCH_MAX || batch == NULL) {
    free(batch);
    mcp_refuse_message(server, MCP_INVALID_REQUEST,
                       count == 0          ? "an empty batch"
                       : count > BATCH_MAX ? "a batch has at most 256 messages"
                                           : "batches are part of protocol version 2025-03-26 alone");
    return;
  }
  pthread_mutex_init(&batch->lock, NULL);
  batch->answers = json_array();
  batch->pending = count + 1;
  json_array_foreach((json_t *)messages, i, one)
  {
    const char *method = mcp_get_text(one, "method");
    if (method != NULL && strcmp(method, "initialize") == 0) {
      refuse(server, batch, json_object_get(one, "id"), MCP_INVALID_REQUEST, "initialize is no part of a batch");
    } else {
      take_one(server, batch, one);
    }
  }
  batch_done(server, batch, NULL);
}

void
mcp_take_message(struct mcp_server *server, json_t *message)
{
  if (json_is_array(message)) {
    take_batch(server, message);
  } else {
    take_one(server, NULL, message);
  }
  json_decref(message);
}
