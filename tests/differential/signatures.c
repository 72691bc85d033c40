/* SPDX-License-Identifier: MIT */
#include "signatures.h"

#include <stddef.h>

#define REAL                                                                                                           \
  "acos asin atan cos sin tan cosh sinh tanh acosh asinh atanh exp exp2 exp10 expm1 log log10 log2 log1p logb sqrt "   \
  "cbrt ceil floor trunc round rint nearbyint roundeven fabs erf erfc tgamma lgamma j0 j1 y0 y1 significand"
#define REAL_F                                                                                                         \
  "acosf asinf atanf cosf sinf tanf coshf sinhf tanhf acoshf asinhf atanhf expf exp2f exp10f expm1f logf log10f "      \
  "log2f log1pf logbf sqrtf cbrtf ceilf floorf truncf roundf rintf nearbyintf roundevenf erff erfcf tgammaf lgammaf"
#define REAL_L                                                                                                         \
  "acosl asinl atanl cosl sinl tanl coshl sinhl tanhl acoshl asinhl atanhl expl exp2l exp10l expm1l logl log10l "      \
  "log2l log1pl logbl sqrtl cbrtl ceill floorl truncl roundl rintl nearbyintl erfl erfcl tgammal lgammal"
#define REAL_Q "acosf128 sinf128 cosf128 expf128 logf128 sqrtf128 cbrtf128 floorf128 rintf128 tanhf128 erff128"

static const struct signature libc_signatures[] = {
    {"memcpy mempcpy memmove", "dsn"},
    {"memset", "dcn"},
    {"memchr memrchr", "scn"},
    {"rawmemchr", "S0"},
    {"memcmp bcmp", "ssn"},
    {"memmem", "snsm"},
    {"memccpy", "dscn"},
    {"strlen", "S"},
    {"strnlen", "Sn"},
    {"strcpy stpcpy", "dS"},
    {"strncpy stpncpy strxfrm mbstowcs", "dSn"},
    {"strcat", "TS"},
    {"strncat", "TSn"},
    {"strcmp strcasecmp strcoll strspn strcspn strpbrk strstr strcasestr", "SS"},
    {"strncmp strncasecmp", "SSn"},
    {"strchr strrchr strchrnul", "Sc"},
    {"wcslen", "W"},
    {"wcsnlen", "Wm"},
    {"wcscpy wcpcpy", "dW"},
    {"wcscmp wcsspn wcscspn wcsstr", "WW"},
    {"wcsncmp", "WWm"},
    {"wcschr wcsrchr", "Wc"},
    {"wcstombs", "dWn"},
    {"wmemset", "dcm"},
    {"wmemcmp", "ssm"},
    {"wmemchr", "scm"},
    {"isalpha isdigit isspace isupper islower ispunct toupper tolower isxdigit iscntrl", "c"},
    {"iswalpha iswupper towupper towlower iswpunct", "i"},
    {"strtol strtoul strtoll strtoull", "Npb"},
    {"strtod strtof strtold", ".Np"},
    {"atoi atol atof a64l", "N"},
    {"div", "ii"},
    {"ldiv lldiv", "=ii"},
    {"ffsl ffsll labs l64a", "i"},
    {"qsort", "dmzq"},
    {"bsearch", "ssmzq"},
    {"snprintf", "dnfDLiS"},
    {"ecvt_r", "Dcppdn"},
    {"gmtime_r", "pp"},
    {"inet_aton", "Np"},
    {NULL, NULL},
};

static const struct signature libm_signatures[] = {
    {REAL, ".D"},
    {REAL_F, ".F"},
    {REAL_L, ".L"},
    {REAL_Q, ".Q"},
    {"atan2 pow hypot fmod remainder copysign nextafter fdim fmax fmin", ".DD"},
    {"atan2f powf hypotf fmodf remainderf fdimf fmaxf fminf", ".FF"},
    {"atan2l powl hypotl fmodl remainderl fdiml fmaxl fminl nextafterl", ".LL"},
    {"powf128 hypotf128 atan2f128", ".QQ"},
    {"fma", ".DDD"},
    {"fmaf", ".FFF"},
    {"fmal", ".LLL"},
    {"frexp modf", ".Dp"},
    {"frexpl modfl", ".Lp"},
    {"ldexp scalbn scalbln", ".Dc"},
    {"ldexpl scalbnl", ".Lc"},
    {"ilogb lrint llrint lround llround", "D"},
    {"lrintf llrintf lroundf llroundf", "F"},
    {"lrintl llrintl lroundl llroundl ilogbl", "L"},
    {"sincos", ".Dpp"},
    {"sincosf", ".Fpp"},
    {"sincosl", ".Lpp"},
    {"remquo", ".DDp"},
    {"cexp csin ccos ctan clog csqrt casin cacos catan csinh ccosh ctanh clog10 cabs carg cproj", ".DD"},
    {"cexpf csinf ccosf ctanf clogf csqrtf casinf catanf cabsf", ".G"},
    {"cexpl csinl ccosl clogl csqrtl casinl catanl cabsl cprojl conjl", ".LL"},
    {"cpow", ".DDDD"},
    {"cpowf", ".GG"},
    {"cpowl", ".LLLL"},
    {NULL, NULL},
};

