/* SPDX-License-Identifier: MIT */
/* See family.h. Locks: family->lock before a session's guard; neither is held while a session is closed. */
#include "record/session_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIVE_MAX 2000 /* children at a time: each takes threads and descriptors */

struct ct_family {
  struct ct_session *first;
  struct ct_plans *plans;
  pthread_mutex_t lock;
  struct ct_session **sessions; /* of children, not freed yet */
  size_t count, capacity;
  pthread_cond_t unpinned;
  json_t *children;
  uint32_t generation;
  bool ending;
  bool amended; /* since the first one's manifest was written */
};

struct ct_family *
ct_family_create(struct ct_session *first)
{
  struct ct_family *family = calloc(1, sizeof(*family));
  if (family == NULL) {
    return NULL;
  }
  family->first = first;
  family->plans = ct_plans_create(first->options.int3, first->options.no_cache);
  family->children = json_array();
  pthread_mutex_init(&family->lock, NULL);
  pthread_cond_init(&family->unpinned, NULL);
  if (family->plans == NULL || family->children == NULL) {
    ct_family_free(family);
    return NULL;
  }
  return family;
}

void
ct_family_free(struct ct_family *family)
{
  if (family == NULL) {
    return;
  }
  ct_select_end(family->first->options.selection);
  ct_plans_free(family->plans);
  json_decref(family->children);
  pthread_mutex_destroy(&family->lock);
  pthread_cond_destroy(&family->unpinned);
  free(family->sessions);
  free(family);
}

struct ct_plans *
ct_family_plans(struct ct_family *family)
{
  return family->plans;
}

/* ---- the list ---- */

static bool
is_listed(const struct ct_family *family, pid_t pid)
{
  size_t i;
  json_t *child;
  json_array_foreach(family->children, i, child)
  {
    if (json_integer_value(json_object_get(child, "pid")) == pid) {
      return true;
    }
  }
  return false;
}

void
family_list(struct ct_family *family, const struct ct_birth *birth, const char *directory, const char *why_not)
{
  json_t *child = json_object();
  const char *name = directory != NULL ? strrchr(directory, '/') : NULL;
  json_object_set_new(child, "pid", json_integer(birth->pid));
  json_object_set_new(child, "parent", json_integer(birth->parent));
  json_object_set_new(child, "born", json_string(birth->kind == CT_VISIT_FORK ? "fork" : "vfork"));
  json_object_set_new(child, "directory", name != NULL ? ct_manifest_text(name + 1) : json_null());
  if (why_not != NULL) {
    json_object_set_new(child, "not_recorded_because", ct_manifest_text(why_not));
  }
  pthread_mutex_lock(&family->lock);
  if (why_not != NULL && is_listed(family, birth->pid)) { /* it comes again at its next exec */
    json_decref(child);
  } else {
    json_array_append_new(family->children, child);
    family->amended = true;
  }
  pthread_mutex_unlock(&family->lock);
}

json_t *
family_json(struct ct_family *family)
{
  pthread_mutex_lock(&family->lock);
  json_t *copy = json_deep_copy(family->children);
  family->amended = false;
  pthread_mutex_unlock(&family->lock);
  return copy;
}

void
family_amend(struct ct_session *first)
{
  char path[PATH_MAX], fresh[PATH_MAX];
  struct ct_family *family = first->family;
  if (family == NULL || first->is_child || !family->amended) {
    return;
  }
  snprintf(path, sizeof(path), "%s/manifest.json", first->options.directory);
  snprintf(fresh, sizeof(fresh), "%s/manifest.json.new", first->options.directory);
  json_t *manifest = json_load_file(path, 0, NULL);
  if (manifest == NULL) {
    return;
  }
  json_object_set_new(manifest, "children", family_json(family));
  if (json_dump_file(manifest, fresh, JSON_INDENT(2)) != 0 || rename(fresh, path) != 0) {
    unlink(fresh);
  }
  json_decref(manifest);
}

void
family_count_live(struct ct_family *family, int step)
{
  struct ct_session *first = family->first;
  pthread_mutex_lock(&first->guard);
  first->status.children += step > 0;
  first->status.children_live += (size_t)step;
  pthread_cond_broadcast(&first->changed);
  pthread_mutex_unlock(&first->guard);
}

void
family_is_over(struct ct_session *session)
{
  struct ct_session *first = session->family->first;
  pthread_mutex_lock(&session->guard);
  bool already = session->over;
  session->over = true;
  pthread_mutex_unlock(&session->guard);
  if (!already) {
    family_count_live(session->family, -1);
    session_ring(first);
  }
}

/* Takes a session out of the list that nobody uses, any or one that is over; NULL: there is none. Locked. */
static struct ct_session *
take_unpinned(struct ct_family *family, bool any)
{
  struct ct_session *taken = NULL;
  for (size_t i = 0; i < family->count && taken == NULL; i++) {
    struct ct_session *session = family->sessions[i];
    pthread_mutex_lock(&session->guard);
    if ((any || session->over) && session->pins == 0) {
      taken = session;
      family->sessions[i] = family->sessions[--family->count];
    }
    pthread_mutex_unlock(&session->guard);
  }
  return taken;
}

/* any: waits for those that are in use. */
static struct ct_session *
take_session(struct ct_family *family, bool any)
{
  pthread_mutex_lock(&family->lock);
  struct ct_session *taken = take_unpinned(family, any);
  while (any && taken == NULL && family->count != 0) {
    pthread_cond_wait(&family->unpinned, &family->lock);
    taken = take_unpinned(family, any);
  }
  pthread_mutex_unlock(&family->lock);
  return taken;
}

