/* SPDX-License-Identifier: MIT */
/* The patterns of a selection as JSON: for manifests, plans and sessions. */
#include "select/select.h"

#include "base/json.h"

static json_t *
refused_json(const struct ct_selection *selection, size_t n)
{
  json_t *json = json_object();
  for (int r = 1; r < CT_REFUSED_COUNT; r++) {
    size_t count = ct_selection_refused(selection, n, (enum ct_refusal)r);
    if (count != 0) {
      json_object_set_new(json, ct_refusal_key((enum ct_refusal)r), json_integer((json_int_t)count));
    }
  }
  return json;
}

json_t *
ct_selection_list(const struct ct_selection *selection)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  json_t *list = json_array();
  for (size_t n = 0; ct_selection_info(selection, n, &info) == 0; n++) {
    json_t *json = json_object();
    json_object_set_new(json, "pattern", ct_json_string(info.pattern));
    json_object_set_new(json, "class", json_string(ct_select_kind_name(info.kind)));
    json_object_set_new(json, "asked", json_string(ct_select_mode_name(info.asked)));
    json_object_set_new(json, "mode", json_string(ct_select_mode_name(info.mode)));
    json_object_set_new(json, "matched", json_integer((json_int_t)info.matched));
    json_object_set_new(json, "hooked", json_integer((json_int_t)info.hooked));
    json_object_set_new(json, "refused", refused_json(selection, n));
    if (info.note[0] != '\0') {
      json_object_set_new(json, "note", ct_json_string(info.note));
    }
    if (info.likely[0] != '\0') {
      json_object_set_new(json, "likely", ct_json_string(info.likely));
    }
    json_array_append_new(list, json);
  }
  return list;
}

char *
ct_selection_json(const struct ct_selection *selection)
{
  json_t *list = ct_selection_list(selection);
  char *text = json_dumps(list, JSON_COMPACT);
  json_decref(list);
  return text;
}
