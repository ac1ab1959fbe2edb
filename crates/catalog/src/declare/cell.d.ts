// The globals of a cell, besides those of JavaScript, its tools and its namespaces.

type Handle = `out_${string}`;
/** A handle, or an object that has one: a preview, an output item, a content block, an entry of `output.list()`. */
type HasHandle = Handle | { handle: Handle };
type MediaBlock = { type?: "image" | "audio"; data: string | Uint8Array; mimeType: string };

/** Adds text to the result's `output`; other values are shown as JSON. `console.log` does too. */
declare function text(value: unknown): void;
/** Adds a JSON value to `output`. */
declare function json(value: unknown): void;
/** Shows an image: a content block of a tool's result, `{ data, mimeType }`, a data URL or a handle. */
declare function image(block: MediaBlock | HasHandle | string): void;
/** Adds a sound, from the same values as `image`. */
declare function audio(block: MediaBlock | HasHandle | string): void;
/** Decodes the data of a content block, or base64 text. */
declare function bytes(block: { data: string } | { blob: string } | string): Uint8Array;
/** Returns to the model with status "waiting"; `wait` resumes the cell. */
declare function yield_control(reason?: string): Promise<void>;

/**
 * Stored outputs of this session. A value or output that is too large for the result is stored, and the result has
 * `{ handle, of, bytes, first, last }` in its place; so are large results of tools, images and sounds.
 * Calls reject with the codes unknown_output, invalid_input and value_too_large.
 */
declare const output: {
  /** The newest first. `length` counts characters, as `read` does; `createdAt` counts milliseconds. */
  list(): Promise<{ handle: Handle; type: "text" | "json" | "image" | "audio" | "binary"; bytes: number; length: number; createdAt: number; lines?: number; mimeType?: string; tool?: string }[]>;
  /** `text.slice(offset, offset + length)` of a stored text or JSON; base64 of those bytes of other outputs. */
  read(handle: HasHandle, page?: { offset?: number; length?: number }): Promise<string>;
  /** Lines without their ends; `from` counts from 0. */
  lines(handle: HasHandle, page?: { from?: number; count?: number }): Promise<string[]>;
  /** The stored JSON value. */
  json(handle: HasHandle): Promise<any>;
  /** Lines that match a regular expression without look-around; `read` takes the `offset` of a match. Of very long lines, every match. */
  grep(handle: HasHandle, pattern: RegExp | string, options?: { limit?: number; ignoreCase?: boolean }): Promise<{ line: number; offset: number; text: string }[]>;
  /** Stands for the stored text or JSON value in the arguments of a tool, without reading it. */
  ref(handle: HasHandle): { readonly $handle: Handle };
};

/**
 * Values that the cells of this session share: JSON, at most 1 MiB each. `ifVersion` makes a write conditional: the key
 * must have this version, or must not exist if it is null or undefined; otherwise the call rejects with the code
 * version_conflict.
 */
declare function store(key: string, value: unknown, options?: { ifVersion?: string | null }): Promise<{ version: string }>;
/** Resolves to undefined if there is no such key. */
declare function load(key: string): Promise<any>;
declare function load(key: string, options: { version: true }): Promise<{ value: any; version: string } | undefined>;
/** Deletes a key; resolves to whether it existed. */
declare function forget(key: string, options?: { ifVersion?: string | null }): Promise<boolean>;
declare function keys(): Promise<{ key: string; version: string; bytes: number }[]>;
