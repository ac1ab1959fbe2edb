const data = "A".repeat(1 << 20)
try { for (;;) image({ data, mimeType: "image/png" }) } catch (e) { return e.code }
