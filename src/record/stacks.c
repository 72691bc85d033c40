/* SPDX-License-Identifier: MIT */
/*
 * See stacks.h.
 *
 * Threads: all but ct_stacks_create .. ct_stacks_begin and ct_stacks_free (the session's) is done by worker and drain,
 * under the lock, one thread's stack at a time. What the session knows of modules changes while the process runs, so
 * there is a copy of what is needed.
 *
 * Into the stream go the frames of functions that are hooked for more than points, as far out as return-address slots
 * (where return addresses lie) rise on one stack: the drain knows by them when a frame is gone. Frames of runtimes that
 * look after their stacks themselves (Go) are in stacks.json alone.
 */
#include "record/stacks.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/worker.h"
#include "plan/plan.h"
#include "process/ids.h"
#include "record/frames.h"
#include "record/manifest.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
  FRAMES_MAX = 256,
  COPY_MAX = 256 << 10,      /* bytes of a stack */
  COPY_MAX_ALL = 64 << 20,   /* of all */
  RED_ZONE = 128,            /* below the stack pointer */
  CHECK_NS_MAX = 2000000000, /* how long is looked at stacks, all together */
};

struct stack {
  pid_t tid;
  struct ct_registers registers;
  int64_t system_call; /* -1: none */
  uint8_t *bytes;
  struct ct_stack_copy copy;
  struct ct_stack_frame *frames; /* since it was looked at */
  size_t count;
  const char *why; /* there are no more of them, NULL: there are, or the outermost one is there */
  char name[32];
  bool done;
};

struct ct_stacks {
  const struct ct_process *process;
  struct ct_trace_writer *writer;
  struct ct_backtracer *tracer;
  struct ct_modules modules; /* a copy of what is looked at here; first_fn is right */
  uint32_t **ids;            /* of each module, when it was needed: the id of each function of its plan */
  struct stack *items;
  size_t count;
  size_t bytes;
  uint32_t *tids; /* as the threads call themselves */
  uint64_t tsc;   /* when they were resumed */
  uint64_t deadline;
  pthread_mutex_t lock;
  pthread_t worker;
  bool running;
};

struct ct_stacks *
ct_stacks_create(const struct ct_process *process, struct ct_trace_writer *writer)
{
  struct ct_stacks *stacks = calloc(1, sizeof(*stacks));
  if (stacks == NULL || ct_backtracer_open(process, NULL, &stacks->tracer, NULL) != 0) {
    free(stacks);
    return NULL;
  }
  stacks->process = process;
  stacks->writer = writer;
  pthread_mutex_init(&stacks->lock, NULL);
  ct_backtracer_prepare(stacks->tracer);
  return stacks;
}

/* ---- while the process is stopped ---- */

static void
copy_stack(struct ct_stacks *stacks, struct stack *stack, const struct ct_mappings *mappings)
{
  uint64_t sp = stack->registers.values[CT_REGISTER_RSP];
  const struct ct_mapping *mapping = ct_mappings_at(mappings, sp);
  if (mapping == NULL || !mapping->readable) {
    return;
  }
  uint64_t start = sp - mapping->start > RED_ZONE ? (sp - RED_ZONE) & ~(uint64_t)7 : mapping->start;
  size_t size = mapping->end - start < COPY_MAX ? (size_t)(mapping->end - start) : COPY_MAX;
  stack->copy = (struct ct_stack_copy){.start = start, .end = mapping->end};
  if (stacks->bytes + size <= COPY_MAX_ALL && (stack->bytes = malloc(size)) != NULL &&
      ct_process_read(stacks->process, start, stack->bytes, size) == 0) {
    stack->copy.bytes = stack->bytes;
    stack->copy.size = size;
    stacks->bytes += size;
  }
}

void
ct_stacks_copy(struct ct_stacks *stacks, const struct ct_stopped *stopped)
{
  struct ct_mappings mappings;
  if (ct_process_mappings(stacks->process->pid, &mappings) != 0) {
    return;
  }
  stacks->items = calloc(stopped->thread_count + 1, sizeof(*stacks->items));
  for (size_t i = 0; stacks->items != NULL && i < stopped->thread_count; i++) {
    struct stack *stack = &stacks->items[stacks->count];
    if (ct_stopped_registers(stopped, i, &stack->registers, &stack->system_call) == 0) {
      stack->tid = stopped->threads[i].tid;
      copy_stack(stacks, stack, &mappings);
      stacks->count++;
    }
  }
  ct_mappings_free(&mappings);
}

