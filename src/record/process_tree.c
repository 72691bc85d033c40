/* SPDX-License-Identifier: MIT */
/* See process_tree.h. Locks: tree->lock before a session's guard; neither is held while a session is closed. */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/json.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIVE_MAX   2000     /* children at a time: each takes threads and descriptors */
#define ENDING_MS  20000    /* for all to be detached */
#define LISTED_MAX 131072u  /* children that are listed, each by itself, as not recorded */
#define LOST_MOST  4194304u /* of one image: there are no more processes */

struct ct_process_tree {
  struct ct_session *first;
  const struct ct_tree_sessions *calls;
  struct ct_plans *plans;
  pthread_mutex_t lock;
  struct ct_session **sessions; /* of children, not freed yet */
  size_t count, capacity;
  pthread_cond_t unpinned;
  json_t *children;
  _Atomic uint32_t generation;
  bool ending;
  uint64_t ending_ns; /* since then */
  uint64_t lost;      /* children that are not in the list, and not recorded */
  bool amended;       /* since the first one's manifest was written */
};

struct ct_process_tree *
ct_process_tree_create(struct ct_session *first, const struct ct_tree_sessions *sessions)
{
  struct ct_process_tree *tree = calloc(1, sizeof(*tree));
  if (tree == NULL) {
    return NULL;
  }
  tree->first = first;
  tree->calls = sessions;
  tree->plans = ct_plans_create(first->options.int3, first->options.no_cache, first->options.debuginfod);
  tree->children = json_array();
  pthread_mutex_init(&tree->lock, NULL);
  pthread_cond_init(&tree->unpinned, NULL);
  if (tree->plans == NULL || tree->children == NULL) {
    ct_process_tree_free(tree);
    return NULL;
  }
  return tree;
}

void
ct_process_tree_free(struct ct_process_tree *tree)
{
  if (tree == NULL) {
    return;
  }
  ct_select_end(tree->first->options.selection);
  ct_plans_free(tree->plans);
  json_decref(tree->children);
  pthread_mutex_destroy(&tree->lock);
  pthread_cond_destroy(&tree->unpinned);
  free(tree->sessions);
  free(tree);
}

struct ct_hook_costs
tree_costs(const struct ct_process_tree *tree)
{
  return tree->first->recording.manifest.costs; /* it was there before there were children */
}

struct ct_plans *
ct_process_tree_plans(struct ct_process_tree *tree)
{
  return tree->plans;
}

const struct ct_session *
tree_first(const struct ct_process_tree *tree)
{
  return tree->first;
}

/* ---- the list ---- */

static bool
is_listed(const struct ct_process_tree *tree, pid_t pid)
{
  size_t i;
  json_t *child;
  json_array_foreach(tree->children, i, child)
  {
    if (json_integer_value(json_object_get(child, "pid")) == pid) {
      return true;
    }
  }
  return false;
}

static void
count_not_recorded(struct ct_process_tree *tree, uint64_t count)
{
  struct ct_session *first = tree->first;
  pthread_mutex_lock(&first->sync.guard);
  first->sync.status.children_lost += count;
  pthread_mutex_unlock(&first->sync.guard);
}

/* count: as the target says. */
void
tree_count_lost(struct ct_process_tree *tree, uint64_t count)
{
  count = count < LOST_MOST ? count : LOST_MOST;
  if (count != 0) {
    pthread_mutex_lock(&tree->lock);
    tree->lost += count;
    tree->amended = true;
    pthread_mutex_unlock(&tree->lock);
    count_not_recorded(tree, count);
  }
}

void
tree_list_child(struct ct_process_tree *tree, const struct ct_child_init *child_init, const char *directory,
                const char *why_not)
{
  json_t *child = json_object();
  bool is_new = false;
  const char *name = directory != NULL ? strrchr(directory, '/') : NULL;
  json_object_set_new(child, "pid", json_integer(child_init->pid));
  json_object_set_new(child, "parent", json_integer(child_init->parent));
  json_object_set_new(child, "born", json_string(child_init->kind == CT_HANDSHAKE_FORK ? "fork" : "vfork"));
  json_object_set_new(child, "directory", name != NULL ? ct_json_string(name + 1) : json_null());
  if (why_not != NULL) {
    json_object_set_new(child, "not_recorded_because", ct_json_string(why_not));
  }
  pthread_mutex_lock(&tree->lock);
  if (why_not != NULL && json_array_size(tree->children) >= LISTED_MAX) {
    json_decref(child);
    tree->lost++;
    tree->amended = is_new = true;
  } else if (why_not != NULL && is_listed(tree, child_init->pid)) { /* it comes again at its next exec */
    json_decref(child);
  } else {
    json_array_append_new(tree->children, child);
    tree->amended = true;
    is_new = why_not != NULL;
  }
  pthread_mutex_unlock(&tree->lock);
  if (is_new) {
    count_not_recorded(tree, 1);
  }
}

void
tree_put(struct ct_process_tree *tree, json_t *manifest)
{
  pthread_mutex_lock(&tree->lock);
  json_object_set_new(manifest, "children", json_deep_copy(tree->children));
  json_object_set_new(manifest, "children_lost", json_integer((json_int_t)tree->lost));
  tree->amended = false;
  pthread_mutex_unlock(&tree->lock);
}