static const struct signature libgcc_signatures[] = {
    {"__udivti3 __umodti3 __divti3 __modti3 __multi3", "=xx"},
    {"__ucmpti2 __cmpti2", "xx"},
    {"__ashlti3 __lshrti3 __ashrti3", "=xc"},
    {"__negti2", "=x"},
    {"__clzti2 __ctzti2 __ffsti2 __popcountti2 __parityti2 __floattidf __floattisf __floattixf __floattitf "
     "__floatuntidf __floatuntixf",
     "x"},
    {"__popcountdi2 __ctzdi2 __clzdi2 __ffsdi2 __paritydi2 __bswapdi2 __bswapsi2", "i"},
    {"__powidf2", ".Dc"},
    {"__powisf2", ".Fc"},
    {"__powixf2", ".Lc"},
    {"__powitf2", ".Qc"},
    {"__addtf3 __subtf3 __multf3 __divtf3 __eqtf2 __getf2 __letf2 __unordtf2", "QQ"},
    {"__fixdfti __fixunsdfti", "=D"},
    {"__fixsfti __fixunssfti", "=F"},
    {"__fixxfti __fixunsxfti", "=L"},
    {"__fixtfti __fixunstfti", "=Q"},
    {"__extenddftf2", ".D"},
    {"__extendsftf2", ".F"},
    {"__extendxftf2", ".L"},
    {"__trunctfdf2 __trunctfsf2 __trunctfxf2 __fixtfsi __fixtfdi __negtf2", "Q"},
    {"__muldc3 __divdc3", ".DDDD"},
    {"__mulsc3 __divsc3", ".FFFF"},
    {"__mulxc3 __divxc3", ".LLLL"},
    {NULL, NULL},
};

static const struct signature libz_signatures[] = {
    {"crc32 adler32", "isn"}, {"crc32_z adler32_z", "isn"}, {"compressBound", "n"},
    {"compress", "dPsn"},     {"crc32_combine", "iin"},     {NULL, NULL},
};

static const struct signature lzma_signatures[] = {
    {"lzma_crc32 lzma_crc64", "sni"},
    {"lzma_vli_size lzma_check_size lzma_check_is_supported", "c"},
    {NULL, NULL},
};

static const struct signature crypto_signatures[] = {
    {"MD5 SHA1 SHA224 SHA256 SHA384 SHA512 MD4 RIPEMD160", "snp"},
    {"CRYPTO_memcmp", "ssn"},
    {"OPENSSL_cleanse", "dn"},
    {"OPENSSL_LH_strhash", "S"},
    {NULL, "AES_set_encrypt_key:sBk;AES_encrypt:sdk;AES_cbc_encrypt:sdnkpE"},
    {NULL, "AES_set_decrypt_key:sBk;AES_decrypt:sdk"},
    {NULL, "RC4_set_key:kns;RC4:knsd"},
    {NULL, "BF_set_key:kcs;BF_ecb_encrypt:sdkE"},
    {NULL, "CAST_set_key:kcs;CAST_ecb_encrypt:sdkE"},
    {NULL, "Camellia_set_key:sBk;Camellia_encrypt:sdk"},
    {NULL, "SEED_set_key:sk;SEED_encrypt:sdk;SEED_decrypt:sdk"},
    {NULL, "DES_set_key_unchecked:sk;DES_ecb_encrypt:sdkE"},
    {NULL, "SHA1_Init:k;SHA1_Update:ksn;SHA1_Final:pk"},
    {NULL, "SHA256_Init:k;SHA256_Update:ksn;SHA256_Final:pk"},
    {NULL, "SHA512_Init:k;SHA512_Update:ksn;SHA512_Final:pk"},
    {NULL, "MD5_Init:k;MD5_Update:ksn;MD5_Final:pk"},
    {NULL, NULL},
};

static const struct signature stdcxx_signatures[] = {{"_ZSt11_Hash_bytesPKvmm _ZSt15_Fnv_hash_bytesPKvmm", "sni"},
                                                     {NULL, NULL}};

/* Its names tell: see calls.c. */
static const struct signature none[] = {{NULL, NULL}};

const struct library libraries[] = {
    {"libc.so.6", libc_signatures},        {"libm.so.6", libm_signatures},        {"libmvec.so.1", none},
    {"libgcc_s.so.1", libgcc_signatures},  {"libz.so.1", libz_signatures},        {"liblzma.so.5", lzma_signatures},
    {"libcrypto.so.3", crypto_signatures}, {"libstdc++.so.6", stdcxx_signatures}, {NULL, NULL},
};
