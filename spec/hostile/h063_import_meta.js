return import.meta.url
