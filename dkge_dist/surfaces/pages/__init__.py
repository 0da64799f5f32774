"""Pages for people, made of figures. Pure: values in, HTML out; no store, no clock, nothing loaded from elsewhere."""
