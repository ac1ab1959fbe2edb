// The guest side of the sandbox: one QuickJS runtime, one context, five imports.
//
// The whole state of a cell is in linear memory, including the clock, the random state and the count
// of open host calls. So a copy of memory is a copy of the cell, and the same source, clock and seed
// give the same bytes.

#include "quickjs.h"
#include "prelude.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(name), visibility("default")))
#define IMPORT(name) __attribute__((import_module("cellmate"), import_name(name)))

// The guest can reach nothing else of the host. The host checks every pointer and number.
IMPORT("call")   extern int32_t host_call(uint32_t id, int32_t method, const char *target, size_t target_len,
                                          const char *payload, size_t payload_len);
IMPORT("output") extern int32_t host_output(int32_t kind, const char *text, size_t len, const char *type, size_t type_len);
IMPORT("lookup") extern int32_t host_lookup(const char *key, size_t len);
IMPORT("url")    extern int32_t host_url(const char *request, size_t len);
IMPORT("take")   extern void host_take(char *into);

// QuickJS's stack limit, in bytes of the shadow stack. It must be lower than Wasmtime's limit on the
// native stack, so that overflow is an exception that a cell can catch.
#define JS_STACK_BYTES (256 * 1024)

enum end { COMPLETED, SUSPENDED, FAILED, BAD_SYNTAX, STUCK };

static JSRuntime *runtime;
static JSContext *context;
static JSValue begin_function, settle_function, encode_function, describe_function, cell_promise;
static JSValue convert_function, explain_function, failed_function, unhandled_function, unawaited_function;
static int32_t open_calls, open_timers;
static int cell_returned, returned_undefined;
static const char *result_text;
static size_t result_length;
// The script, for the explanation of errors.
static const char *script_text;
static size_t script_length;

// The host sets this to stop the cell. Loops check it: crates/sandbox/build/stop_checks.rs.
volatile int32_t cellmate_stop;

static double clock_us = 1.7e15;
static uint64_t random_state;

// The libc shim in rquickjs-sys imports this name; defining it here avoids the import.
double __rquickjs_host_now_us(void) { return clock_us; }

// splitmix64, because it works with any seed.
static JSValue js_random(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return JS_NewFloat64(ctx, (double)(z >> 11) * 0x1.0p-53);
}

// call(id, method, target, payload) -> 0, or the number of a refusal
static JSValue js_call(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    uint32_t id;
    int32_t method, refused;
    size_t target_len, payload_len;
    const char *target, *payload;
    if (JS_ToUint32(ctx, &id, argv[0]) || JS_ToInt32(ctx, &method, argv[1])) return JS_EXCEPTION;
    target = JS_ToCStringLen(ctx, &target_len, argv[2]);
    if (!target) return JS_EXCEPTION;
    payload = JS_ToCStringLen(ctx, &payload_len, argv[3]);
    if (!payload) {
        JS_FreeCString(ctx, target);
        return JS_EXCEPTION;
    }
    refused = host_call(id, method, target, target_len, payload, payload_len);
    JS_FreeCString(ctx, target);
    JS_FreeCString(ctx, payload);
    return JS_NewInt32(ctx, refused);
}

// The calls that wait for a reply, unordered. The host refuses a call before this array overflows.
#define MAX_OPEN_CALLS 1024
static struct open_call { uint32_t id; JSValue resolve, reject, target; int is_mcp; } open_call[MAX_OPEN_CALLS];

// ask(id, method, target, payload, name, isMcp) -> promise, or the number of a refusal
static JSValue js_ask(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    struct open_call *open;
    JSValue settlers[2], refused, promise;
    promise = JS_NewPromiseCapability(ctx, settlers);
    if (JS_IsException(promise)) return promise;
    refused = js_call(ctx, this_val, argc, argv);
    if (JS_IsException(refused) || JS_VALUE_GET_INT(refused) != 0) {
        JS_FreeValue(ctx, settlers[0]);
        JS_FreeValue(ctx, settlers[1]);
        JS_FreeValue(ctx, promise);
        return refused;
    }
    if (open_calls == MAX_OPEN_CALLS) __builtin_trap();
    open = &open_call[open_calls++];
    JS_ToUint32(ctx, &open->id, argv[0]);
    open->resolve = settlers[0];
    open->reject = settlers[1];
    open->target = JS_DupValue(ctx, argv[4]);
    open->is_mcp = JS_ToBool(ctx, argv[5]) == 1;
    return promise;
}

