//! The QuickJS source as published, with the changes listed here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Replacements, as pairs of old and new text. Each old text must occur exactly once; otherwise the version has changed
/// and the replacements need a review.
const CHANGES: [(&str, &str); 18] = [
    POLL,
    FRAME_OF_THE_CELL,
    READ_OF_A_PROPERTY,
    PLACE_OF_THE_FIRST_NAME,
    PLACE_OF_A_CONSTRUCTOR,
    PLACE_OF_A_PROPERTY,
    PLACE_OF_AN_ELEMENT,
    PLACE_OF_A_CALL,
    PLACE_OF_A_SPREAD_CALL,
    EXPLANATION,
    FIRST_INSTRUCTION,
    EXPLAINED_ERROR,
    READ_FROM_A_PROMISE,
    METHOD_OF_A_PROMISE,
    CONVERSION,
    CONVERSION_MODE,
    CONVERTED_VALUE,
    CONVERTED_CYCLE,
];

/// QuickJS polls at each jump backwards and each call of a function. The host stops a cell by setting a flag, so a poll only
/// reads that.
const POLL: (&str, &str) = (
    "\
    if (unlikely(--ctx->interrupt_counter <= 0)) {
        return __js_poll_interrupts(ctx);
    } else {
        return 0;
    }
}
",
    "\
    extern volatile int32_t cellmate_stop;
    if (unlikely(cellmate_stop))
        __builtin_trap();
    return 0;
}
",
);

/// QuickJS frees the variables of a function that has returned, one object at a time. Those of the cell's own function can
/// be most of its memory, which is discarded as a whole after the cell's end.
const FRAME_OF_THE_CELL: (&str, &str) = (
    "\
            JS_FreeValue(ctx, ret2);
        }
        js_async_function_terminate(ctx->rt, s);
",
    "\
            JS_FreeValue(ctx, ret2);
        }
        extern int cellmate_keeps_frame(const void *function);
        if (cellmate_keeps_frame(JS_VALUE_GET_PTR(s->func_state.frame.cur_func)))
            JS_REF_COUNT(s)++;
        else
            js_async_function_terminate(ctx->rt, s);
",
);

/// QuickJS records positions of names and calls, but not of `.x`: reading a property of `undefined` was reported at the
/// last name or call, or at the first column of its function.
const READ_OF_A_PROPERTY: (&str, &str) = (
    "\
                    emit_op(s, OP_get_field);
                    emit_atom(s, s->token.u.ident.atom);
                }
            }
            if (next_token(s))
                return -1;
        } else if (s->token.val == '[') {
",
    "\
                    emit_source_loc(s);
                    emit_op(s, OP_get_field);
                    emit_atom(s, s->token.u.ident.atom);
                }
            }
            if (next_token(s))
                return -1;
        } else if (s->token.val == '[') {
",
);

/// A call was reported at the last name of its arguments. These changes report it at the last name of the function that
/// is called, where the explanation of a failed call finds that name.
const PLACE_OF_THE_FIRST_NAME: (&str, &str) = (
    "\
    bool accept_lparen = (parse_flags & PF_POSTFIX_CALL) != 0;

    call_type = FUNC_CALL_NORMAL;
",
    "\
    bool accept_lparen = (parse_flags & PF_POSTFIX_CALL) != 0;
    int name_line = s->token.line_num, name_col = s->token.col_num;

    call_type = FUNC_CALL_NORMAL;
",
);

const PLACE_OF_A_CONSTRUCTOR: (&str, &str) = (
    "\
            emit_source_loc(s);
            if (js_parse_postfix_expr(s, 0))
                return -1;
            accept_lparen = true;
",
    "\
            emit_source_loc(s);
            name_line = s->token.line_num;
            name_col = s->token.col_num;
            if (js_parse_postfix_expr(s, 0))
                return -1;
            accept_lparen = true;
",
);

