/* SPDX-License-Identifier: MIT */
/* See family.h. Locks: family->lock before a session's guard; neither is held while a session is closed. */
#include "record/family.h"

#include "record/program.h"
#include "record/session_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HOLD_MS      2000
#define LIVE_MAX     2000          /* children at a time: each takes threads and descriptors */
#define ORPHANS_NS   1000000000ull /* how long children of a process that is gone may take to their first hook */
#define PAST_MAX     64            /* changes within that time that are remembered */
#define START_ERR_NS 50000000ull   /* how exactly the time is known at which a process began */

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

/* Its entry in the list of the manifest. */
static void
list_child(struct ct_family *family, const struct ct_birth *birth, const char *directory, const char *why_not)
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

static void
count_live(struct ct_family *family, int step)
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
    count_live(session->family, -1);
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

static void
free_birth(struct ct_birth *birth)
{
  if (birth != NULL) {
    ct_modules_free(&birth->modules);
    ct_agent_place_free(&birth->place);
    free(birth);
  }
}

static int
copy_place(const struct ct_agent_place *place, struct ct_agent_place *copy)
{
  *copy = *place;
  copy->stub_pages = malloc(place->stub_page_count * sizeof(*place->stub_pages) + 1);
  copy->stubs = malloc(place->stub_count * sizeof(*place->stubs) + 1);
  if (copy->stub_pages == NULL || copy->stubs == NULL) {
    free(copy->stub_pages);
    free(copy->stubs);
    memset(copy, 0, sizeof(*copy));
    return CT_ENOMEM;
  }
  if (place->stub_page_count != 0) {
    memcpy(copy->stub_pages, place->stub_pages, place->stub_page_count * sizeof(*place->stub_pages));
  }
  if (place->stub_count != 0) {
    memcpy(copy->stubs, place->stubs, place->stub_count * sizeof(*place->stubs));
  }
  return 0;
}

static uint64_t
clock_ns(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* When the process began by CLOCK_MONOTONIC, at the earliest. The kernel tells it in ticks since the machine started.
 */
static uint64_t
began_ns(pid_t pid)
{
  uint64_t began = ct_process_start_time(pid) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
  uint64_t since = clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC) + START_ERR_NS;
  return began > since ? began - since : 0;
}

/* Of those who come. */
struct parent {
  pid_t pid;
  struct ct_image *image;
  const struct ct_modules *modules;
  uint32_t generation;
  uint64_t hooks_version;
  const struct ct_past *past;
};

/* What a forked child has, by the version that it tells. CT_ENOENT: that is too long ago. */
static int
inherit(const struct parent *parent, uint64_t version, struct ct_birth *birth)
{
  const struct ct_past *past = parent->past;
  bool is_now = version == parent->hooks_version;
  while (!is_now && past != NULL && past->hooks_version != version) {
    past = past->earlier;
  }
  if (!is_now && past == NULL) {
    return CT_ENOENT;
  }
  birth->generation = is_now ? parent->generation : past->generation;
  birth->hooks_version = version;
  int code = ct_modules_clone(is_now ? parent->modules : &past->modules, &birth->modules);
  return code != 0 ? code : copy_place(is_now ? &parent->image->place : &past->place, &birth->place);
}

static int
make_birth(const struct ct_visitor *visitor, uint64_t page, const struct parent *parent, struct ct_birth **out)
{
  struct ct_birth *birth = calloc(1, sizeof(*birth));
  if (birth == NULL) {
    return CT_ENOMEM;
  }
  birth->kind = (enum ct_visit_kind)visitor->kind;
  birth->pid = (pid_t)visitor->pid;
  birth->tid = (pid_t)visitor->tid;
  birth->parent = parent->pid;
  birth->visitor = page;
  birth->path = visitor->path;
  birth->since_ns = began_ns(birth->pid);
  *out = birth;
  return birth->kind == CT_VISIT_FORK ? inherit(parent, visitor->hooks_version, birth) : 0;
}

static int
add_session(struct ct_family *family, struct ct_birth *birth)
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

