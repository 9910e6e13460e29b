//! A small, real Kubernetes API server: for tests, demonstrations and operators' authors.