const PLACE_OF_A_PROPERTY: (&str, &str) = (
    "\
        parse_property:
            if (s->token.val == TOK_PRIVATE_NAME) {
",
    "\
        parse_property:
            name_line = s->token.line_num;
            name_col = s->token.col_num;
            if (s->token.val == TOK_PRIVATE_NAME) {
",
);

const PLACE_OF_AN_ELEMENT: (&str, &str) = (
    "\
        parse_array_access:
            prev_op = get_prev_opcode(fd);
",
    "\
        parse_array_access:
            name_line = s->token.line_num;
            name_col = s->token.col_num;
            prev_op = get_prev_opcode(fd);
",
);

const PLACE_OF_A_CALL: (&str, &str) = (
    "\
            emit_func_call:
                switch(opcode) {
",
    "\
            emit_func_call:
                emit_source_loc_at(s, name_line, name_col);
                switch(opcode) {
",
);

const PLACE_OF_A_SPREAD_CALL: (&str, &str) = (
    "\
                /* apply function call */
                switch(opcode) {
",
    "\
                /* apply function call */
                emit_source_loc_at(s, name_line, name_col);
                switch(opcode) {
",
);

/// The shim may replace the message of an error that the engine itself throws, before the cell can see it.
const EXPLANATION: (&str, &str) = (
    "\
static bool needs_backtrace(JSValue exc)
{
",
    "\
extern int cellmate_can_explain(JSContext *ctx, JSValueConst error);
extern void cellmate_explain(JSContext *ctx, JSValueConst error, JSValueConst receiver, const char *file, int line,
                             int column);
extern void cellmate_missed_in_promise(JSContext *ctx, JSAtom name);

/* Returns the value that the failed instruction was applied to, if it is still on the stack. */
static JSValueConst receiver_of(int opcode, const uint8_t *pc, const JSValue *sp)
{
    switch (opcode) {
    case OP_call_method:
    case OP_tail_call_method:
        return sp[-get_u16(pc - 2) - 2];
    case OP_apply:
        return sp[-2];
    case OP_for_of_start:
    case OP_append:
        return sp[-1];
    default:
        return JS_UNDEFINED;
    }
}

static void explain_error(JSContext *ctx, JSFunctionBytecode *b, const uint8_t *pc, JSValueConst receiver)
{
    JSValue error = JS_GetException(ctx);
    if (cellmate_can_explain(ctx, error)) {
        int column, line = find_line_num(ctx, b, pc - b->byte_code_buf - 1, &column);
        const char *file = b->filename ? JS_AtomToCString(ctx, b->filename) : NULL;
        cellmate_explain(ctx, error, receiver, file, line, column);
        JS_FreeCString(ctx, file);
    }
    JS_Throw(ctx, error);
}

static bool needs_backtrace(JSValue exc)
{
",
);

/// A property that a promise does not have was probably meant to be read from its result: `await` is missing. The error
/// comes later, when the cell uses the `undefined`, so the engine passes the name to the shim.
const READ_FROM_A_PROMISE: (&str, &str) = (
    "\
                get_field_slow_path:
                    sf->cur_pc = pc;
                    val = JS_GetPropertyInternal(ctx, obj, atom, sp[-1], false);
                    if (unlikely(JS_IsException(val)))
                        goto exception;
                }
",
    "\
                get_field_slow_path:
                    sf->cur_pc = pc;
                    val = JS_GetPropertyInternal(ctx, obj, atom, sp[-1], false);
                    if (unlikely(JS_IsException(val)))
                        goto exception;
                }
                if (JS_IsUndefined(val) && JS_IsPromise(sp[-1]))
                    cellmate_missed_in_promise(ctx, atom);
",
);

/// The names of `const { content } = promise` are read like those of methods.
const METHOD_OF_A_PROMISE: (&str, &str) = (
    "\
                get_field2_slow_path:
                    sf->cur_pc = pc;
                    val = JS_GetPropertyInternal(ctx, obj, atom, sp[-1], false);
                    if (unlikely(JS_IsException(val)))
                        goto exception;
                }
",
    "\
                get_field2_slow_path:
                    sf->cur_pc = pc;
                    val = JS_GetPropertyInternal(ctx, obj, atom, sp[-1], false);
                    if (unlikely(JS_IsException(val)))
                        goto exception;
                }
                if (JS_IsUndefined(val) && JS_IsPromise(sp[-1]))
                    cellmate_missed_in_promise(ctx, atom);
",
);

/// A resumed function may throw before its first instruction.
const FIRST_INSTRUCTION: (&str, &str) = (
    "\
    uint8_t *pc;
    int opcode, arg_allocated_size, i;
",
    "\
    uint8_t *pc;
    int opcode = OP_invalid, arg_allocated_size, i;
",
);

const EXPLAINED_ERROR: (&str, &str) = (
    "\
    || JS_IsUndefined(ctx->error_back_trace)) {
        sf->cur_pc = pc;
        build_backtrace(ctx, rt->current_exception, JS_UNDEFINED,
                        NULL, 0, 0, 0);
    }
",
    "\
    || JS_IsUndefined(ctx->error_back_trace)) {
        bool is_new = can_store_error_stack(rt->current_exception);
        sf->cur_pc = pc;
        build_backtrace(ctx, rt->current_exception, JS_UNDEFINED,
                        NULL, 0, 0, 0);
        if (is_new)
            explain_error(ctx, b, pc, receiver_of(opcode, pc, sp));
    }
",
);

/// The prelude converts values that JSON does not have when a value leaves the cell. `JSON.stringify` of the cell's own
/// code is unchanged. A second pass in JavaScript would cost more than encoding itself.
const CONVERSION: (&str, &str) = (
    "\
    StringBuffer *b;
} JSONStringifyContext;
",
    "\
    StringBuffer *b;
    int convert;
} JSONStringifyContext;

extern int cellmate_conversion;
extern JSValue cellmate_convert(JSContext *ctx, int mode, JSValueConst value);

/* Returns whether JSON has no form for a value, or only an empty object. */
static bool needs_conversion(JSContext *ctx, JSValueConst value)
{
    switch (JS_VALUE_GET_NORM_TAG(value)) {
    case JS_TAG_SYMBOL:
    case JS_TAG_SHORT_BIG_INT:
    case JS_TAG_BIG_INT:
        return true;
    case JS_TAG_OBJECT:
        switch (JS_VALUE_GET_OBJ(value)->class_id) {
        case JS_CLASS_OBJECT:
        case JS_CLASS_ARRAY:
        case JS_CLASS_NUMBER:
        case JS_CLASS_STRING:
        case JS_CLASS_BOOLEAN:
        case JS_CLASS_ARGUMENTS:
        case JS_CLASS_MAPPED_ARGUMENTS:
            return false;
        case JS_CLASS_PROXY:
            return JS_IsFunction(ctx, value);
        default:
            return true;
        }
    default:
        return false;
    }
}
",
);