// waiting(delta): changes the count of open timers
static JSValue js_waiting(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    int32_t delta;
    if (JS_ToInt32(ctx, &delta, argv[0])) return JS_EXCEPTION;
    open_timers += delta;
    return JS_UNDEFINED;
}

static JSValue take_answer(JSContext *ctx, int32_t len) {
    char *buffer;
    JSValue answer;
    if (len < 0) return JS_UNDEFINED;
    buffer = js_malloc(ctx, (size_t)len + 1);
    if (!buffer) return JS_EXCEPTION;
    host_take(buffer);
    answer = JS_NewStringLen(ctx, buffer, len);
    js_free(ctx, buffer);
    return answer;
}

// output(kind, text, type) -> undefined, or why the host refuses it; only media have a type
static JSValue js_output(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    int32_t kind, answer;
    size_t len, type_len = 0;
    const char *text, *type = NULL;
    if (JS_ToInt32(ctx, &kind, argv[0])) return JS_EXCEPTION;
    text = JS_ToCStringLen(ctx, &len, argv[1]);
    if (!text) return JS_EXCEPTION;
    if (!JS_IsUndefined(argv[2])) {
        type = JS_ToCStringLen(ctx, &type_len, argv[2]);
        if (!type) {
            JS_FreeCString(ctx, text);
            return JS_EXCEPTION;
        }
    }
    answer = host_output(kind, text, len, type, type_len);
    JS_FreeCString(ctx, text);
    if (type) JS_FreeCString(ctx, type);
    return take_answer(ctx, answer);
}

// lookup(key) -> string or undefined; url(request) -> string or undefined
static JSValue js_look_up(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv, int magic) {
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
    int32_t answer;
    if (!text) return JS_EXCEPTION;
    answer = magic ? host_url(text, len) : host_lookup(text, len);
    JS_FreeCString(ctx, text);
    return take_answer(ctx, answer);
}

// encodeUtf8(string) -> Uint8Array. QuickJS writes a lone surrogate as three bytes ED A0..BF xx;
// the replacement character has three bytes too.
static JSValue js_encode_utf8(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t len, i;
    JSValue buffer, array;
    JSValueConst args[1];
    uint8_t *bytes;
    const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
    if (!text) return JS_EXCEPTION;
    buffer = JS_NewArrayBufferCopy(ctx, (const uint8_t *)text, len);
    JS_FreeCString(ctx, text);
    if (JS_IsException(buffer)) return buffer;
    bytes = JS_GetArrayBuffer(ctx, &len, buffer);
    for (i = 0; bytes && i + 2 < len; i++)
        if (bytes[i] == 0xED && bytes[i + 1] >= 0xA0) memcpy(bytes + i, "\xEF\xBF\xBD", 3);
    args[0] = buffer;
    array = JS_NewTypedArray(ctx, 1, args, JS_TYPED_ARRAY_UINT8);
    JS_FreeValue(ctx, buffer);
    return array;
}