void
tree_amend(struct ct_session *first)
{
  char path[PATH_MAX], fresh[PATH_MAX];
  struct ct_process_tree *tree = first->node.tree;
  if (tree == NULL || first->node.is_child || !tree->amended) {
    return;
  }
  snprintf(path, sizeof(path), "%s/manifest.json", first->options.directory);
  snprintf(fresh, sizeof(fresh), "%s/manifest.json.new", first->options.directory);
  json_t *manifest = json_load_file(path, 0, NULL);
  if (manifest == NULL) {
    return;
  }
  tree_put(tree, manifest);
  unlink(fresh);
  int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0 || json_dumpfd(manifest, fd, JSON_INDENT(2)) != 0 || rename(fresh, path) != 0) {
    unlink(fresh);
  }
  if (fd >= 0) {
    close(fd);
  }
  json_decref(manifest);
}

void
tree_count_live(struct ct_process_tree *tree, int step)
{
  struct ct_session *first = tree->first;
  pthread_mutex_lock(&first->sync.guard);
  first->sync.status.children += step > 0;
  first->sync.status.children_live += (size_t)step;
  pthread_cond_broadcast(&first->sync.changed);
  pthread_mutex_unlock(&first->sync.guard);
}

void
tree_child_is_over(struct ct_session *session)
{
  struct ct_session *first = session->node.tree->first;
  pthread_mutex_lock(&session->sync.guard);
  bool already = session->node.over;
  session->node.over = true;
  pthread_mutex_unlock(&session->sync.guard);
  if (!already) {
    tree_count_live(session->node.tree, -1);
    session_ring(first);
  }
}

/* Takes a session out of the list that nobody uses, any or one that is over; NULL: there is none. Locked. */
static struct ct_session *
take_unpinned(struct ct_process_tree *tree, bool any)
{
  struct ct_session *taken = NULL;
  for (size_t i = 0; i < tree->count && taken == NULL; i++) {
    struct ct_session *session = tree->sessions[i];
    pthread_mutex_lock(&session->sync.guard);
    if ((any || session->node.over) && session->node.pins == 0) {
      taken = session;
      tree->sessions[i] = tree->sessions[--tree->count];
    }
    pthread_mutex_unlock(&session->sync.guard);
  }
  return taken;
}

/* any: waits for those that are in use. */
static struct ct_session *
take_session(struct ct_process_tree *tree, bool any)
{
  pthread_mutex_lock(&tree->lock);
  struct ct_session *taken = take_unpinned(tree, any);
  while (any && taken == NULL && tree->count != 0) {
    pthread_cond_wait(&tree->unpinned, &tree->lock);
    taken = take_unpinned(tree, any);
  }
  pthread_mutex_unlock(&tree->lock);
  return taken;
}

static void
close_child(struct ct_session *first, struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_session_status status = {.struct_size = sizeof(status)};
  int code = first->node.tree->calls->close(session, &status, &diag);
  if (code != 0 && first->recording.result == 0) {
    first->recording.result = code;
    first->recording.why = diag;
  }
  if (status.note[0] != '\0') {
    session_note_child(first, status.note);
  }
  pthread_mutex_lock(&first->sync.guard);
  first->sync.status.child_events += status.events;
  first->sync.status.child_dropped += status.dropped;
  for (unsigned reason = 0; reason < CT_DROP_COUNT; reason++) {
    first->sync.status.child_dropped_by[reason] += status.dropped_by[reason];
  }
  pthread_mutex_unlock(&first->sync.guard);
}

void
tree_free_ended(struct ct_session *first)
{
  struct ct_session *session;
  while ((session = take_session(first->node.tree, false)) != NULL) {
    close_child(first, session);
  }
}

void
tree_end(struct ct_session *first)
{
  struct ct_session *session;
  pthread_mutex_lock(&first->node.tree->lock);
  if (!first->node.tree->ending) {
    first->node.tree->ending_ns = ct_now_ns();
  }
  first->node.tree->ending = true;
  pthread_mutex_unlock(&first->node.tree->lock);
  while ((session = take_session(first->node.tree, true)) != NULL) {
    close_child(first, session);
  }
}

void
tree_note(struct ct_session *session, const char *text)
{
  session_note(session->node.tree->first, text);
}

bool
tree_is_ending(struct ct_process_tree *tree)
{
  pthread_mutex_lock(&tree->lock);
  bool is = tree->ending;
  pthread_mutex_unlock(&tree->lock);
  return is;
}

int
tree_ending_ms(struct ct_process_tree *tree, int most, int least)
{
  pthread_mutex_lock(&tree->lock);
  uint64_t since = tree->ending ? (ct_now_ns() - tree->ending_ns) / 1000000u : 0;
  pthread_mutex_unlock(&tree->lock);
  int left = since < ENDING_MS ? (int)(ENDING_MS - since) : 0;
  return left > most ? most : left < least ? least : left;
}