const CONVERSION_MODE: (&str, &str) = (
    "\
    jsc->replacer_func = JS_UNDEFINED;
    jsc->stack = JS_UNDEFINED;
",
    "\
    /* A `toJSON` method may call `JSON.stringify`, which does not convert. */
    jsc->convert = cellmate_conversion;
    cellmate_conversion = 0;
    jsc->replacer_func = JS_UNDEFINED;
    jsc->stack = JS_UNDEFINED;
",
);

const CONVERTED_VALUE: (&str, &str) = (
    "\
    switch (JS_VALUE_GET_NORM_TAG(val)) {
    case JS_TAG_OBJECT:
        if (JS_IsFunction(ctx, val))
            break;
    case JS_TAG_STRING:
    case JS_TAG_STRING_ROPE:
    case JS_TAG_INT:
",
    "\
    if (jsc->convert && needs_conversion(ctx, val)) {
        v = cellmate_convert(ctx, jsc->convert, val);
        JS_FreeValue(ctx, val);
        val = v;
        if (JS_IsException(val))
            goto exception;
    }

    switch (JS_VALUE_GET_NORM_TAG(val)) {
    case JS_TAG_OBJECT:
        if (JS_IsFunction(ctx, val))
            break;
    case JS_TAG_STRING:
    case JS_TAG_STRING_ROPE:
    case JS_TAG_INT:
",
);

/// The mode 2 is that of output; `guest/prelude/values.js` has the same number.
const CONVERTED_CYCLE: (&str, &str) = (
    "\
        if (JS_ToBoolFree(ctx, v)) {
            JS_ThrowTypeError(ctx, \"circular reference\");
            goto exception;
        }
",
    "\
        if (JS_ToBoolFree(ctx, v)) {
            if (jsc->convert == 2) {
                JS_FreeValue(ctx, val);
                val = js_new_string8(ctx, \"[circular]\");
                if (JS_IsException(val))
                    goto exception;
                goto concat_primitive;
            }
            JS_ThrowTypeError(ctx, jsc->convert ? \"the input contains itself, which JSON cannot express\" :
                                                  \"circular reference\");
            goto exception;
        }
",
);

/// Writes the engine's largest file with the changes applied.
pub(crate) fn write(published: &Path, out: &Path) -> Result<PathBuf> {
    let mut text = fs::read_to_string(published)?;
    for (before, after) in CHANGES {
        if text.matches(before).count() != 1 {
            return Err(format!("a change to QuickJS no longer applies to its version: {before}").into());
        }
        text = text.replace(before, after);
    }
    let changed = out.join("quickjs.c");
    fs::write(&changed, text)?;
    Ok(changed)
}
