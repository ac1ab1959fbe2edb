return { toJSON() { for (;;); } }