bool
tree_knows(struct ct_process_tree *tree, pid_t pid)
{
  bool knows = false;
  pthread_mutex_lock(&tree->lock);
  for (size_t i = 0; i < tree->count && !knows; i++) {
    knows = tree->sessions[i]->node.child_pid == pid;
  }
  pthread_mutex_unlock(&tree->lock);
  return knows;
}

/* ---- changes ---- */

uint32_t
tree_generation(const struct ct_process_tree *tree)
{
  return atomic_load_explicit(&tree->generation, memory_order_acquire);
}

void
tree_change(struct ct_process_tree *tree)
{
  atomic_fetch_add_explicit(&tree->generation, 1, memory_order_release);
}

int
tree_each(struct ct_process_tree *tree, int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument)
{
  pthread_mutex_lock(&tree->lock);
  size_t count = tree->count;
  struct ct_session **pinned = calloc(count + 1, sizeof(struct ct_session *));
  for (size_t i = 0; pinned != NULL && i < count; i++) {
    pinned[i] = tree->sessions[i];
    pinned[i]->node.pins++;
  }
  pthread_mutex_unlock(&tree->lock);
  for (size_t i = 0; pinned != NULL && i < count; i++) {
    session_command(pinned[i], CT_ERROR_HOOK, run, argument, NULL);
    pthread_mutex_lock(&tree->lock);
    pinned[i]->node.pins--;
    pthread_cond_broadcast(&tree->unpinned);
    pthread_mutex_unlock(&tree->lock);
  }
  free(pinned);
  return pinned != NULL || count == 0 ? 0 : CT_ENOMEM;
}

/* ---- who there is ---- */

static int
compare_children(const void *a, const void *b)
{
  pid_t x = ((const struct ct_session_child *)a)->pid, y = ((const struct ct_session_child *)b)->pid;
  return (x > y) - (x < y);
}

/* *out goes to free. */
static int
collect_children(struct ct_process_tree *tree, struct ct_session_child **out, size_t *count)
{
  pthread_mutex_lock(&tree->lock);
  *count = 0;
  *out = calloc(tree->count + 1, sizeof(**out));
  for (size_t i = 0; *out != NULL && i < tree->count; i++) {
    struct ct_session *session = tree->sessions[i];
    pthread_mutex_lock(&session->sync.guard);
    const struct ct_session_status *status = &session->sync.status;
    if (!status->ended && !session->node.over) {
      (*out)[(*count)++] =
          (struct ct_session_child){sizeof(**out),  session->node.child_pid, session->node.parent, status->state,
                                    status->events, status->dropped,         status->functions,    status->hooked};
    }
    pthread_mutex_unlock(&session->sync.guard);
  }
  pthread_mutex_unlock(&tree->lock);
  return *out != NULL ? 0 : CT_ENOMEM;
}

int
ct_session_children(struct ct_session *session, ct_session_child_visit *visit, void *context)
{
  struct ct_session_child *children;
  size_t count;
  if (session->node.tree == NULL) {
    return 0;
  }
  int code = collect_children(session->node.tree, &children, &count);
  if (code == 0) {
    qsort(children, count, sizeof(*children), compare_children);
    for (size_t i = 0; i < count; i++) {
      visit(context, &children[i]);
    }
    free(children);
  }
  return code;
}

/* ---- child start-up ---- */

/* DIR/process-PID, or with a number after it. */
static void
name_directory(const struct ct_process_tree *tree, pid_t pid, char *path, size_t size)
{
  const char *directory = tree->first->options.directory;
  snprintf(path, size, "%s/process-%d", directory, (int)pid);
  for (unsigned n = 2; access(path, F_OK) == 0; n++) {
    snprintf(path, size, "%s/process-%d-%u", directory, (int)pid, n);
  }
}

int
tree_add_session(struct ct_process_tree *tree, struct ct_child_init *child_init)
{
  struct ct_session_options options = tree->first->options;
  struct ct_session *session;
  char directory[PATH_MAX];
  int code = 0;
  pthread_mutex_lock(&tree->lock);
  if (tree->ending || tree->count >= LIVE_MAX) {
    code = CT_ERANGE;
  } else if (tree->count == tree->capacity) {
    size_t grown = tree->capacity == 0 ? 32 : tree->capacity * 2;
    struct ct_session **sessions = realloc(tree->sessions, grown * sizeof(*sessions));
    code = sessions == NULL ? CT_ENOMEM : 0;
    tree->sessions = sessions != NULL ? sessions : tree->sessions;
    tree->capacity = sessions != NULL ? grown : tree->capacity;
  }
  if (code == 0) {
    name_directory(tree, child_init->pid, directory, sizeof(directory));
    options.directory = directory;
    uint32_t ring = options.child_ring_mib != 0 ? options.child_ring_mib : CT_CHILD_RING_MIB_DEFAULT;
    options.ring_mib = ring < tree->first->options.ring_mib ? ring : tree->first->options.ring_mib;
    code = tree->calls->create(&options, tree, child_init, &session, NULL);
  }
  if (code == 0) {
    tree->sessions[tree->count++] = session;
  }
  pthread_mutex_unlock(&tree->lock);
  return code;
}
