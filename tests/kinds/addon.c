/* SPDX-License-Identifier: MIT */
/* An addon for node, by Node-API's ABI (js_native_api.h): calls, a constructor, a callback into JavaScript. */
#include <stddef.h>
#include <stdint.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env env, napi_callback_info info);
int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_value_int32(napi_env, napi_value, int32_t *);
int napi_create_int32(napi_env, int32_t, napi_value *);

static int constructed;

__attribute__((constructor, noinline)) static void
addon_constructor(void)
{
  constructed++;
}

__attribute__((noipa)) int32_t
addon_triple(int32_t x)
{
  __asm__ volatile("" ::: "memory");
  return 3 * x + constructed;
}

static napi_value
addon_call(napi_env env, napi_callback_info info)
{
  size_t count = 1;
  napi_value argument = NULL, result = NULL;
  int32_t x = 0;
  napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
  napi_get_value_int32(env, argument, &x);
  napi_create_int32(env, addon_triple(x), &result);
  return result;
}

__attribute__((visibility("default"))) napi_value
napi_register_module_v1(napi_env env, napi_value exports)
{
  napi_value function;
  napi_create_function(env, "triple", SIZE_MAX, addon_call, NULL, &function);
  napi_set_named_property(env, exports, "triple", function);
  return exports;
}