void
ct_stacks_know(struct ct_stacks *stacks, const struct ct_modules *modules)
{
  stacks->modules.items = calloc(modules->count + 1, sizeof(*stacks->modules.items));
  stacks->ids = calloc(modules->count + 1, sizeof(*stacks->ids));
  for (size_t i = 0; stacks->modules.items != NULL && stacks->ids != NULL && i < modules->count; i++) {
    const struct ct_module *from = &modules->items[i];
    struct ct_module *to = &stacks->modules.items[stacks->modules.count];
    if (!from->loaded || from->plan == NULL) {
      continue;
    }
    *to = (struct ct_module){.path = strdup(from->path),
                             .base = from->base,
                             .plan = from->plan,
                             .first_fn = from->first_fn,
                             .runtime = from->runtime,
                             .loaded = true};
    to->modes = from->modes != NULL ? malloc((from->plan->count + 1) * sizeof(*to->modes)) : NULL;
    if (to->modes != NULL) {
      memcpy(to->modes, from->modes, from->plan->count * sizeof(*to->modes));
    }
    if (to->path == NULL) {
      free(to->modes);
      break;
    }
    stacks->modules.count++;
  }
}

/* ---- when it runs again ---- */

/* Under the lock. */
static void
look_at(struct ct_stacks *stacks, struct stack *stack)
{
  struct ct_stack_frame frames[FRAMES_MAX];
  if (stack->done || ct_now_ns() > stacks->deadline) {
    return;
  }
  stack->count = ct_backtrace(stacks->tracer, &stack->registers, &stack->copy, frames, FRAMES_MAX, &stack->why);
  stack->frames = malloc((stack->count + 1) * sizeof(*frames));
  if (stack->frames == NULL) {
    stack->count = 0;
  } else {
    memcpy(stack->frames, frames, stack->count * sizeof(*frames));
  }
  ct_process_thread_name(stacks->process->pid, stack->tid, stack->name, sizeof(stack->name));
  stack->done = true;
}

static const uint32_t *
ids_of(struct ct_stacks *stacks, const struct ct_module *module)
{
  uint32_t **ids = &stacks->ids[module - stacks->modules.items];
  const struct ct_plan *plan = module->plan;
  if (*ids == NULL && (*ids = malloc((plan->count + 1) * sizeof(**ids))) != NULL) {
    uint32_t fn = module->first_fn;
    for (size_t i = 0; i < plan->count; i++) {
      (*ids)[i] = fn;
      fn += plan->functions[i].refusal == CT_REFUSED_NOT;
    }
  }
  return *ids;
}

/* The id of the frame's function, if it has hooks that report frames; UINT32_MAX: it has not. */
static uint32_t
id_of(struct ct_stacks *stacks, const struct ct_stack_frame *frame, bool *is_strange)
{
  const struct ct_module *module = ct_module_at(&stacks->modules, ct_frame_inside(frame));
  if (module == NULL || module->modes == NULL) {
    return UINT32_MAX;
  }
  *is_strange |= module->runtime != 0;
  const struct ct_planned *function = ct_function_at(module->plan, ct_frame_inside(frame) - module->base);
  const uint32_t *ids = ids_of(stacks, module);
  if (function == NULL || ids == NULL) {
    return UINT32_MAX;
  }
  size_t i = (size_t)(function - module->plan->functions);
  uint8_t mode = module->modes[i] & CT_SORT_MODE_MASK;
  return mode == CT_HOOK_FULL + 1 || mode == CT_HOOK_ENTER + 1 ? ids[i] : UINT32_MAX;
}

/* For the drain: outermost first. */
static size_t
frames_of(void *context, size_t n, struct ct_drain_frame *out, size_t max)
{
  struct ct_stacks *stacks = context;
  struct stack *stack = &stacks->items[n];
  size_t count = 0;
  bool is_strange = false;
  pthread_mutex_lock(&stacks->lock);
  look_at(stacks, stack);
  uint64_t last = 0;
  for (size_t i = 0; i + 1 < stack->count && count < max; i++) {
    uint64_t ra_slot = stack->frames[i + 1].sp - sizeof(ra_slot);
    if (ra_slot <= last || ra_slot < stack->copy.start || ra_slot >= stack->copy.end) {
      break;
    }
    last = ra_slot;
    uint32_t fn = id_of(stacks, &stack->frames[i], &is_strange);
    if (fn != UINT32_MAX) {
      out[count++] = (struct ct_drain_frame){.fn = fn, .ra_slot = (uint32_t)ra_slot};
    }
  }
  pthread_mutex_unlock(&stacks->lock);
  for (size_t i = 0; i < count / 2; i++) {
    struct ct_drain_frame other = out[i];
    out[i] = out[count - 1 - i];
    out[count - 1 - i] = other;
  }
  return is_strange ? 0 : count;
}

