"""The API: routes by subject, each a thin layer over what does the work. Only coroutines: nothing runs in threads."""