static void
answer(struct ct_visitor *visitor, enum ct_visitor_state state)
{
  uint32_t pending = CT_VISIT_PENDING;
  /* release: pairs with the agent's acquire */
  __atomic_compare_exchange_n(&visitor->state, &pending, state, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  session_wake(&visitor->state);
}

/* Somebody has come into the agent in this image who is not its process. */
static void
receive(struct ct_family *family, const struct parent *parent, uint32_t index)
{
  struct ct_image *image = parent->image;
  struct ct_visitor *visitor =
      (struct ct_visitor *)((uint8_t *)image->ring + image->ring->visitors_offset + (size_t)index * CT_VISITOR_BYTES);
  struct ct_birth *birth = NULL;
  if (__atomic_load_n(&visitor->state, __ATOMIC_ACQUIRE) != CT_VISIT_PENDING) {
    return;
  }
  uint64_t page = image->place.ring + image->ring->visitors_offset + (uint64_t)index * CT_VISITOR_BYTES;
  int code = make_birth(visitor, page, parent, &birth);
  if (code == 0) {
    count_live(family, 1);
    code = add_session(family, birth);
    if (code != 0) {
      count_live(family, -1);
    }
  } else if (code == CT_ENOENT) {
    list_child(family, birth, NULL,
               "what is traced was changed after it had been forked, and long before its first hook");
  }
  if (code != 0) {
    free_birth(birth);
    answer(visitor, CT_VISIT_REFUSED);
  }
}

/* Pages of visitors that were killed there are free again. */
static void
free_pages(struct ct_image *image)
{
  for (uint32_t i = 0; i < CT_VISITOR_COUNT; i++) {
    struct ct_visitor *visitor =
        (struct ct_visitor *)((uint8_t *)image->ring + image->ring->visitors_offset + (size_t)i * CT_VISITOR_BYTES);
    uint64_t owner = __atomic_load_n(&visitor->owner, __ATOMIC_ACQUIRE);
    if (owner != 0 && ct_process_state((pid_t)(owner >> 32)) == 0) {
      __atomic_compare_exchange_n(&visitor->owner, &owner, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
  }
}

static void
serve(struct ct_family *family, const struct parent *parent)
{
  /* acquire: pairs with the agent's release of the bit, behind the visit */
  uint64_t bits = __atomic_exchange_n(&parent->image->ring->visit_map, 0, __ATOMIC_ACQUIRE);
  if (bits == 0) {
    return;
  }
  for (; bits != 0; bits &= bits - 1) {
    receive(family, parent, (uint32_t)__builtin_ctzll(bits));
  }
  free_pages(parent->image);
}

void
session_serve_visitors(struct ct_session *session)
{
  struct parent parent = {session->process.pid, &session->image,        &session->modules,
                          session->generation,  session->hooks_version, session->past};
  if (session->family != NULL) {
    serve(session->family, &parent);
  }
}

/* ---- what was before a change ---- */

static void
free_past(struct ct_past *past)
{
  while (past != NULL) {
    struct ct_past *earlier = past->earlier;
    ct_modules_free(&past->modules);
    ct_agent_place_free(&past->place);
    free(past);
    past = earlier;
  }
}

void
session_forget(struct ct_session *session)
{
  free_past(session->past);
  session->past = NULL;
}

/* Those from which nobody comes any more. */
void
session_forget_the_old(struct ct_session *session)
{
  uint64_t now = session_now_ns();
  struct ct_past **link = &session->past;
  for (size_t n = 0; *link != NULL && n < PAST_MAX && (*link)->until_ns > now; n++) {
    link = &(*link)->earlier;
  }
  free_past(*link);
  *link = NULL;
}

int
session_remember(struct ct_session *session)
{
  session_forget_the_old(session);
  struct ct_past *past = calloc(1, sizeof(*past));
  if (past == NULL) {
    return CT_ENOMEM;
  }
  past->modules.plans = session->modules.plans;
  past->hooks_version = session->hooks_version;
  past->generation = session->generation;
  past->until_ns = UINT64_MAX;
  int code = ct_modules_clone(&session->modules, &past->modules);
  if (code == 0) {
    code = copy_place(&session->image.place, &past->place);
  }
  if (code != 0) {
    free_past(past);
    return code;
  }
  past->earlier = session->past;
  session->past = past;
  return 0;
}

void
session_changes(struct ct_session *session)
{
  if (session->past != NULL) {
    session->past->until_ns = session_now_ns() + ORPHANS_NS;
  }
}

/* ---- children that come late ---- */

void
session_keep_for_orphans(struct ct_session *session)
{
  struct ct_orphanage *kept = &session->orphanage;
  struct ct_ring_header *ring = session->image.ring;
  if (session->family == NULL || __atomic_load_n(&ring->forks, __ATOMIC_RELAXED) == 0) {
    return;
  }
  session_serve_orphans(session, true); /* of the image before */
  if (ct_modules_clone(&session->modules, &kept->modules) != 0) {
    ct_modules_free(&kept->modules);
    return;
  }
  kept->modules.plans = session->modules.plans;
  kept->image = session->image;
  memset(&session->image, 0, sizeof(session->image));
  kept->parent = session->process.pid;
  kept->generation = session->generation;
  kept->hooks_version = session->hooks_version;
  kept->past = session->past;
  session->past = NULL;
  kept->until_ns = session_now_ns() + ORPHANS_NS;
  pthread_mutex_lock(&session->guard);
  session->awaits_orphans = true;
  pthread_mutex_unlock(&session->guard);
  /* The events have been read; what children need is the head. */
  madvise((uint8_t *)ring + ring->segments_offset, ring->total_bytes - ring->segments_offset, MADV_REMOVE);
}

void
session_serve_orphans(struct ct_session *session, bool now)
{
  struct ct_orphanage *kept = &session->orphanage;
  if (kept->image.ring == NULL) {
    return;
  }
  struct parent parent = {kept->parent,     &kept->image,        &kept->modules,
                          kept->generation, kept->hooks_version, kept->past};
  serve(session->family, &parent);
  if (now || session_now_ns() > kept->until_ns) {
    __atomic_store_n(&kept->image.ring->closed, 1, __ATOMIC_RELEASE);
    serve(session->family, &parent);
    ct_image_free(&kept->image);
    ct_modules_free(&kept->modules);
    free_past(kept->past);
    memset(kept, 0, sizeof(*kept));
    pthread_mutex_lock(&session->guard);
    session->awaits_orphans = false;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->guard);
  }
}

/* ---- by the child's session ---- */

/* To a child that waits in the agent and is not held: it looks again within 100 ms. */
static void
tell_visitor(struct ct_session *session, enum ct_visitor_state state)
{
  uint32_t value = state, pending;
  uint64_t at = session->birth->visitor + offsetof(struct ct_visitor, state);
  if (ct_process_read(&session->process, at, &pending, sizeof(pending)) == 0 && pending == CT_VISIT_PENDING) {
    ct_process_write(&session->process, at, &value, sizeof(value));
  }
}

/* The process with that id is the one that waits: ids may differ between namespaces. */
static bool
is_waiting(struct ct_session *session)
{
  const struct ct_birth *birth = session->birth;
  struct ct_visitor visitor;
  return ct_process_read(&session->process, birth->visitor, &visitor, sizeof(visitor)) == 0 &&
         visitor.owner >> 32 == (uint32_t)birth->pid && visitor.state == CT_VISIT_PENDING &&
         visitor.tid == (uint32_t)birth->tid;
}

static int
make_own(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_image_options options = {.ring_bytes = (uint64_t)session->options.ring_mib << 20,
                                     .lossless = session->options.lossless};
  struct ct_birth *birth = session->birth;
  session->image.place = birth->place;
  memset(&birth->place, 0, sizeof(birth->place));
  int code = ct_process_freeze(&session->process, HOLD_MS, &session->frozen, diag);
  if (code != 0) {
    return code;
  }
  session->frozen_since_ns = session->frozen.since_ns;
  session->is_frozen = true;
  if (!is_waiting(session)) {
    return ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  struct ct_remote remote = session_frozen_remote(session);
  code = ct_image_adopt(&remote, &options, (uint32_t)birth->pid, &session->image, diag);
  if (code == 0) {
    session->image_live = true;
    session->image_count = 1;
    code = ct_modules_complete(&session->modules, &remote, birth->since_ns);
  }
  return code;
}

static void
begin_manifest(struct ct_session *session)
{
  ct_plans_lock(session->modules.plans); /* patterns may just be changed */
  ct_manifest_attach(&session->manifest, &session->options, session->birth->pid);
  ct_plans_unlock(session->modules.plans);
}

static int
be_forked(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_birth *birth = session->birth;
  struct ct_module_sinks to;
  char exe[64], program[PATH_MAX];
  int code = session_open_trace(session, diag);
  if (code != 0) {
    return code;
  }
  session->modules.items = birth->modules.items;
  session->modules.count = birth->modules.count;
  session->modules.capacity = birth->modules.capacity;
  session->modules.next_fn = birth->modules.next_fn;
  memset(&birth->modules, 0, sizeof(birth->modules));
  session->generation = birth->generation;
  session->hooks_version = birth->hooks_version;
  begin_manifest(session);
  code = make_own(session, diag);
  session_let_go(session);
  if (code == 0) { /* it runs while names are written; its events wait */
    to = session_sinks(session);
    session_sample(session);
    code = ct_modules_tell_again(&session->modules, birth->pid, session->drain);
    ct_modules_tell(&session->modules, &to);
  }
  if (code == 0) {
    code = ct_drain_start(session->drain, session->image.ring, birth->pid);
  }
  if (code == 0) {
    ct_process_path(birth->pid, "exe", exe, sizeof(exe));
    ssize_t length = readlink(exe, program, sizeof(program) - 1);
    program[length > 0 ? length : 0] = '\0';
    ct_manifest_image(&session->manifest, birth->pid, program, NULL);
    session_set_bell(session, &session->image.ring->control_bell);
    session->manifest.install_ns = session_now_ns() - session->frozen_since_ns;
  }
  return code;
}

static void
answer_exec(void *context)
{
  struct ct_session *session = context;
  tell_visitor(session, CT_VISIT_DONE);
  session->birth->answered = true;
}

/* The child of vfork goes through its exec with us. CT_ENOENT: there was none. */
static int
be_executed(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_birth *birth = session->birth;
  if (session_exec_loses_privilege(session, birth->path)) {
    return ct_fail(diag, CT_EUNSUPPORTED, "a setuid or setgid program is not recorded");
  }
  int code = ct_process_follow_exec(&session->process, birth->tid, answer_exec, session, diag);
  if (code == 0) {
    code = session_open_trace(session, diag);
    if (code == 0) {
      begin_manifest(session);
      session->generation = family_generation(session->family); /* it looks patterns up from here on */
      code = session_begin_image(session, diag);
    }
    ct_process_release(&session->process);
  }
  return code;
}

static int
open_process(struct ct_session *session, struct ct_diag *diag)
{
  int code = ct_process_open(session->birth->pid, &session->process, diag);
  if (code == 0 && !is_waiting(session)) {
    code = ct_fail(diag, CT_ESRCH, "it did not wait for the recorder");
  }
  return code;
}

/* It could not be followed, and runs on as it is. */
static void
give_up(struct ct_session *session, int code, const struct ct_diag *diag)
{
  const struct ct_birth *birth = session->birth;
  bool has_ended = session->process.pid == 0 || ct_process_has_died(&session->process);
  if (session->image_live && !has_ended) {
    session_detach(session, NULL);
  }
  session_end_image(session, false);
  session_drop_trace(session);
  if (!has_ended && !birth->answered) {
    tell_visitor(session, CT_VISIT_REFUSED);
  }
  ct_process_close(&session->process, false);
  session->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  if (code != CT_ENOENT && !has_ended) {
    list_child(session->family, birth, NULL, diag->text[0] != '\0' ? diag->text : ct_err_text(code));
  }
  session_go(session, CT_STEP_FAIL);
  pthread_mutex_lock(&session->guard);
  session->finished = true;
  pthread_cond_broadcast(&session->changed);
  pthread_mutex_unlock(&session->guard);
  family_is_over(session);
}

void
session_be_born(struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_birth *birth = session->birth;
  pthread_mutex_lock(&session->guard);
  session->status.pid = birth->pid;
  session->status.attached = true;
  pthread_mutex_unlock(&session->guard);
  session_go(session, CT_STEP_ATTACH);
  int code = open_process(session, &diag);
  if (code == 0) {
    code = birth->kind == CT_VISIT_FORK ? be_forked(session, &diag) : be_executed(session, &diag);
  }
  if (code != 0) {
    give_up(session, code, &diag);
  } else {
    session->manifest.born = birth->kind == CT_VISIT_FORK ? "fork" : "vfork";
    session->manifest.parent = birth->parent;
    list_child(session->family, birth, session->options.directory, NULL);
    session_start_watching(session);
    session_go(session, CT_STEP_HOOKED);
    session_go(session, CT_STEP_RESUME);
    session_catch_up(session);
    session_write_manifest(session, false);
  }
  free_birth(birth);
  session->birth = NULL;
}
