/* SPDX-License-Identifier: MIT */
/*
 * The built-in list of --exclude-hot: what `bench/run.sh hot` found to make up most of the events of real programs
 * while it does little in each call, and the same things under their other names. docs/overhead.md has what it saves.
 *
 * Patterns are those of exclude.h. Where other programs may have something else of that name they are limited to a
 * module.
 */
#include "select/excluding.h"

/* clang-format off */
const struct ct_hot ct_hot_list[] = {
    {"leaf functions of up to 64 bytes in libraries: accessors and the like, whatever their names",
     "*.so*",
     "@leaf:64"},

    {"memory and strings, in all their forms for different processors",
     NULL,
     "memcpy memmove mempcpy memset memcmp memchr memrchr rawmemchr bcmp strlen strnlen strcpy strncpy stpcpy "
     "stpncpy strcat strncat strcmp strncmp strcasecmp strncasecmp strcasecmp_l strncasecmp_l strchr strrchr "
     "strchrnul index rindex strspn strcspn strpbrk strdup strndup wcslen wcsnlen wcscmp wcschr wmemcpy wmemset "
     "wmemcmp wmemchr __mem*_sse* __mem*_avx* __mem*_evex* __mem*_erms __rawmemchr_* __mem*_chk __str*_sse* "
     "__str*_avx* __str*_evex* __stp*_sse* __stp*_avx* __stp*_evex* __str*_chk __stp*_chk __wcs*_sse* __wcs*_avx* "
     "__wcs*_evex* __wmem*_sse* __wmem*_avx* __wmem*_evex*"},

    {"memory allocation",
     NULL,
     "malloc free calloc realloc reallocarray memalign aligned_alloc posix_memalign malloc_usable_size _int_malloc "
     "_int_free _int_realloc _int_memalign _mid_memalign malloc_consolidate unlink_chunk alloc_perturb "
     "__minimal_malloc __minimal_free __minimal_calloc __minimal_realloc _Znwm _Znam _ZnwmRKSt9nothrow_t "
     "_ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm "
     "_ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t xmalloc xcalloc xrealloc xzalloc xfree "
     "xstrdup g_malloc g_malloc0 g_free g_realloc"},

    {"locks, and what belongs to a thread",
     NULL,
     "pthread_mutex_lock pthread_mutex_unlock pthread_mutex_trylock __pthread_mutex_unlock_usercnt "
     "pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_unlock pthread_spin_lock pthread_spin_unlock "
     "pthread_getspecific pthread_setspecific pthread_self pthread_once __tls_get_addr "
     "__pthread_enable_asynccancel __pthread_disable_asynccancel __libc_cleanup_push_defer "
     "__libc_cleanup_pop_restore"},

    {"errno, characters, locale",
     NULL,
     "__errno_location __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc __ctype_get_mb_cur_max tolower "
     "toupper isalnum isalpha isdigit islower isprint ispunct isspace isupper isxdigit iswalnum iswalpha iswprint "
     "iswspace towlower towupper wcwidth btowc mbrtowc mbrlen mbtowc mbsinit wcrtomb wctomb __gconv_transform_* "
     "_dl_mcount_wrapper_check strcoll strcoll_l nl_langinfo"},

    {"the inside of stdio, and its functions for one character",
     NULL,
     "putc putchar fputc getc getchar fgetc ungetc putc_unlocked putchar_unlocked fputc_unlocked getc_unlocked "
     "fgetc_unlocked flockfile funlockfile _IO_default_xsputn _IO_file_xsputn _IO_default_xsgetn _IO_file_xsgetn "
     "_IO_sgetn _IO_sputbackc _IO_do_write new_do_write _IO_file_overflow _IO_file_underflow _IO_file_write "
     "_IO_file_read _IO_str_overflow _IO_no_init _IO_old_init _IO_setb __overflow __uflow __underflow read_int "
     "_itoa_word"},

    {"the loader: symbols looked up at start and at first calls",
     "ld*.so*",
     "_dl_lookup_symbol_x do_lookup_x do_lookup_unique check_match _dl_name_match_p _dl_fixup _dl_hwcaps_split "
     "_dl_hwcaps_split_masked __tunable_get_val"},

    {"sqlite: values, cells, cursors, pages, memory",
     NULL,
     "sqlite3GetVarint sqlite3GetVarint32 sqlite3PutVarint sqlite3VarintLen sqlite3VdbeSerialGet "
     "sqlite3VdbeSerialPut sqlite3VdbeSerialTypeLen sqlite3VdbeOneByteSerialTypeLen "
     "sqlite3VdbeRecordCompareWithSkip sqlite3VdbeCursorRestore sqlite3VdbeMem* sqlite3_value_* "
     "sqlite3_aggregate_context sqlite3BtreeCursorHasMoved sqlite3BtreePayloadFetch sqlite3BtreePayloadSize "
     "sqlite3BtreeIntegerKey sqlite3BtreeCursorIsValid* sqlite3_mutex_enter sqlite3_mutex_leave pthreadMutexEnter "
     "pthreadMutexLeave sqlite3MallocSize sqlite3MemMalloc sqlite3MemFree sqlite3MemSize sqlite3Malloc "
     "sqlite3_free sqlite3DbMalloc* sqlite3DbFree* sqlite3DbNNFreeNN sqlite3Strlen30 sqlite3PcacheFetch* "
     "sqlite3PcacheRelease pcache1Fetch* pcache1Unpin sqlite3PagerGet sqlite3PagerUnref* sqlite3PagerWrite "
     "btreeParseCell* cellSizePtr* getCellInfo"},

    {"python: reference counts, memory, garbage collection, dictionaries, frames",
     "*python*",
     "_Py_Dealloc _Py_NewReference Py_IncRef Py_DecRef _Py_INCREF _Py_DECREF Py_INCREF Py_DECREF Py_XDECREF "
     "PyObject_Malloc PyObject_Calloc PyObject_Realloc PyObject_Free PyMem_* _PyMem_* _PyObject_Malloc "
     "_PyObject_Calloc _PyObject_Realloc _PyObject_Free pymalloc_alloc pymalloc_free _PyObject_GC_New "
     "_PyObject_GC_NewVar _PyObject_GC_Link PyObject_GC_Track PyObject_GC_UnTrack PyObject_GC_Del PyObject_IS_GC "
     "type_is_gc visit_* _PyTrash_* lookdict* _Py_dict_lookup unicodekeys_lookup_* insertdict "
     "_PyDict_GetItem_KnownHash PyDict_GetItemWithError unicode_hash unicode_eq PyObject_Hash _Py_Hash* pysiphash "
     "siphash* _PyType_Lookup _PyType_LookupRef PyType_IsSubtype _PyObject_DictPointer "
     "_PyObject_VisitInstanceAttributes PyThreadState_Get PyErr_Occurred PyObject_RichCompareBool PyBool_FromLong "
     "PyLong_FromLong PyLong_FromSsize_t *_dealloc tupledealloc tuple_alloc PyUnicode_New _Py_CheckFunctionResult "
     "_PyFrame_Push _PyFrame_Clear* _PyThreadState_P*Frame _PyEval_FrameClearAndPop _PyUnicode_Is* _PyUnicode_To* "
     "sre_*_count unsafe_*_compare listiter_next PyIter_Next r_byte r_long r_string r_object"},

    {"perl: values, scopes, the smallest operations",
     NULL,
     "Perl_av_fetch Perl_vivify_ref Perl_hv_common Perl_sv_set* Perl_sv_2* Perl_sv_upgrade Perl_sv_newmortal "
     "Perl_sv_free2 Perl_sv_clear Perl_sv_grow Perl_newSV* Perl_safesys* Perl_free_tmps Perl_push_scope "
     "Perl_pop_scope Perl_savetmps Perl_save_clearsv Perl_leave_scope Perl_do_ncmp Perl_pp_const Perl_pp_nextstate "
     "Perl_pp_pad* Perl_pp_pushmark Perl_pp_and Perl_pp_or Perl_pp_not Perl_pp_gv Perl_pp_gvsv Perl_pp_unstack "
     "Perl_pp_iter Perl_pp_ncmp Perl_pp_lt Perl_pp_gt Perl_pp_eq Perl_pp_add Perl_pp_subtract Perl_pp_modulo "
     "Perl_pp_multideref"},

    {"bash",
     "bash",
     "sh_xmalloc sh_xrealloc sh_xfree mbschr zreadc alloc_word_desc make_word_list dispose_word dispose_words "
     "hash_search find_variable *unwind_frame remove_quoted_nulls run_pending_traps"},

    {"git",
     "git",
     "strbuf_add* strbuf_grow oidcmp oideq hashcmp hasheq hash_obj lookup_object oidhash memihash strhash "
     "hashmap_get nth_packed_object_* bsearch_hash use_pack xdl_hash_record* xdl_recmatch* decode_tree_entry "
     "update_tree_entry"},

    {"compression: match finders, Huffman codes, checksums",
     NULL,
     "adler32* crc32 crc32_z inflate_fast inflate_table longest_match _tr_* bt_find_func bt_skip_func lzma_mf_bt*"},

    {"OpenSSL: memory, locks, stacks, hash tables",
     NULL,
     "CRYPTO_malloc CRYPTO_zalloc CRYPTO_realloc CRYPTO_free CRYPTO_clear_free CRYPTO_strdup CRYPTO_strndup "
     "CRYPTO_THREAD_read_lock CRYPTO_THREAD_write_lock CRYPTO_THREAD_unlock CRYPTO_get_ex_data OPENSSL_cleanse "
     "OPENSSL_sk_* OPENSSL_LH_* OPENSSL_strcasecmp ossl_tolower ossl_toupper ossl_ctype_check ossl_lh_strcasehash "
     "ossl_namemap_* ossl_provider_libctx ossl_lib_ctx_get_data EVP_MD_CTX_*_flags"},

    {"redis: memory, strings, hash tables, lists",
     "redis*",
     "zmalloc zcalloc zrealloc zfree incrRefCount decrRefCount createStringObject createEmbeddedStringObject sds* "
     "dictSds* dictGen* siphash* dictFind listNext string2ll ll2string lp* clientHasPendingReplies "
     "prepareClientToWrite updateClientMemUsageAndBucket LRU_CLOCK monotonicGetType"},

    {"nginx: memory, lists, formatting",
     "nginx",
     "ngx_palloc ngx_pnalloc ngx_pcalloc ngx_list_push ngx_array_push ngx_hash_* ngx_strlow ngx_*printf* "
     "ngx_http_get_indexed_variable"},

    {"postgres: memory contexts, tuples, locks, buffers",
     "postgres*",
     "AllocSet* palloc palloc0 pfree repalloc MemoryContextAlloc* heap_compute_data_size heap_fill_tuple "
     "slot_getsomeattrs* slot_deform_heap_tuple tts_* ExecClearTuple hash_bytes* hash_search_with_hash_value "
     "LWLockAcquire LWLockRelease LWLockAttemptLock PinBuffer UnpinBuffer HeapTupleSatisfies* FunctionCall2Coll "
     "comparetup_* lappend equal"},

    {"the C++ library in programs compiled without optimisation",
     NULL,
     "std::forward<* std::move<* std::__addressof<* std::get<* std::__get_helper<* std::swap<* std::__niter_* "
     "std::__miter_* std::__iterator_category<* std::distance<* std::__distance<* std::__copy_move* "
     "std::__uninitialized_* std::_Construct<* std::_Destroy* std::__relocate_* std::operator?=<* std::operator-<* "
     "std::char_traits<* std::allocator<* std::allocator_traits<* std::__new_allocator<* std::initializer_list<* "
     "std::vector<*>::begin* std::vector<*>::end* std::vector<*>::size* std::vector<*>::empty* "
     "std::vector<*>::operator[]* std::vector<*>::at* std::vector<*>::back* std::vector<*>::_M_* "
     "std::vector<*>::_S_* std::_Vector_base<* std::array<* std::pair<* std::_Tuple_impl<* std::_Head_base<* "
     "std::unique_ptr<*>::get* std::unique_ptr<*>::operator* std::__uniq_ptr_impl<* std::__shared_ptr<* "
     "std::__shared_ptr_access<* std::__shared_count<* std::_Sp_counted_* std::_Rb_tree* std::_Select1st<* "
     "std::less<* std::hash<* std::__detail::* std::_Hashtable* std::__cxx11::basic_string<*>::_M_* "
     "std::__cxx11::basic_string<*>::_S_* std::__cxx11::basic_string<*>::size* "
     "std::__cxx11::basic_string<*>::length* std::__cxx11::basic_string<*>::c_str* "
     "std::__cxx11::basic_string<*>::operator[]* std::__cxx11::basic_string<*>::push_back* "
     "__gnu_cxx::new_allocator<* __gnu_cxx::__normal_iterator<* __gnu_cxx::operator* __gnu_cxx::__alloc_traits<* "
     "__gnu_cxx::__aligned_* __gnu_cxx::__ops::*"},

    {"Rust: core and alloc in programs compiled without optimisation, and the allocator",
     NULL,
     "__rust_alloc __rust_dealloc __rust_realloc __rust_alloc_zeroed __rdl_alloc __rdl_dealloc __rdl_realloc "
     "core::ptr::* core::mem::* core::slice::* core::iter::* core::num::* core::cmp::* core::option::* "
     "core::result::* core::str::* core::ops::* core::convert::* core::clone::* core::hash::* core::intrinsics::* "
     "core::array::* core::char::* core::ub_checks::* alloc::alloc::* alloc::raw_vec::* alloc::vec::* "
     "alloc::boxed::* alloc::string::* <core::* <alloc::*"},

    {"gcc's compilers: bitmaps, trees, allocation",
     "cc1*",
     "bitmap_* ggc_internal_*alloc tree_strip_* is_gimple_* side_effects_p volatile_refs_p note_pattern_stores "
     "reg_class_subset_p element_precision profile_count::* wi::* max_reg_num VN_INFO",
     true},

    {"LLVM: folding sets, attributes, instructions",
     "libLLVM*",
     "llvm::FoldingSet* llvm::StringMapImpl::* llvm::SmallPtrSetImplBase::* llvm::allocate_buffer "
     "llvm::deallocate_buffer llvm::Attribute* llvm::BasicBlock::getTerminator llvm::Instruction::getNumSuccessors "
     "llvm::Instruction::getSuccessor llvm::Value::getContext llvm::Value::getMetadata llvm::Module::getDataLayout "
     "llvm::CallBase::hasFnAttrOnCalledFunction"},

    {"clang: declarations, types",
     "libclang*",
     "clang::Decl::castFromDeclContext clang::Decl::getASTContext clang::DeclContext::getPrimaryContext "
     "clang::TagDecl::getDefinition clang::TypeLoc::*"},

    {"V8: visiting and moving objects, parsing",
     "node*",
     "v8::internal::HeapObject::SizeFromMap v8::internal::Heap::GetFillToAlign v8::internal::SemiSpaceNewSpace::* "
     "v8::internal::PretenuringHandler::* v8::internal::EvacuationAllocator::* v8::internal::BodyDescriptor* "
     "heap::base::* v8::internal::JsonParser<*>::SkipWhitespace v8::internal::LookupIterator::* "
     "v8::internal::Deserializer<*>::Read* v8::internal::GetCurrentStackPosition"},

    {"HotSpot: handles, arenas, the compilers' nodes and types",
     "libjvm.so",
     "methodHandle::* constantPoolHandle::* resource_allocate_bytes GrowableArray* ResourceObj::* Type::cmp "
     "Type*::eq Node::* IndexSet* CodeHeap::* VirtualSpace::* frame::* JavaFrameAnchor::* CompilerConfig::* "
     "AccessInternal::* Method::*_count LIR_OpVisitState::* Mutex::lock* Mutex::unlock*",
     true},

    {NULL, NULL, NULL, false},
};
/* clang-format on */