static size_t utf8_sequence(const uint8_t *p, const uint8_t *end) {
    uint8_t a = p[0];
    size_t n = a < 0x80 ? 1 : a >= 0xC2 && a <= 0xDF ? 2 : (a & 0xF0) == 0xE0 ? 3 : a >= 0xF0 && a <= 0xF4 ? 4 : 0;
    size_t i;
    if (n == 0 || p + n > end) return 0;
    for (i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((a == 0xE0 && p[1] < 0xA0) || (a == 0xED && p[1] > 0x9F) || (a == 0xF0 && p[1] < 0x90) || (a == 0xF4 && p[1] > 0x8F)) return 0;
    return n;
}

// decodeUtf8(ArrayBuffer, offset, length, fatal) -> string, or undefined if fatal and invalid
static JSValue js_decode_utf8(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    size_t size, n, at = 0;
    uint32_t offset, length;
    int fatal = JS_ToBool(ctx, argv[3]);
    uint8_t *bytes;
    char *clean;
    JSValue text;
    // The conversions may run code of the cell that detaches or resizes the buffer, so the pointer is taken last.
    if (JS_ToUint32(ctx, &offset, argv[1]) || JS_ToUint32(ctx, &length, argv[2])) return JS_EXCEPTION;
    bytes = JS_GetArrayBuffer(ctx, &size, argv[0]);
    if (!bytes && JS_HasException(ctx)) return JS_EXCEPTION;
    if (offset > size || length > size - offset) return JS_ThrowRangeError(ctx, "view is out of bounds");
    clean = js_malloc(ctx, (size_t)length * 3 + 1);
    if (!clean) return JS_EXCEPTION;
    for (const uint8_t *p = bytes + offset, *end = p + length; p < end;) {
        n = utf8_sequence(p, end);
        if (n == 0 && fatal) {
            js_free(ctx, clean);
            return JS_UNDEFINED;
        }
        if (n == 0) {
            memcpy(clean + at, "\xEF\xBF\xBD", 3);
            at += 3, p += 1;
        } else {
            memcpy(clean + at, p, n);
            at += n, p += n;
        }
    }
    text = JS_NewStringLen(ctx, clean, at);
    js_free(ctx, clean);
    return text;
}

// The mode of the next `JS_JSONStringify`: 0 is JSON's own, the others are those of `guest/prelude/values.js`. The
// changes in `crates/sandbox/build/engine.rs` read it.
int cellmate_conversion;

// toJson(value, mode) -> string or undefined
static JSValue js_to_json(JSContext *ctx, JSValueConst this_val, int argc, JSValueConst *argv) {
    int32_t mode;
    if (JS_ToInt32(ctx, &mode, argv[1])) return JS_EXCEPTION;
    cellmate_conversion = mode;
    return JS_JSONStringify(ctx, argv[0], JS_UNDEFINED, JS_UNDEFINED);
}

// The kinds of values that the prelude converts; `guest/prelude/values.js` has the same list.
enum kind { OTHER, ERROR, MAP, SET, REGEXP, PROMISE, TYPED_ARRAY, DATA_VIEW, ARRAY_BUFFER, DATE };

static enum kind kind_of(JSValueConst value) {
    if (JS_IsError(value)) return ERROR;
    if (JS_IsMap(value)) return MAP;
    if (JS_IsSet(value)) return SET;
    if (JS_IsRegExp(value)) return REGEXP;
    if (JS_IsPromise(value)) return PROMISE;
    if (JS_GetTypedArrayType(value) >= 0) return TYPED_ARRAY;
    if (JS_IsDataView(value)) return DATA_VIEW;
    if (JS_IsArrayBuffer(value)) return ARRAY_BUFFER;
    if (JS_IsDate(value)) return DATE;
    return OTHER;
}

// Called by the engine for a value without a JSON form.
JSValue cellmate_convert(JSContext *ctx, int mode, JSValueConst value) {
    JSValueConst args[3] = {value, JS_NewInt32(ctx, mode), JS_NewInt32(ctx, kind_of(value))};
    return JS_Call(ctx, convert_function, JS_UNDEFINED, 3, args);
}

// A cell that catches errors in a loop should not pay for their explanation.
#define MAX_EXPLAINED 64
static int explained;

static int starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

// Returns the message of an error that the engine has just created, or NULL.
static const char *message_of(JSContext *ctx, JSValueConst error) {
    JSPropertyDescriptor message;
    JSAtom name = JS_NewAtom(ctx, "message");
    const char *text = NULL;
    if (JS_GetOwnProperty(ctx, &message, error, name) > 0) {
        if (JS_IsString(message.value)) text = JS_ToCString(ctx, message.value);
        JS_FreeValue(ctx, message.value);
        JS_FreeValue(ctx, message.getter);
        JS_FreeValue(ctx, message.setter);
    }
    JS_FreeAtom(ctx, name);
    return text;
}

// Returns whether the prelude may have an explanation for this error.
int cellmate_can_explain(JSContext *ctx, JSValueConst error) {
    const char *text;
    int may;
    // Before there is a script, the image is being built, and the host cannot be asked.
    if (explained >= MAX_EXPLAINED || !script_text) return 0;
    text = message_of(ctx, error);
    if (!text) return 0;
    may = strcmp(text, "not a function") == 0 || strcmp(text, "value is not iterable") == 0 ||
          starts_with(text, "cannot read property '") || ends_with(text, " is not defined");
    JS_FreeCString(ctx, text);
    return may;
}

// How much of the script around a place is passed to the prelude.
#define EXCERPT_BYTES 160

// Returns where a place of the cell is in the script, or -1.
static int32_t offset_of(const char *file, int line, int column) {
    const char *at = script_text, *end = script_text + script_length;
    if (!file || strcmp(file, "cell") != 0 || !script_text || line < 1 || column < 1) return -1;
    // The wrapper takes two lines.
    for (int skipped = 0; skipped < line + 1; skipped++) {
        at = memchr(at, '\n', end - at);
        if (!at) return -1;
        at++;
    }
    return column - 1 <= end - at ? (int32_t)(at - script_text) + column - 1 : -1;
}

// The last name that the cell read from a promise in vain.
static JSAtom missed_in_promise = JS_ATOM_NULL;

// Called by the engine for each such name.
void cellmate_missed_in_promise(JSContext *ctx, JSAtom name) {
    if (name == missed_in_promise) return;
    JS_FreeAtom(ctx, missed_in_promise);
    missed_in_promise = JS_DupAtom(ctx, name);
}

// Called by the engine when it throws an error of its own. Replaces the message if the prelude has a better one.
void cellmate_explain(JSContext *ctx, JSValueConst error, JSValueConst receiver, const char *file, int line, int column) {
    int32_t offset = offset_of(file, line, column);
    size_t before = 0, after = 0;
    JSValue args[7], better;
    const char *message = message_of(ctx, error);
    // An error inside the explanation is not explained.
    int count = explained + 1;
    explained = MAX_EXPLAINED;
    if (offset >= 0) {
        before = offset < EXCERPT_BYTES ? offset : EXCERPT_BYTES;
        after = script_length - offset < EXCERPT_BYTES ? script_length - offset : EXCERPT_BYTES;
    }
    args[0] = JS_NewString(ctx, message ? message : "");
    args[1] = JS_DupValue(ctx, receiver);
    args[2] = JS_NewBool(ctx, JS_IsProxy(receiver));
    args[3] = offset < 0 ? JS_UNDEFINED : JS_NewStringLen(ctx, script_text + offset - before, before);
    args[4] = offset < 0 ? JS_UNDEFINED : JS_NewStringLen(ctx, script_text + offset, after);
    args[5] = JS_NewBool(ctx, JS_IsPromise(receiver));
    args[6] = missed_in_promise == JS_ATOM_NULL ? JS_UNDEFINED : JS_AtomToString(ctx, missed_in_promise);
    better = JS_Call(ctx, explain_function, JS_UNDEFINED, 7, (JSValueConst *)args);
    if (JS_IsException(better)) JS_FreeValue(ctx, JS_GetException(ctx));
    else if (JS_IsString(better))
        JS_DefinePropertyValueStr(ctx, error, "message", JS_DupValue(ctx, better), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_FreeValue(ctx, better);
    for (int i = 0; i < 7; i++) JS_FreeValue(ctx, args[i]);
    JS_FreeCString(ctx, message);
    explained = count;
}

static void set_function(JSValue object, const char *name, JSCFunction *function, int length) {
    JS_SetPropertyStr(context, object, name, JS_NewCFunction(context, function, name, length));
}

static JSValue evaluate(const char *text, size_t len, const char *name) {
    return JS_Eval(context, text, len, name, JS_EVAL_TYPE_GLOBAL);
}

static void drain_jobs(void) {
    JSContext *ctx;
    int result;
    while ((result = JS_ExecutePendingJob(runtime, &ctx)) != 0)
        if (result < 0) JS_FreeValue(ctx, JS_GetException(ctx));
}

// Promises that are rejected and that no code of the cell handles yet: a call that is not awaited. A cell that completes
// shows their errors, which it would lose otherwise.
#define MAX_UNHANDLED 8
static struct { JSValue promise, reason; } unhandled[MAX_UNHANDLED];
static int unhandled_count;

static void track_rejection(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool is_handled, void *opaque) {
    (void)opaque;
    if (!is_handled) {
        // The errors of more promises are not shown.
        if (unhandled_count == MAX_UNHANDLED) return;
        unhandled[unhandled_count].promise = JS_DupValue(ctx, promise);
        unhandled[unhandled_count++].reason = JS_DupValue(ctx, reason);
        return;
    }
    for (int i = 0; i < unhandled_count; i++) {
        if (JS_VALUE_GET_PTR(unhandled[i].promise) != JS_VALUE_GET_PTR(promise)) continue;
        JSValue found = unhandled[i].promise, error = unhandled[i].reason;
        for (unhandled_count--; i < unhandled_count; i++) unhandled[i] = unhandled[i + 1];
        JS_FreeValue(ctx, found);
        JS_FreeValue(ctx, error);
        return;
    }
}

static void show_unhandled(void) {
    for (int i = 0; i < unhandled_count; i++) {
        JSValueConst args[1] = {unhandled[i].reason};
        JSValue shown = JS_Call(context, unhandled_function, JS_UNDEFINED, 1, args);
        // The error cannot be read, or the output is full.
        if (JS_IsException(shown)) JS_FreeValue(context, JS_GetException(context));
        JS_FreeValue(context, shown);
    }
}

// A cell that forgot to `await` a call and returns a property of the promise completes without a value.
static void show_unawaited(void) {
    if (!returned_undefined || missed_in_promise == JS_ATOM_NULL) return;
    JSValue name = JS_AtomToString(context, missed_in_promise);
    JSValueConst args[1] = {name};
    JSValue shown = JS_Call(context, unawaited_function, JS_UNDEFINED, 1, args);
    // The output is full.
    if (JS_IsException(shown)) JS_FreeValue(context, JS_GetException(context));
    JS_FreeValue(context, shown);
    JS_FreeValue(context, name);
}

// Runs once, at build time. The memory that it leaves is the image that every cell starts from.
static int initialise(void) {
    JSValue global, host, prelude, inner, warm;
    JSValueConst args[2];
    runtime = JS_NewRuntime();
    if (!runtime) return 1;
    JS_SetMaxStackSize(runtime, JS_STACK_BYTES);
    context = JS_NewContext(runtime);
    if (!context) return 2;
    cell_promise = JS_UNDEFINED;
    global = JS_GetGlobalObject(context);
    host = JS_NewObjectProto(context, JS_NULL);
    set_function(host, "random", js_random, 0);
    set_function(host, "call", js_call, 4);
    set_function(host, "ask", js_ask, 6);
    set_function(host, "toJson", js_to_json, 2);
    set_function(host, "waiting", js_waiting, 1);
    set_function(host, "output", js_output, 3);
    JS_SetPropertyStr(context, host, "lookup", JS_NewCFunctionMagic(context, js_look_up, "lookup", 1, JS_CFUNC_generic_magic, 0));
    JS_SetPropertyStr(context, host, "url", JS_NewCFunctionMagic(context, js_look_up, "url", 1, JS_CFUNC_generic_magic, 1));
    set_function(host, "encodeUtf8", js_encode_utf8, 1);
    set_function(host, "decodeUtf8", js_decode_utf8, 4);
    prelude = evaluate(prelude_text, sizeof(prelude_text) - 1, "prelude.js");
    if (JS_IsException(prelude)) return 3;
    args[0] = global;
    args[1] = host;
    inner = JS_Call(context, prelude, JS_UNDEFINED, 2, args);
    if (JS_IsException(inner)) return 4;
    begin_function = JS_GetPropertyStr(context, inner, "begin");
    settle_function = JS_GetPropertyStr(context, inner, "settle");
    encode_function = JS_GetPropertyStr(context, inner, "encode");
    describe_function = JS_GetPropertyStr(context, inner, "describe");
    convert_function = JS_GetPropertyStr(context, inner, "convert");
    explain_function = JS_GetPropertyStr(context, inner, "explain");
    failed_function = JS_GetPropertyStr(context, inner, "failed");
    unhandled_function = JS_GetPropertyStr(context, inner, "unhandled");
    unawaited_function = JS_GetPropertyStr(context, inner, "unawaited");
    JS_SetHostPromiseRejectionTracker(runtime, track_rejection, NULL);
    // Structures that QuickJS creates on first use (atoms, shapes, job queues) belong in the image, not in each cell.
    warm = evaluate(warm_up_text, sizeof(warm_up_text) - 1, "warm-up.js");
    if (JS_IsException(warm)) return 5;
    drain_jobs();
    JS_FreeValue(context, warm);
    JS_FreeValue(context, inner);
    JS_FreeValue(context, prelude);
    JS_FreeValue(context, host);
    JS_FreeValue(context, global);
    JS_RunGC(runtime);
    return 0;
}

// The reference makes the linker build a reactor, without constructor calls around each export.
extern void __wasm_call_ctors(void);

EXPORT("wizer-initialize") void wizer_initialize(void) {
    __wasm_call_ctors();
    if (initialise()) __builtin_trap();
}

EXPORT("stop_flag") const volatile int32_t *stop_flag(void) { return &cellmate_stop; }
EXPORT("allocate") void *allocate(size_t len) { return malloc(len); }
EXPORT("result_pointer") const char *result_pointer(void) { return result_text; }
EXPORT("result_length") size_t result_len(void) { return result_length; }

static void keep_result(JSValue value) {
    if (result_text) JS_FreeCString(context, result_text);
    result_text = NULL;
    result_text = JS_ToCStringLen(context, &result_length, value);
    if (!result_text) JS_FreeValue(context, JS_GetException(context)), result_length = 0;
    JS_FreeValue(context, value);
}

// Stores the description of an error as the result, or an empty string if `describe` itself fails.
static int32_t fail_with(JSValue error, int32_t end) {
    JSValueConst args[1] = {error};
    JSValue described = JS_Call(context, describe_function, JS_UNDEFINED, 1, args);
    JS_FreeValue(context, error);
    if (JS_IsException(described)) {
        JS_FreeValue(context, JS_GetException(context));
        described = JS_NewString(context, "");
    }
    keep_result(described);
    return end;
}

static int32_t end_of_leg(void) {
    drain_jobs();
    if (!cell_returned) switch (JS_PromiseState(context, cell_promise)) {
    case JS_PROMISE_FULFILLED: {
        JSValue value = JS_PromiseResult(context, cell_promise);
        JSValueConst args[1] = {value};
        JSValue encoded = JS_Call(context, encode_function, JS_UNDEFINED, 1, args);
        returned_undefined = JS_IsUndefined(value);
        JS_FreeValue(context, value);
        if (JS_IsException(encoded)) return fail_with(JS_GetException(context), FAILED);
        keep_result(encoded);
        cell_returned = 1;
        break;
    }
    case JS_PROMISE_REJECTED:
        return fail_with(JS_PromiseResult(context, cell_promise), FAILED);
    default:
        return open_calls > 0 || open_timers > 0 ? SUSPENDED : STUCK;
    }
    // Calls in flight are completed; a timer that has not fired is dropped.
    if (open_calls > 0) return SUSPENDED;
    show_unhandled();
    show_unawaited();
    return COMPLETED;
}

static void enter(double now_us) {
    clock_us = now_us;
    // Stack depth is measured from here, not from where the image was built.
    JS_UpdateStackTop(runtime);
}

// The script starts with two lines of wrapper; this first line number makes the cell's own first line line 1. (Two
// lines, because QuickJS treats a first line number of 0 as "not given".)
#define WRAPPER_LINE (-1)

// The cell's own function. QuickJS asks whether it may keep the variables of a function that has returned. With calls in
// flight, the cell may still be suspended, and its snapshot should not contain them.
static const void *cell_function;

int cellmate_keeps_frame(const void *function) {
    return function == cell_function && open_calls == 0;
}

// script: "\n(async()=>{\n…\n})" and a NUL
EXPORT("start") int32_t start(const char *script, size_t len, double now_us, uint64_t seed) {
    JSEvalOptions options = {JS_EVAL_OPTIONS_VERSION, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY, "cell", WRAPPER_LINE};
    JSValue compiled, begun, function, promise;
    enter(now_us);
    random_state = seed;
    compiled = JS_Eval2(context, script, len, &options);
    script_text = script;
    script_length = len;
    if (JS_IsException(compiled)) return fail_with(JS_GetException(context), BAD_SYNTAX);
    begun = JS_Call(context, begin_function, JS_UNDEFINED, 0, NULL);
    if (JS_IsException(begun)) return fail_with(JS_GetException(context), FAILED);
    function = JS_EvalFunction(context, compiled);
    if (JS_IsException(function)) return fail_with(JS_GetException(context), FAILED);
    cell_function = JS_VALUE_GET_PTR(function);
    promise = JS_Call(context, function, JS_UNDEFINED, 0, NULL);
    JS_FreeValue(context, function);
    if (JS_IsException(promise)) return fail_with(JS_GetException(context), FAILED);
    cell_promise = promise;
    return end_of_leg();
}

static struct open_call *find_open_call(uint32_t id) {
    for (int32_t i = 0; i < open_calls; i++)
        if (open_call[i].id == id) return &open_call[i];
    return NULL;
}

// Returns whether an MCP result says that its tool failed.
static int is_error_result(JSValueConst value) {
    JSPropertyDescriptor flag;
    JSAtom name;
    int is_error = 0;
    if (!JS_IsObject(value)) return 0;
    name = JS_NewAtom(context, "isError");
    if (JS_GetOwnProperty(context, &flag, value, name) > 0) {
        is_error = JS_IsBool(flag.value) && JS_ToBool(context, flag.value) == 1;
        JS_FreeValue(context, flag.value);
        JS_FreeValue(context, flag.getter);
        JS_FreeValue(context, flag.setter);
    }
    JS_FreeAtom(context, name);
    return is_error;
}

// Settles the call or timer with this id: a call's promise, or a timer, which the prelude stores. A rejection also
// goes through the prelude, which creates the error.
static JSValue settle(uint32_t id, int rejected, JSValueConst value) {
    struct open_call *open = find_open_call(id), call;
    JSValueConst args[4] = {JS_NewUint32(context, id), value, JS_UNDEFINED, JS_UNDEFINED};
    JSValue settled;
    if (!open) return JS_Call(context, settle_function, JS_UNDEFINED, 4, args);
    call = *open;
    *open = open_call[--open_calls];
    if (rejected) {
        args[2] = call.reject;
        args[3] = call.target;
        settled = JS_Call(context, settle_function, JS_UNDEFINED, 4, args);
    } else {
        if (call.is_mcp && is_error_result(value)) {
            JSValueConst failed[2] = {call.target, value};
            JSValue noted = JS_Call(context, failed_function, JS_UNDEFINED, 2, failed);
            if (JS_IsException(noted)) JS_FreeValue(context, JS_GetException(context));
            JS_FreeValue(context, noted);
        }
        settled = JS_Call(context, call.resolve, JS_UNDEFINED, 1, &args[1]);
    }
    JS_FreeValue(context, call.resolve);
    JS_FreeValue(context, call.reject);
    JS_FreeValue(context, call.target);
    return settled;
}

// replies: records of [u32 id][u32 rejected][u32 length][JSON][NUL], one after the other.
EXPORT("deliver") int32_t deliver(const char *replies, size_t len, double now_us) {
    const char *at = replies, *end = replies + len;
    enter(now_us);
    while (at < end) {
        uint32_t head[3];
        JSValue value, settled;
        memcpy(head, at, sizeof head);
        at += sizeof head;
        value = JS_ParseJSON(context, at, head[2], "reply");
        at += head[2] + 1;
        if (JS_IsException(value)) {
            value = JS_GetException(context);
            head[1] = 1;
        }
        settled = settle(head[0], head[1], value);
        JS_FreeValue(context, value);
        if (JS_IsException(settled)) {
            free((void *)replies);
            return fail_with(JS_GetException(context), FAILED);
        }
        JS_FreeValue(context, settled);
    }
    free((void *)replies);
    return end_of_leg();
}
