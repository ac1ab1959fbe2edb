return [typeof globalThis.__left, typeof ({}).__left]