static void
close_child(struct ct_session *first, struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_session_status status = {.struct_size = sizeof(status)};
  int code = ct_session_close(session, &status, &diag);
  if (code != 0 && first->result == 0) {
    first->result = code;
    first->why = diag;
  }
  if (status.note[0] != '\0') {
    session_note(first, status.note);
  }
  pthread_mutex_lock(&first->guard);
  first->status.child_events += status.events;
  first->status.child_dropped += status.dropped;
  pthread_mutex_unlock(&first->guard);
}

void
family_sweep(struct ct_session *first)
{
  struct ct_session *session;
  while ((session = take_session(first->family, false)) != NULL) {
    close_child(first, session);
  }
}

void
family_end(struct ct_session *first)
{
  struct ct_session *session;
  pthread_mutex_lock(&first->family->lock);
  first->family->ending = true;
  pthread_mutex_unlock(&first->family->lock);
  while ((session = take_session(first->family, true)) != NULL) {
    close_child(first, session);
  }
}

void
family_note(struct ct_session *session, const char *text)
{
  session_note(session->family->first, text);
}

bool
family_is_ending(struct ct_family *family)
{
  pthread_mutex_lock(&family->lock);
  bool is = family->ending;
  pthread_mutex_unlock(&family->lock);
  return is;
}

bool
family_knows(struct ct_family *family, pid_t pid)
{
  bool knows = false;
  pthread_mutex_lock(&family->lock);
  for (size_t i = 0; i < family->count && !knows; i++) {
    knows = family->sessions[i]->born_as == pid;
  }
  pthread_mutex_unlock(&family->lock);
  return knows;
}

/* ---- changes ---- */

uint32_t
family_generation(const struct ct_family *family)
{
  return __atomic_load_n(&family->generation, __ATOMIC_ACQUIRE);
}

void
family_change(struct ct_family *family)
{
  __atomic_add_fetch(&family->generation, 1, __ATOMIC_RELEASE);
}

int
family_each(struct ct_family *family, int (*run)(struct ct_session *, void *, struct ct_diag *), void *argument)
{
  pthread_mutex_lock(&family->lock);
  size_t count = family->count;
  struct ct_session **pinned = calloc(count + 1, sizeof(struct ct_session *));
  for (size_t i = 0; pinned != NULL && i < count; i++) {
    pinned[i] = family->sessions[i];
    pinned[i]->pins++;
  }
  pthread_mutex_unlock(&family->lock);
  for (size_t i = 0; pinned != NULL && i < count; i++) {
    session_command(pinned[i], CT_ERROR_HOOK, run, argument, NULL);
    pthread_mutex_lock(&family->lock);
    pinned[i]->pins--;
    pthread_cond_broadcast(&family->unpinned);
    pthread_mutex_unlock(&family->lock);
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
collect_children(struct ct_family *family, struct ct_session_child **out, size_t *count)
{
  pthread_mutex_lock(&family->lock);
  *count = 0;
  *out = calloc(family->count + 1, sizeof(**out));
  for (size_t i = 0; *out != NULL && i < family->count; i++) {
    struct ct_session *session = family->sessions[i];
    pthread_mutex_lock(&session->guard);
    const struct ct_session_status *status = &session->status;
    if (!status->ended && !session->over) {
      (*out)[(*count)++] =
          (struct ct_session_child){sizeof(**out),  session->born_as, session->parent,   status->state,
                                    status->events, status->dropped,  status->functions, status->hooked};
    }
    pthread_mutex_unlock(&session->guard);
  }
  pthread_mutex_unlock(&family->lock);
  return *out != NULL ? 0 : CT_ENOMEM;
}

int
ct_session_children(struct ct_session *session, ct_session_child_visit *visit, void *context)
{
  struct ct_session_child *children;
  size_t count;
  if (session->family == NULL) {
    return 0;
  }
  int code = collect_children(session->family, &children, &count);
  if (code == 0) {
    qsort(children, count, sizeof(*children), compare_children);
    for (size_t i = 0; i < count; i++) {
      visit(context, &children[i]);
    }
    free(children);
  }
  return code;
}

/* ---- births ---- */

/* DIR/process-PID, or with a number behind it. */
static void
name_directory(const struct ct_family *family, pid_t pid, char *path, size_t size)
{
  const char *directory = family->first->options.directory;
  snprintf(path, size, "%s/process-%d", directory, (int)pid);
  for (unsigned n = 2; access(path, F_OK) == 0; n++) {
    snprintf(path, size, "%s/process-%d-%u", directory, (int)pid, n);
  }
}

int
family_add_session(struct ct_family *family, struct ct_birth *birth)
{
  struct ct_session_options options = family->first->options;
  struct ct_session *session;
  char directory[PATH_MAX];
  int code = 0;
  pthread_mutex_lock(&family->lock);
  if (family->ending || family->count >= LIVE_MAX) {
    code = CT_ERANGE;
  } else if (family->count == family->capacity) {
    size_t grown = family->capacity == 0 ? 32 : family->capacity * 2;
    struct ct_session **sessions = realloc(family->sessions, grown * sizeof(*sessions));
    code = sessions == NULL ? CT_ENOMEM : 0;
    family->sessions = sessions != NULL ? sessions : family->sessions;
    family->capacity = sessions != NULL ? grown : family->capacity;
  }
  if (code == 0) {
    name_directory(family, birth->pid, directory, sizeof(directory));
    options.directory = directory;
    uint32_t ring = options.child_ring_mib != 0 ? options.child_ring_mib : CT_CHILD_RING_MIB_DEFAULT;
    options.ring_mib = ring < family->first->options.ring_mib ? ring : family->first->options.ring_mib;
    code = session_create(&options, family, birth, &session, NULL);
  }
  if (code == 0) {
    family->sessions[family->count++] = session;
  }
  pthread_mutex_unlock(&family->lock);
  return code;
}