static json_t *
stack_json(struct ct_stacks *stacks, size_t n)
{
  const struct stack *stack = &stacks->items[n];
  json_t *json = json_object(), *list = json_array();
  json_object_set_new(json, "tid", json_integer(stacks->tids[n]));
  json_object_set_new(json, "thread_name", ct_json_string(stack->name));
  if (stack->system_call >= 0) {
    json_object_set_new(json, "system_call", json_integer(stack->system_call));
  }
  for (size_t i = 0; i < stack->count; i++) {
    json_array_append_new(list, ct_frame_json(&stacks->modules, stacks->tracer, &stack->frames[i]));
  }
  json_object_set_new(json, "backtrace", list);
  if (stack->count == FRAMES_MAX) {
    json_object_set_new(json, "cut", json_true());
  }
  const char *why = !stack->done                ? "it was not looked at in time"
                    : stack->copy.bytes == NULL ? "its stack could not be copied"
                                                : stack->why;
  if (why != NULL) {
    json_object_set_new(json, "ends_because", ct_json_string(why));
  }
  return json;
}

static void *
worker_main(void *context)
{
  struct ct_stacks *stacks = context;
  json_t *json = json_object(), *threads = json_array();
  for (size_t i = 0; i < stacks->count; i++) {
    pthread_mutex_lock(&stacks->lock);
    look_at(stacks, &stacks->items[i]);
    json_array_append_new(threads, stack_json(stacks, i));
    pthread_mutex_unlock(&stacks->lock);
  }
  json_object_set_new(json, "version", json_integer(1));
  json_object_set_new(json, "pid", json_integer(stacks->process->pid));
  json_object_set_new(json, "tsc", json_integer((json_int_t)stacks->tsc));
  json_object_set_new(json, "threads", threads);
  /* A failure is one of what comes besides: the disk is full, as blocks will find too. */
  (void)ct_trace_writer_stacks(stacks->writer, json);
  json_decref(json);
  pthread_mutex_lock(&stacks->lock);
  for (size_t i = 0; i < stacks->count; i++) {
    stacks->items[i].done = true; /* or it is too late */
    free(stacks->items[i].bytes);
    stacks->items[i].bytes = NULL;
  }
  ct_backtracer_close(stacks->tracer); /* it has many files open */
  stacks->tracer = NULL;
  pthread_mutex_unlock(&stacks->lock);
  return NULL;
}

void
ct_stacks_begin(struct ct_stacks *stacks, struct ct_drain *drain)
{
  bool elsewhere = false;
  sigset_t all, old;
  stacks->tids = calloc(stacks->count + 1, sizeof(*stacks->tids));
  if (stacks->tids == NULL || stacks->modules.items == NULL || stacks->ids == NULL) {
    return;
  }
  (void)ct_process_own_id(stacks->process->pid, &elsewhere);
  for (size_t i = 0; i < stacks->count; i++) {
    pid_t tid = stacks->items[i].tid;
    stacks->tids[i] = (uint32_t)(elsewhere ? ct_thread_own_id(stacks->process->pid, tid) : tid);
  }
  stacks->deadline = ct_now_ns() + CHECK_NS_MAX;
  stacks->tsc = __builtin_ia32_rdtsc();
  struct ct_drain_stacks source = {
      .tsc = stacks->tsc, .tids = stacks->tids, .count = stacks->count, .frames = frames_of, .context = stacks};
  ct_drain_stacks(drain, &source);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  stacks->running = ct_worker_create(&stacks->worker, NULL, worker_main, stacks) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
ct_stacks_free(struct ct_stacks *stacks)
{
  if (stacks == NULL) {
    return;
  }
  if (stacks->running) {
    pthread_join(stacks->worker, NULL);
  }
  for (size_t i = 0; i < stacks->count; i++) {
    free(stacks->items[i].bytes);
    free(stacks->items[i].frames);
  }
  for (size_t i = 0; i < stacks->modules.count; i++) {
    free(stacks->modules.items[i].path);
    free(stacks->modules.items[i].modes);
    free(stacks->ids[i]);
  }
  ct_backtracer_close(stacks->tracer);
  pthread_mutex_destroy(&stacks->lock);
  free(stacks->modules.items);
  free(stacks->ids);
  free(stacks->items);
  free(stacks->tids);
  free(stacks);
}
